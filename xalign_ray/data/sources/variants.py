"""Language converter markup: `-{zh-hans:..; zh-hant:..}-`, which MediaWiki shows in one of several scripts."""

from __future__ import annotations

import re

_RULE = re.compile(r"-\{((?:[^{}]|\{\{[^{}]*\}\})*)\}-")
_MAX_DEPTH = 10
_FLAGS = re.compile(r"\s*([-A-Z+]|[a-z]{2,3}(?:-[a-z]+)*)?(\s*;\s*(?:[-A-Z+]|[a-z]{2,3}(?:-[a-z]+)*))*\s*\|")
_VARIANT = re.compile(r"\s*(?:[^;:|\n]*=>)?\s*((?:zh|sr|kk|ku|tg|uz|gan|iu|shi|crh|wuu|ike)(?:-[a-z]+)*)\s*:")
_SHOWN_FLAGS = frozenset("ASR")


def choose_variants(markup: str) -> str:
    """Each rule as its first variant; one that only defines a conversion (flags H, T, D, N, -) shows nothing.

    `-{zh-hans:A; zh-hant:B}-` and `-{A|zh-hans:A; zh-hant:B}-` are A, `-{A}-` and `-{R|A}-` too.
    """
    if "-{" not in markup:
        return markup
    for _ in range(_MAX_DEPTH):  # innermost first
        markup, count = _RULE.subn(_choose, markup)
        if not count:
            break
    return markup


def _choose(rule: re.Match[str]) -> str:
    flags = _FLAGS.match(rule[1])
    text = rule[1][flags.end() :] if flags else rule[1]
    names = [name.strip() for name in flags[0].rstrip("|").split(";")] if flags else []
    if any(name and (name[0].isupper() or name in "-+") and name not in _SHOWN_FLAGS for name in names):
        return ""
    variant = _VARIANT.match(text)
    if not variant or "R" in names:
        return text
    # A `;` ends a variant only where another begins: text may hold one (&nbsp;).
    rest = text[variant.end() :]
    return re.split(rf";(?={_VARIANT.pattern})|;\s*\Z", rest, maxsplit=1)[0].strip()
