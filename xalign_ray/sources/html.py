"""Takes HTML, extension tags and tables out of wikitext before it is parsed.

MediaWiki closes what a page leaves open; the parser instead takes every open `<td>` for a level, and leaves what lies
over a hundred levels deep as raw markup. Here no tag needs its other half: a block tag is a line break, `<sup>` and
`<sub>` are marks, other HTML is nothing, and what is no running text (references, formulas, tables) goes whole.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator

# No XML holds these characters. BREAK ends a line but no heading, link or argument; text between RAISED or LOWERED and
# LEVEL stands above or below the line.
BREAK, RAISED, LOWERED, LEVEL = "\x05", "\x06", "\x07", "\x08"
UNKNOWN = "\x03"  # a template or formula stands here whose words are unknown
HOLE = "\x02"  # something is left out here that is no word; the quote marks around it stay apart
FORMULAS = "formulas left out"
UNCLOSED_TABLES = "tables that are never closed"
UNCLOSED_TAGS = "tags that are never closed, left out to the end of their line"

# fmt: off
_FORMULAS = frozenset({"math", "chem", "ce"})
_DROPPED = _FORMULAS | {
    "ref", "references", "gallery", "timeline", "imagemap", "score", "graph", "mapframe", "maplink", "hiero",
    "syntaxhighlight", "source", "pre", "templatestyles", "style", "script", "includeonly", "inputbox", "categorytree",
    "charinsert", "indicator", "templatedata",
}
_BLOCKS = frozenset({
    "p", "div", "blockquote", "poem", "br", "hr", "li", "dt", "dd", "ul", "ol", "dl", "center", "tr", "td", "th",
    "caption", "tbody", "thead", "tfoot", "colgroup", "col", "h1", "h2", "h3", "h4", "h5", "h6",
})
_INLINE = frozenset({
    "a", "abbr", "b", "bdi", "bdo", "big", "blink", "cite", "code", "data", "del", "dfn", "em", "font", "i", "ins",
    "kbd", "languages", "mark", "nobr", "noinclude", "noindex", "onlyinclude", "phonos", "rb", "rp", "rt", "rtc",
    "ruby", "s", "samp", "section", "small", "span", "strike", "strong", "time", "translate", "tt", "tvar", "u",
    "var", "wbr",
})
# fmt: on
_IN_PAIRS = """
    a abbr b big body br code dd div dl dt em font h1 h2 h3 h4 h5 h6 head hr html i img li ol p pre s script small span
    strike strong style sub sup table tbody td th tr tt u ul
"""
_NAMES = "|".join(_IN_PAIRS.split())
_MARKUP = re.compile(rf"(?i)</?({_NAMES})(\s[^<>]*)?/?>|&([a-z]{{2,8}}|#\d{{2,6}}|#x[0-9a-f]{{2,6}});")
_SHOWN = {
    **dict.fromkeys(_BLOCKS, (BREAK, BREAK)),
    **dict.fromkeys(_INLINE, ("", "")),
    "table": ("\n{|\n", "\n|}\n"),  # so that a table may begin as HTML and end as wikitext
    "q": ('"', '"'),
    "sup": (RAISED, LEVEL),
    "sub": (LOWERED, LEVEL),
}
_ENDS = {name: re.compile(rf"</\s*{name}\s*>", re.I) for name in (*_DROPPED, "nowiki")}
_PLAIN_FORMULA = re.compile(r"(?:[^\W_]|[\s.,+=()\u2212\u00b7\u00d7-]){1,40}")
_TAG = re.compile(r"<(/\s*)?([A-Za-z][A-Za-z0-9]*)(?=[\s/>\\])[^<>]*>")
_TABLE = re.compile(r"^[ \t:\x05]*\{\|(?![}|])|^[ \t\x05]*\|\}(?!\}(?!\}))", re.M)
_TABLE_ENDS = re.compile(r"^(?:==|\}\}|[ \t]*\n(?![ \t:]*[|!{\n]))|\Z", re.M)  # of a table that is never closed


def has_markup(text: str) -> bool:
    """Whether a text has a tag or an entity of HTML."""
    return ("<" in text or "&" in text) and bool(_MARKUP.search(text))


def drop_html(markup: str, noted: Counter[str]) -> str:
    """Wikitext without tags and tables; only `<nowiki>` and text that is no HTML stay for the parser."""
    if "<" in markup:
        markup = "".join(_without_tags(markup, noted))
    return "".join(_without_tables(markup, noted)) if "{|" in markup else markup


def _without_tags(markup: str, noted: Counter[str]) -> Iterator[str]:
    at = 0
    never_closed: set[str] = set()  # names that are closed nowhere behind: the rest of a page is searched once a name
    while tag := _TAG.search(markup, at):
        name = tag[2].lower()
        yield markup[at : tag.start()]
        at = tag.end()
        if name in _DROPPED or name == "nowiki":
            if tag[1] or tag[0].endswith("/>"):
                continue
            end = None if name in never_closed else _ENDS[name].search(markup, at)
            if name == "nowiki":
                yield f"<nowiki>{markup[at : end.start()]}</nowiki>" if end else ""
            if end:
                if name in _FORMULAS:
                    yield _formula(markup[at : end.start()], noted)
                at = end.end()
                continue
            never_closed.add(name)
            if name != "nowiki":
                noted[UNCLOSED_TAGS] += 1
                at = end if (end := markup.find("\n", at)) >= 0 else len(markup)
        elif name in _SHOWN:
            yield _SHOWN[name][bool(tag[1])]
        else:
            yield tag[0]
    yield markup[at:]


def _formula(text: str, noted: Counter[str]) -> str:
    """A formula's text inside a sentence: itself if it has letters, digits and signs alone."""
    if _PLAIN_FORMULA.fullmatch(text) and any(map(str.isalnum, text)):
        return text.strip()
    noted[FORMULAS] += 1
    return UNKNOWN


