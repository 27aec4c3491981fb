"""Words that MediaWiki templates show in running text: by short lists, else by one rule.

The templates' own definitions are no way: they lie anywhere in a dump, whose parts are read apart from each other, and
most of those that hold words call Lua. A template that neither a list nor the rule can show whole shows nothing, and
its sentence is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from xalign_ray.sources.html import BREAK, EMPTY, HOLE, NUMBER


class Given(list[str]):
    """The positional arguments of a template, stripped; `named` renders a named one on request."""

    def __init__(self, values: list[str], named: Callable[[str], str]) -> None:
        super().__init__(values)
        self.named = named


_NUMBER = re.compile(r"[-\u2212+]?\d[\d.,\u00a0\u202f ]*")
_ROMAN = re.compile(r"[IVX]+|[IVXLC]{2,}")  # of centuries and kings
_UNIT = re.compile(r"[^\W\d_]+(/[^\W\d_]+)?[23\u00b2\u00b3]?")
_UNITS = {"C": "\u00b0C", "F": "\u00b0F", "sqmi": "sq mi", "sqkm": "km\u00b2"}
_SQUARE = str.maketrans("23", "\u00b2\u00b3")


def _measure(given: Given) -> str:
    """`convert|5|km|mi` is 5 km; nothing of ranges, powers and measures of several units."""
    number, unit, target = [*given[:3], "", ""][:3]
    if not (_NUMBER.fullmatch(number) and _UNIT.fullmatch(unit)) or is_number(target) or given.named("disp"):
        return ""
    return f"{number} {_UNITS.get(unit, unit.translate(_SQUARE))}"


def _second(given: Given) -> str:
    return given[1] if len(given) > 1 else given.named("text") or given.named("texte")


# fmt: off
# Quotations: inside a sentence they are part of it, on a line of their own a paragraph.
_QUOTATIONS = (
    "cita", "citazione", "cita\u00e7\u00e3o", "cita\u00e7\u00e3o2", "citaat", "citat", "cit\u00e1t", "cytat",
    "citacija", "citaci\u00f3n", "citaci\u00f3", "citatul", "zitat-de", "zitat-en", "sitaatti", "sitat",
    "id\u00e9zet", "kutipan", "petikan", "\u0446\u0438\u0442\u0430\u0442\u0430", "\u0446\u044b\u0442\u0430\u0442\u0430",
    "\u0446\u0438\u0442\u0430\u0442", "\u5f15\u7528", "\u5f15\u6587", "\uc778\uc6a9\ubb38",
    "\u0627\u0642\u062a\u0628\u0627\u0633", "\u05e6\u05d9\u05d8\u05d5\u05d8",
)
# By lower-case name.
_WORDS: dict[str, Callable[[Given], str]] = {
    **dict.fromkeys(("nowrap", "nobr", "small", "abbr", "tooltip", *_QUOTATIONS), lambda given: given[0]),
    **dict.fromkeys(("quote", "blockquote", "cquote", "citation bloc", "zitat"), lambda given: f"\n{given[0]}\n"),
    **dict.fromkeys(("lang", "langue", "en langue", "langx", "script"), _second),
    **dict.fromkeys(("transl", "translit", "transliteration"), lambda given: given[-1] if len(given) > 1 else ""),
    **dict.fromkeys(("convert", "cvt"), _measure),
    "le": lambda given: given[2] if len(given) > 2 and given[2] else given[0],  # local title|foreign title|label
    "tsl": lambda given: next(filter(None, reversed(given[1:4])), ""),  # en|foreign title|local title|label
    "music": lambda given: _SIGNS.get(given[0].lower(), ""),
    "sortname": lambda given: " ".join(given[:2]),
}
# What stands in the text where no argument is given.
_SIGNS = {
    "'": "'", "'s": "'s", "=": "=", "nbsp": " ", "spaces": " ", "space": " ", "thinsp": " ", "snd": " \u2013 ",
    "spnd": " \u2013 ", "spaced ndash": " \u2013 ", "ndash": "\u2013", "endash": "\u2013", "en dash": "\u2013",
    "mdash": "\u2014", "emdash": "\u2014", "em dash": "\u2014", "\u00b7": " \u00b7 ", "\u2022": " \u00b7 ",
    "dot": " \u00b7 ", "flat": "\u266d", "sharp": "\u266f", "natural": "\u266e", "times": "\u00d7", "minus": "\u2212",
    "degree": "\u00b0", "deg": "\u00b0", "prime": "\u2032", "pprime": "\u2033",
}
# Templates that show a mark, a box or nothing whatever they are given.
_MARKS = frozenset({
    "r", "rp", "ref", "refn", "note", "notetag", "cn", "fact", "citation needed", "source needed", "page needed",
    "clarify", "who", "when", "which", "by whom", "why", "vague", "dubious", "better source needed",
    "failed verification", "dead link", "webarchive", "flagicon", "flag icon", "coord", "anchor", "main", "see also",
    "further", "details", "about", "for", "other uses", "redirect", "hatnote", "audio", "listen", "doi", "oclc",
    "pmid", "portal", "commons", "commons category", "commonscat", "wiktionary", "wikiquote", "wikisource", "stub",
    "cite", "short description", "reflist", "clear", "-", "toc", "nowrap begin", "nowrap end", "wrap", "in lang",
    "subscription required", "refnest",
})
_MARK_FAMILIES = re.compile(
    r"cite [a-z ]+|sfn(p|m|mp|ref)?|harv(nb|txt|p|s|col|colnb|coltxt)?|efn(-[a-z]{2})?|"
    r"use [a-z]+ (dates|english|spelling)|[a-z]{2,3}[ -]icon|icon[ -][a-z]{2,3}|ref-[a-z]{2,3}|"
    r"(defaultsort|displaytitle|#tag):.*", re.S
)
# fmt: on
_OF_LANGUAGE = re.compile(r"(lang|link)-[a-z]{2,3}(-[a-z0-9]+)*")  # lang-de|Wort, link-en|word
_SOUNDS = re.compile(r"ipa(?P<pieces>c)?(-[a-z]{2,3}(-[a-z]+)?|-all)?|ipa ?s?link")
_NO_TEXT = re.compile(r"\S+://\S*|.*\.(jpe?g|png|svg|gif|tiff?|og[gav]|webm|mp3|wav|mid|pdf)", re.I | re.S)
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]+)*")  # of a language, if another argument is the word
_SENTENCE = re.compile(r"[^\n=|]{39,}[.!?\u2026\u3002\uff01\uff1f\u0964\u061f\u06d4][\"'\u201c\u201d\u00bb\u300d)]*")


def plain_name(written: str) -> str:
    """A template's name without blanks around it, underscores, and its namespace."""
    return written.strip().replace("_", " ").removeprefix("Template:").removeprefix("template:")


