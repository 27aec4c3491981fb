"""Counts the holes that templates leave in sentences of Wikipedia dumps, before and after the rules for unknown ones.

A hole is a place on a line of text where a template showed nothing and what stands around it shows that a word is
missing: a blank (or an opening bracket) before it, and a blank, a closing mark or a lower-case letter behind it. A mark
that touches the word before it (a footnote), stands behind the sentence's end, or ends a line that has no stop (the
language of a link, in a list of links), is none. Brackets and their elements that hold nothing else are none, either:
they go with it. Nor are references, flags and boxes whose names a list knows, or that hold a URL or a file: a page
shows no word there. `--marks` counts these, too.

    python -m tests.bench.holes [--without-lists] [--marks] DUMP...

Without lists every dump is of a language that no list was made for.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mwparserfromhell.nodes import Template
from mwparserfromhell.parser import ParserError

from xalign_ray.sources import html, markup
from xalign_ray.sources.open import Chunks
from xalign_ray.sources.xml import local_name, stream_elements

HOLE = re.compile(r"(?<=[\w,;] |.[(\[\u201e\u201c\u00ab])\x02+(?=$|[ \w,.;:!?)\]\u201d\u00bb])")
SENTENCE = re.compile(r"[.!?\u3002\u0964\u061f](?=\s|$|[^\x00-\x7f])")
ALONE_IN_BRACKETS = re.compile(
    r"(?<=[(\[\uff08,;:/])[ '\x02]*\x02[ '\x02]*(?=[)\]\uff09,;:/])(?=[^(\[\uff08]*[)\]\uff09])"
)
_SHOW_TEMPLATE = markup._SHOWN[Template]
OFFERED = re.compile("\x03[^\x03\x04]*\x04")


def measure(path: str) -> tuple[int, int, int, int]:
    """Sentences, holes without the rule, holes with it, and templates that the rule showed."""
    sentences = before = after = 0
    noted: Counter[str] = Counter()
    for text in _articles(path):
        try:
            lines = markup.rendered_lines(text, markup.Page())
        except (ParserError, RecursionError):
            continue
        for line in lines:
            bare = OFFERED.sub("\x02", line)
            if not any(map(str.isalpha, bare)):
                continue
            sentences += max(1, len(SENTENCE.findall(bare)))
            before += _holes(bare)
            after += _holes(markup.fill(line, noted))
    return sentences, before, after, noted[markup.SHOWN]


def _holes(line: str) -> int:
    return len(HOLE.findall(ALONE_IN_BRACKETS.sub("", line).rstrip(" '\x02")))


def _without_marks(node: Template, page: markup.Page) -> Iterator[str]:
    shown = "".join(_SHOW_TEMPLATE(node, page))
    yield "" if shown == html.HOLE else shown


def _articles(path: str) -> Iterator[str]:
    for page in stream_elements(Chunks(path), ("page",)):
        fields = {local_name(element): element.text or "" for element in page.iter()}
        if fields.get("ns", "0") == "0" and "redirect" not in fields:
            yield fields.get("text", "")


def main() -> None:
    """A line a dump."""
    sys.stdout.write(f"{'dump':<34}{'sentences':>10}{'holes per 1,000 before':>24}{'after':>8}{'shown':>8}" + "\n")
    if "--without-lists" in sys.argv:
        markup.words_of_template = lambda *_: None
    if "--marks" not in sys.argv:
        markup._SHOWN[Template] = _without_marks
    for path in (argument for argument in sys.argv[1:] if not argument.startswith("--")):
        sentences, before, after, shown = measure(path)
        scale = 1000 / max(sentences, 1)
        sys.stdout.write(
            f"{Path(path).name[:33]:<34}{sentences:>10,}{before * scale:>24.2f}{after * scale:>8.2f}{shown:>8,}" + "\n"
        )


if __name__ == "__main__":
    main()
