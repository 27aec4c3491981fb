"""Says which words of a MediaWiki template stand in the running text: by lists, and by a rule for all others."""

from __future__ import annotations

import re
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


def _joined(values: Sequence[str]) -> str:
    return "".join(values)


def _second_or_first(values: Sequence[str]) -> str:
    return values[1] if len(values) > 1 and values[1] else values[0]


def _around(pattern: str) -> Callable[[Sequence[str]], str]:
    """The first argument in its place in a pattern."""
    return lambda values: pattern.format(values[0])


def _unit(values: Sequence[str]) -> str:
    """French `unite|9|km|2` is 9 km2, `unite|5|m|2|s|-1` is 5 m2 s-1: the value, then units with their exponents."""
    return " ".join([values[0], *("".join(values[at : at + 2]) for at in range(1, len(values), 2))])


def _fraction(values: Sequence[str]) -> str:
    return "/".join(values if len(values) > 1 else ("1", values[0]))


def _hour(values: Sequence[str]) -> str:
    return " h ".join(values[:2])


def _century(values: Sequence[str]) -> str:
    """French `s|XIX` is XIXe siecle; elsewhere `s` is a style."""
    return f"{values[0]}e si\u00e8cle" if _ROMAN.fullmatch(values[0]) else values[0]


def _as_of(values: Sequence[str]) -> str:
    return f"As of {' '.join(values)}"


# By lower-case name. The templates of the larger Wikipedias whose loss leaves a hole in a sentence.
_WORDS: dict[str, Callable[[Sequence[str]], str]] = {
    **dict.fromkeys(
        ["nowrap", "nobr", "small", "smaller", "big", "sc", "smallcaps", "sup", "sub", "linktext", "nihongo", "abbr"],
        _first,
    ),
    **dict.fromkeys(
        ["abbr", "tooltip", "nq", "ill", "le", "lang-grc-gre", "angbr", "vr", "val", "flag", "latin"], _first
    ),
    **dict.fromkeys(["souverain2", "\u0623\u0644\u0645\u0627\u0646\u064a\u0629", "karde\u015f \u015fehir"], _first),
    **dict.fromkeys(["lang", "tsl", "langue", "en langue"], _second),
    **dict.fromkeys(
        ["\u043d\u043f", "\u043d\u043f2", "\u043d\u043f3", "\u043d\u043f4", "\u043d\u043f5", "iw"], _second_or_first
    ),
    **dict.fromkeys(["transl", "translit", "transliteration"], _last),
    **dict.fromkeys(["date", "date-", "date de naissance", "date de d\u00e9c\u00e8s", "nombre", "tmp"], _all),
    **dict.fromkeys(["chem", "chem2"], _joined),
    **dict.fromkeys(["frac", "sfrac", "fraction"], _fraction),
    **dict.fromkeys(["s", "s-"], _century),
    **dict.fromkeys(["quote", "blockquote", "quotation", "bq", "citation bloc", "zitat"], _block),
    **dict.fromkeys(["convert", "cvt"], _measure),
    "unit\u00e9": _unit,
    "as of": _as_of,
    '"': _around("\u201e{}\u201c"),
    "citation": _around("\u00ab {} \u00bb"),
    "incise": _around("\u2013 {} \u2013"),
    "heure": _hour,
    "siglo": _around("siglo {}"),
    "h\u00f6he": _around("{} m"),
    "euro": _around("{} \u20ac"),
}
# What stands in the text where no argument is given.
_SIGNS: dict[str, str] = {
    "'": "'",
    "'s": "'s",
    **dict.fromkeys(["nbsp", "esd", "thinsp", "spaces", "space"], " "),
    **dict.fromkeys(["snd", "spnd", "spaced ndash"], " \u2013 "),
    "ndash": "\u2013",
    **dict.fromkeys(["mdash", "mdashb"], "\u2014"),
    "eqm": " = ",
}
_ROMAN = re.compile(r"[IVXLC]+")
# French numbers that are the name of their own template (1re, 84e, Ier, XXe siecle), and numbers to be formatted.
_SELF = re.compile(r"(?:\d+|[IVXLC]+)(?:er|re|e|d|nd|nde)(?: si\u00e8cle)?", re.IGNORECASE)
_NUMBER = re.compile(r"formatnum:\s*([\d.,]+)", re.IGNORECASE)
_PREFIXES = ("lang-", "link-")  # lang-de|Wort, link-en|word: written with the code of any language


# Templates that show a mark or nothing whatever they are given, under the names that most wikis have copied.
_MARKS = re.compile(
    r"(sfn|harv|r$|rp$|ref|efn|note|cit|cite|fact|cn$|flag|coord|anchor|clarify|who|when|where|which|by whom|dn$|main|"
    r"see|ipa|pron|"
    r"audio|listen|isbn|doi|issn|oclc|defaultsort|portal|commons|wiktionary|stub|short description|use |webarchive|"
    r"dead link|page needed|better source|verify|dubious|subst|safesubst)"
)
_NO_TEXT = re.compile(r"\S+://\S*|.*\.(jpe?g|png|svg|gif|tiff?|og[gav]|webm|mp3|wav|mid|pdf)", re.I | re.S)


_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]+)*")  # of a language, if another argument is the word


def knows_template(name: str) -> bool:
    """Whether a list says what a template shows."""
    written = name.strip().replace("_", " ")
    known = written.lower() in _WORDS or written.lower() in _SIGNS or written.lower().startswith(_PREFIXES)
    return known or bool(_NUMBER.fullmatch(written) or _SELF.fullmatch(written))


def running_text(name: str, values: Sequence[str]) -> str:
    """The first argument of a template that can stand in a sentence: no URL, file, language code or text of many lines.

    Empty for parser functions, and for marks such as footnotes and flags.
    """
    written = name.strip().replace("_", " ").lower()
    if not written or ":" in written or "#" in written or _MARKS.match(written):
        return ""
    texts = [text for value in values if _is_text(text := value.strip())]
    return next((text for text in texts if not _CODE.fullmatch(text)), texts[0] if texts else "")


def _is_text(value: str) -> bool:
    return any(map(str.isalnum, value)) and "\n" not in value and "=" not in value and not _NO_TEXT.fullmatch(value)


def words_of_template(name: str, values: Sequence[str]) -> str:
    """What a template that a list knows shows of its positional arguments; empty for one that shows nothing."""
    written = name.strip().replace("_", " ")
    name, values = written.lower(), [value.strip() for value in values]
    if number := _NUMBER.fullmatch(written):
        return number[1]
    if _SELF.fullmatch(written):
        return " ".join([written, *values[:1]])
    show = _WORDS.get(name) or (_first if name.startswith(_PREFIXES) else None)
    return show(values) if show and values else _SIGNS.get(name, "")