def is_mark(name: str) -> bool:
    """Whether a template is a footnote, flag, box or the like: no word is missing where it stands."""
    lowered = name.lower()
    return lowered in _MARKS or bool(_MARK_FAMILIES.fullmatch(lowered))


def is_number(text: str) -> bool:
    """Whether a text is a number in digits."""
    return bool(_NUMBER.fullmatch(text))


def is_sentence(text: str) -> bool:
    """Whether a template that stands alone was given running text, as quotations are."""
    return bool(_SENTENCE.fullmatch(text))


def words_of_template(name: str, given: Given, title: str = "") -> str | None:
    """The words of a listed template; empty if they are unknown, None for a template that no list has.

    Args:
      name: from plain_name, with a rendered argument in it (`formatnum:5`).
      given: its arguments.
      title: the page's.
    """
    lowered = name.lower()
    show = _WORDS.get(lowered) or ((lambda one: one[0]) if _OF_LANGUAGE.fullmatch(lowered) else None)
    if show:
        return show(given) if given else ""
    sign = _SIGNS.get(lowered, "")
    if sign and not (sign.strip() and any(given)):  # only blanks are given a number: `spaces|5`
        return sign
    function, colon, argument = lowered.partition(":")
    if colon and function.strip() == "formatnum":
        return argument.strip() if is_number(argument.strip()) else ""
    return title if lowered == "pagename" else None


def pronunciation(name: str, given: Given) -> str | None:
    """The sounds in an IPA template, empty if one is missing; None for any other template."""
    if not (kind := _SOUNDS.fullmatch(name.lower())):
        return None
    sounds = [text for text in given if text and EMPTY not in text]
    if kind["pieces"]:
        return "".join(sounds)
    return sounds[1] if len(sounds) > 1 and _CODE.fullmatch(sounds[0]) else next(iter(sounds), "")


def running_text(name: str, given: Given) -> str:
    """The first argument of a template that can stand in a sentence: no URL, file, language code or text of many lines.

    Empty for parser functions, for several texts that may all be codes (`xyz|en|cat`), and wherever an argument has a
    digit or is a Roman number, which may be part of a measure or a date. NUMBER where the first is a number.
    """
    if not name or ":" in name or "#" in name:
        return ""
    if any(char.isdigit() or char == NUMBER for char in "".join(given)) or any(map(_ROMAN.fullmatch, given)):
        return NUMBER if is_number(given[0]) else ""
    texts = [text.replace(EMPTY, HOLE) for text in given if _is_text(text)]
    words = [text for text in texts if not _CODE.fullmatch(text)]
    return words[0] if words else texts[0] if len(texts) == 1 else ""


def _is_text(value: str) -> bool:
    is_line = not any(mark in value for mark in ("\n", BREAK, "="))
    return any(map(str.isalpha, value)) and is_line and not _NO_TEXT.fullmatch(value)
