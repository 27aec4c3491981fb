"""Words that MediaWiki templates show in running text, by short lists.

The templates' own definitions are no way: they lie anywhere in a dump, whose parts are read apart from each other, and
most of those that hold words call Lua. A template that no list knows is a hole, and its sentence is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_NUMBER = re.compile(r"[-\u2212+]?\d[\d.,\u00a0\u202f ]*")
_UNIT = re.compile(r"[^\W\d_]+(/[^\W\d_]+)?[23\u00b2\u00b3]?")
_UNITS = {"C": "\u00b0C", "F": "\u00b0F", "sqmi": "sq mi", "sqkm": "km\u00b2"}
_SQUARE = str.maketrans("23", "\u00b2\u00b3")


class Arguments(list[str]):
    """The positional arguments of a template, stripped; `named` renders a named one on request."""

    def __init__(self, values: list[str], named: Callable[[str], str]) -> None:
        super().__init__(values)
        self.named = named


def _measure(given: Arguments) -> str:
    """`convert|5|km|mi` is 5 km; nothing of ranges, powers and measures of several units."""
    number, unit, target = [*given[:3], "", "", ""][:3]
    if not (is_number(number) and _UNIT.fullmatch(unit)) or is_number(target) or given.named("disp"):
        return ""
    return f"{number} {_UNITS.get(unit, unit.translate(_SQUARE))}"


def _first(given: Arguments) -> str:
    return given[0] if given else next(filter(None, map(given.named, ("text", "quote", "content"))), "")


def _second(given: Arguments) -> str:
    return given[1] if len(given) > 1 else given.named("text") or given.named("texte")


# fmt: off
# Quotations: inside a sentence they are part of it, on a line of their own a paragraph.
_QUOTATIONS = (
    "cita", "citazione", "cita\u00e7\u00e3o", "citaat", "citat", "cit\u00e1t", "cytat", "citaci\u00f3n", "sitat",
    "id\u00e9zet", "\u0446\u0438\u0442\u0430\u0442\u0430", "\u0446\u044b\u0442\u0430\u0442\u0430", "\u5f15\u7528",
    "\uc778\uc6a9\ubb38", "\u0627\u0642\u062a\u0628\u0627\u0633", "\u05e6\u05d9\u05d8\u05d5\u05d8",
)
# By lower-case name. Four of these link to articles of other Wikipedias.
_WORDS: dict[str, Callable[[Arguments], str]] = {
    **dict.fromkeys(("nowrap", "nobr", "small", "abbr", "ill", "iw", "le", "\u043d\u043f5", *_QUOTATIONS), _first),
    **dict.fromkeys(("quote", "blockquote", "cquote", "citation bloc", "zitat"), lambda given: f"\n{_first(given)}\n"),
    **dict.fromkeys(("lang", "langue", "en langue", "langx", "script", "transl", "transliteration"), _second),
    **dict.fromkeys(("convert", "cvt"), _measure),
}
# What stands in the text where no argument is given.
_SIGNS = {
    "'": "'", "'s": "'s", "=": "=", "nbsp": " ", "spaces": " ", "snd": " \u2013 ", "spaced ndash": " \u2013 ",
    "ndash": "\u2013", "endash": "\u2013", "mdash": "\u2014", "emdash": "\u2014", "\u00b7": " \u00b7 ",
    "times": "\u00d7", "minus": "\u2212",
}
# Templates that show a mark, a box or nothing whatever they are given.
_MARKS = frozenset({
    "r", "rp", "ref", "refn", "note", "cn", "fact", "citation needed", "page needed", "clarify", "who", "when",
    "which", "dubious", "dead link", "webarchive", "flagicon", "coord", "anchor", "main", "see also", "further",
    "about", "for", "other uses", "redirect", "hatnote", "audio", "doi", "portal", "commons category", "stub", "cite",
    "short description", "reflist", "clear", "toc", "subscription required",
})
# fmt: on
_MARK_FAMILIES = re.compile(
    r"cite [a-z ]+|sfn(p|m|mp|ref)?|harv(nb|txt|p|s|col|colnb|coltxt)?|efn(-[a-z]{2})?|"
    r"use [a-z]+ (dates|english|spelling)|[a-z]{2,3}[ -]icon|icon[ -][a-z]{2,3}|ref-[a-z]{2,3}|"
    r"(defaultsort|displaytitle|#tag):.*",
    re.S,
)
_OF_LANGUAGE = re.compile(r"(lang|link)-[a-z]{2,3}(-[a-z0-9]+)*")  # lang-de|Wort, link-en|word


def plain_name(written: str) -> str:
    """A template's name in lower case, without blanks around it, underscores, and its namespace."""
    return written.strip().replace("_", " ").lower().removeprefix("template:")


def is_mark(name: str) -> bool:
    """Whether a template is a footnote, flag, box or the like: no word is missing where it stands."""
    return name in _MARKS or bool(_MARK_FAMILIES.fullmatch(name))


def is_number(text: str) -> bool:
    """Whether a text is a number in digits."""
    return bool(_NUMBER.fullmatch(text))


def words_of_template(name: str, given: Arguments, title: str = "") -> str:
    """The words that a template shows; empty if they are unknown.

    Args:
      name: from plain_name, with a rendered argument in it (`formatnum:5`).
      given: its arguments.
      title: the page's.
    """
    if show := _first if _OF_LANGUAGE.fullmatch(name) else _WORDS.get(name):
        return show(given)
    if name in _SIGNS and (name == "spaces" or not any(given)):
        return _SIGNS[name]
    function, _, argument = name.partition(":")
    if function.strip() == "formatnum":
        return argument.strip() if is_number(argument.strip()) else ""
    return title if name == "pagename" else ""