def _without_tables(markup: str, noted: Counter[str]) -> Iterator[str]:
    at = 0
    for start, end in _tables(markup, noted):
        if start >= at:
            yield markup[at:start]
        at = max(at, end)
    yield markup[at:]


def _tables(markup: str, noted: Counter[str]) -> list[tuple[int, int]]:
    """Where tables begin and end, in order. One that is never closed ends where text begins again."""
    opened: list[int] = []
    spans: list[tuple[int, int]] = []
    for mark in _TABLE.finditer(markup):
        if mark[0].endswith("{|"):
            opened.append(mark.start())
        elif opened:
            spans.append((opened.pop(), mark.end()))
    if opened:
        noted[UNCLOSED_TABLES] += len(opened)
        ends = [match.start() for match in _TABLE_ENDS.finditer(markup)]
        spans += [(start, ends[bisect(ends, start)]) for start in opened]
    return sorted(spans)


_FRACTION = re.compile(rf"(\d?){RAISED}(\d+){LEVEL}[/\u2044\u2215]{LOWERED}(\d+){LEVEL}")
_NO_LEVEL = f"[^{RAISED}{LOWERED}{LEVEL}]"
_LEVELS = re.compile(
    f"(?P<last>{_NO_LEVEL}?)(?P<quotes>'{{0,5}})(?P<way>[{RAISED}{LOWERED}])(?P<text>{_NO_LEVEL}*){LEVEL}"
    r"(?=(?P<next>\d?))"
)
_MAX_NESTED = 5  # levels around one: a loop of 1,000 over a long line would take minutes
_EXPONENT = re.compile(r"[-+\u2212\u2013]?[\dnkxyzijpqN]+(?:[-+\u2212/.,]\w+)*[-+\u2212]?|''\w+''(?:[-+\u2212]\w+)?")
_NUMBER = re.compile(r"\d|[-+\u2212\u2013]\w")
_DIGITS = str.maketrans("0123456789+-\u2212\u2013n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁻ⁿ")


def write_levels(line: str) -> str:
    """Raised or lowered text, written so that no number changes.

    Behind a digit an exponent is written `10^6` and an index `1010_2`: a raised digit character would be another number
    again after the NFKC of most tokenizers. Elsewhere digits are raised characters (km2 with a raised 2), and what is
    lowered stands on the line (H2O). Ordinals (1st) stay. A level that holds another is `10^(10^100)`.
    """
    if RAISED not in line and LOWERED not in line:
        return line.replace(LEVEL, "")  # of an end tag alone
    line = _FRACTION.sub(lambda found: f"{found[1]}{' ' if found[1] else ''}{found[2]}/{found[3]}", line)
    line = _LEVELS.sub(_write_level, line)
    for _ in range(_MAX_NESTED):  # the rest has another level
        line, count = _LEVELS.subn(_write_nested, line)
        if not count:
            break
    return re.sub(f"[{RAISED}{LOWERED}{LEVEL}]", "", line)


def _write_level(found: re.Match[str]) -> str:
    text, last = found["text"].strip(), found["last"]
    before = last + found["quotes"]
    apart = " " if found["next"] and text[-1:].isdigit() else ""  # log<sub>10</sub>5
    is_exponent = bool(_EXPONENT.fullmatch(text))
    joins_number = last.isdigit() and bool(_NUMBER.match(text))
    if found["way"] == LOWERED:
        return f"{before}{'_' if joins_number else ''}{text}{apart}"
    if joins_number or (is_exponent and (last.isdigit() or last in (")", "]"))):
        return f"{before}^{text}{apart}"
    return before + (text.translate(_DIGITS) if is_exponent and any(map(str.isdigit, text)) else text)


def _write_nested(found: re.Match[str]) -> str:
    text, last = found["text"].strip(), found["last"]
    if not (last.isalnum() or last in (")", "]")):
        return last + found["quotes"] + text
    return f"{last}{found['quotes']}{'_' if found['way'] == LOWERED else '^'}({text})"
