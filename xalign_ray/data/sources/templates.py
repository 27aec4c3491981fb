"""Says which words of a MediaWiki template stand in the running text: few have any, all others show nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_BETWEEN = {"to": "to", "-": "-", "\u2013": "-", "and": "and", "or": "or", "by": "by", "x": "x", "+/-": "\u00b1"}


def _first(values: Sequence[str]) -> str:
    return values[0]


def _second(values: Sequence[str]) -> str:
    return values[1] if len(values) > 1 else ""


def _last(values: Sequence[str]) -> str:
    return values[-1] if len(values) > 1 else ""


def _all(values: Sequence[str]) -> str:
    return " ".join(filter(None, values))


def _block(values: Sequence[str]) -> str:
    return f"\n{values[0]}\n"


def _measure(values: Sequence[str]) -> str:
    """`convert|5|km|mi` is 5 km, `convert|5|to|6|km` is 5 to 6 km: the value as written, without what is computed."""
    if len(values) > 3 and (word := _BETWEEN.get(values[1])):
        return f"{values[0]} {word} {values[2]} {values[3]}"
    return " ".join(values[:2])


def _as_of(values: Sequence[str]) -> str:
    return f"As of {' '.join(values)}"


# By lower-case name. The templates of the larger Wikipedias whose loss leaves a hole in a sentence.
_WORDS: dict[str, Callable[[Sequence[str]], str]] = {
    **dict.fromkeys(
        ["nowrap", "nobr", "small", "sc", "smallcaps", "nihongo", "abbr", "tooltip", "nq", "ill", "le", "lang-grc-gre"],
        _first,
    ),
    **dict.fromkeys(["lang", "tsl"], _second),
    **dict.fromkeys(["transl", "translit", "transliteration"], _last),
    **dict.fromkeys(["date", "date-", "date de naissance", "date de d\u00e9c\u00e8s", "unit\u00e9", "nombre"], _all),
    **dict.fromkeys(["quote", "blockquote", "quotation", "bq", "citation bloc"], _block),
    **dict.fromkeys(["convert", "cvt"], _measure),
    "as of": _as_of,
}
_PREFIXES = ("lang-", "link-")  # lang-de|Wort, link-en|word: written with the code of any language


def words_of_template(name: str, values: Sequence[str]) -> str:
    """What a template shows of its positional arguments in the running text; empty for most templates."""
    name = name.strip().replace("_", " ").lower()
    show = _WORDS.get(name) or (_first if name.startswith(_PREFIXES) else None)
    return show([value.strip() for value in values]) if show and values else ""
