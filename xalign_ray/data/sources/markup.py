"""Turns MediaWiki markup into the paragraphs that a reader sees, without what is not running text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.parser import ParserError

from xalign_ray.data.sources.quotes import drop_quotes
from xalign_ray.data.sources.templates import knows_template, running_text, words_of_template

_HIDDEN_NAMESPACES = frozenset({"file", "image", "media", "category"})  # these work in every wiki
_FILE_NAME = re.compile(r"\.(jpe?g|png|svg|gif|tiff?|webp|xcf|pdf|djvu|og[gav]|opus|webm|mp3|wav|flac|midi?)$", re.I)
_INTERWIKI = re.compile(r"[a-z]{2,3}(-[a-z]+)*|simple")

# fmt: off
_DROPPED_TAGS = frozenset({
    "ref", "references", "table", "gallery", "timeline", "imagemap", "math", "chem", "ce", "score", "graph", "mapframe",
    "maplink", "hiero", "syntaxhighlight", "source", "pre", "templatestyles", "style", "script", "includeonly",
    "inputbox", "categorytree", "charinsert", "indicator",
})
_BLOCK_TAGS = frozenset({
    "p", "div", "blockquote", "poem", "br", "hr", "li", "dt", "dd", "ul", "ol", "dl", "center",
    "h1", "h2", "h3", "h4", "h5", "h6",
})
# fmt: on

_COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.S)
_LONE_NAMESPACE_LINKS = re.compile(r"^(?:[ \t]*\[\[[^\[\]|:\n]+:[^\s\[\]][^\[\]\n]*\]\])+[ \t]*$", re.M)
_VARIANTS = re.compile(r"-\{([^{}]*)\}-")
_BEHAVIOUR = re.compile(r"__[A-Z]+__")
_LEADING_HOLE = re.compile(r"^[\s,;:)\u3001\uff0c\uff09]+(?=[^\s)])")  # but not of a smiley, or what is nothing else
_BEFORE_STOP = re.compile(r"\s*[,;](?:\s*[,;])*\s*\.(?=\s|$)")  # "for example {{math|x}}, {{math|y}}."
_EMPTY_BRACKETS = re.compile(r"\s*[(\[\uff08][\s,;:/\u00b7\u3001\uff0c\u2013\u2014-]*[)\]\uff09]")
_OPENING_HOLE = re.compile(r"([(\uff08])[\s,;:\u3001\uff0c]+")
_CLOSING_HOLE = re.compile(r"[\s,;:\u3001\uff0c]+([)\uff09])")
_SPACED = re.compile(r"\s+([,.)\u3001\u3002\uff0c])(?=\s|$)")
_DOUBLED = re.compile(r"([,\u3001\uff0c\u060c])(\s*\1)+")
_BLANKS = re.compile(r"[^\S\n]+")
_TABLE_LINE = re.compile(r"\s*(\{\||\|\}|\|-|[|!]|\}\})")
# No XML holds these. A hole keeps the quote marks around what is dropped apart; between _OPEN and _CLOSE stands what a
# template that no list knows would show inside a sentence.
_HEADING, _HOLE, _OPEN, _CLOSE = "\x01", "\x02", "\x03", "\x04"
_OFFERED = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_ENDS_SENTENCE = (".", "!", "?", "\u3002", "\u0964", "\u061f", "\u06d4", ":", ";", ",", "\u060c", "\u3001", "\uff0c")
MAX_OPEN = 1000  # marks that are open at once: the parser's time grows with their square
_PAIRED = re.compile(r"\{\{|\}\}|[\[\]]|</?[A-Za-z][^<>]*>")
_NEVER_CLOSED = re.compile(r"<(br|hr|wbr|li|dt|dd|p|tr|td|th)\b|.*/>", re.I | re.S)


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    level: int  # 0 is text, 1-6 a heading


@dataclass(slots=True)
class Templates:
    """How often a template that no list knows stood inside a sentence."""

    shown: int = 0  # by its first argument that is running text
    left_out: int = 0  # a hole, or a mark such as a footnote


def read_paragraphs(
    markup: str, hidden: frozenset[str] = frozenset(), unknown: Templates | None = None
) -> tuple[str, ...]:
    """The paragraphs, list items and headings of an article, in order, one a string.

    Gone are templates (but for those of templates.py, and for the first argument that is running text of one inside a
    sentence), tables, references, formulas, files, categories, links to
    other languages, comments, and the headings under which nothing is left.

    Args:
      markup: the page's wikitext.
      hidden: the wiki's own lower-case names of the file and category namespaces; the English ones always count.
      unknown: receives counts of the templates inside sentences that no list knows.

    Raises:
      ParserError: more marks are open at once than any article has.
    """
    unknown = unknown or Templates()
    lines = [line for raw in rendered_lines(markup, hidden) if (line := _clean(fill(raw, unknown))).text]
    return tuple(line.text for line in _drop_empty_sections(lines))


def rendered_lines(markup: str, hidden: frozenset[str] = frozenset()) -> list[str]:
    """The lines of an article before templates that no list knows are filled in: what the bench of holes looks at."""
    _refuse_open_marks(markup)
    markup = _COMMENT.sub("", markup)
    markup = _LONE_NAMESPACE_LINKS.sub("", markup)
    markup = _VARIANTS.sub(_choose_variant, markup)
    code = mwparserfromhell.parse(markup, skip_style_tags=True)
    return "".join(_render(code.nodes, hidden | _HIDDEN_NAMESPACES)).split("\n")


def _refuse_open_marks(markup: str) -> None:
    opened = {"{": 0, "[": 0, "<": 0}
    for match in _PAIRED.finditer(markup):
        mark = match[0]
        if mark[0] in "}]" or mark.startswith("</"):
            kind = {"}": "{", "]": "["}.get(mark[0], "<")
            opened[kind] = max(0, opened[kind] - 1)
        elif not _NEVER_CLOSED.match(mark):
            opened[mark[0]] += 1
            if opened[mark[0]] > MAX_OPEN:
                raise ParserError(f"more than {MAX_OPEN} marks are open at once")


def fill(raw: str, unknown: Templates) -> str:
    """A line in which each template that no list knows shows what it offers where a word of the sentence is missing.

    That is where it stands apart from the word before it (in scripts with blanks), is not behind the sentence's end,
    and does not begin a line whose sentence begins behind it. A template alone on a line shows nothing.
    """
    if _OPEN not in raw:
        return raw
    parts = _OFFERED.split(raw)
    if not any(map(str.isalpha, "".join(parts[::2]))):
        return "".join(parts[::2])
    for place in range(1, len(parts), 2):
        shown = bool(parts[place]) and _lacks_a_word(parts[place - 1], parts[place + 1], place == 1)
        unknown.shown += shown
        unknown.left_out += not shown
        parts[place] = parts[place] if shown else _HOLE
    return "".join(parts)


def _lacks_a_word(before: str, after: str, first: bool) -> bool:
    """Whether a word of the sentence is missing between two pieces of a line."""
    before, after = before.replace(_HOLE, ""), after.replace(_HOLE, "")
    if not before.strip(" *#:'"):
        return first and (after.lstrip(" '")[:1].islower() or after.lstrip(" '")[:1] in (",", "("))
    if before.rstrip(" '").endswith(_ENDS_SENTENCE) and not any(map(str.isalpha, after)):
        return False
    last = before.rstrip("'")[-1:]
    return _without_blanks(last) or not (last.isalnum() or last in _ENDS_SENTENCE)


def _without_blanks(letter: str) -> bool:
    """Whether a letter is of a script that puts no blanks between words."""
    return unicodedata.name(letter, "").startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"))


def _choose_variant(match: re.Match[str]) -> str:
    """What `-{zh-hans:A; zh-hant:B}-` shows, the first variant, and `-{A}-`, A; rules (`-{H|..}-`) show nothing."""
    flags, bar, rule = match[1].rpartition("|")
    if bar and flags.strip() not in ("", "zh-hans", "zh-hant"):
        return ""
    first = rule.split(";")[0]
    return first.partition(":")[2].strip() if ":" in first else first


def _render(nodes: Iterable[Node], hidden: frozenset[str]) -> Iterator[str]:
    for node in nodes:
        if shown := _SHOWN.get(type(node)):
            yield from shown(node, hidden)


def _show_text(node: Text, _: frozenset[str]) -> Iterator[str]:
    yield node.value


def _show_entity(node: HTMLEntity, _: frozenset[str]) -> Iterator[str]:
    mark = node.normalize()
    if unicodedata.category(mark) not in ("Cc", "Cs"):  # a half surrogate pair would fit in no file
        yield mark


def _show_template(node: Template, hidden: frozenset[str]) -> Iterator[str]:
    shown = [value for value in node.params if not value.showkey]
    shown = shown or [value for value in node.params if str(value.name).strip().lower() == "text"]  # {{quote|text=..}}
    values = [_OFFERED.sub(r"\1", "".join(_render(value.value.nodes, hidden))) for value in shown]
    name = str(node.name)
    if knows_template(name) or not values:
        yield words_of_template(name, values) or _HOLE
    else:
        yield f"{_OPEN}{running_text(name, values)}{_CLOSE}"


def _show_heading(node: Heading, hidden: frozenset[str]) -> Iterator[str]:
    yield f"\n{_HEADING}{node.level}"
    yield from _render(node.title.nodes, hidden)
    yield "\n"


def _show_tag(node: Tag, hidden: frozenset[str]) -> Iterator[str]:
    name = str(node.tag).strip().lower()
    if name in _DROPPED_TAGS:
        return
    border = "\n" if name in _BLOCK_TAGS else ""
    yield border
    if node.contents:
        yield from _render(node.contents.nodes, hidden)
        yield border


def _show_external_link(node: ExternalLink, hidden: frozenset[str]) -> Iterator[str]:
    if node.title:
        yield from _render(node.title.nodes, hidden)


def _show_wikilink(node: Wikilink, hidden: frozenset[str]) -> Iterator[str]:
    title = str(node.title).strip()
    prefix, colon, _ = title.partition(":")
    if prefix and colon and _is_invisible(prefix.strip(), title, hidden):
        return
    if node.text is None:
        yield "".join(_render(node.title.nodes, hidden)).strip().lstrip(":")
    else:
        yield from _render(node.text.nodes, hidden)


def _is_invisible(prefix: str, title: str, hidden: frozenset[str]) -> bool:
    """Whether a link is to a file, a category or the same article in another language."""
    return prefix.lower() in hidden or bool(_FILE_NAME.search(title) or _INTERWIKI.fullmatch(prefix))


# Node types that are not here (arguments of templates, comments) show nothing.
_SHOWN: dict[type, Callable[..., Iterator[str]]] = {
    Text: _show_text,
    HTMLEntity: _show_entity,
    Heading: _show_heading,
    Template: _show_template,
    Tag: _show_tag,
    ExternalLink: _show_external_link,
    Wikilink: _show_wikilink,
}


def _clean(raw: str) -> _Line:
    """One line without left-over marks, holes where a template stood, and odd blanks."""
    level = int(raw[1]) if raw.startswith(_HEADING) else 0
    text = raw[2:] if level else raw
    if _TABLE_LINE.match(text.lstrip(_HOLE)):
        return _Line("", level)
    text = drop_quotes(_BEHAVIOUR.sub("", text)).replace(_HOLE, "")
    text = _EMPTY_BRACKETS.sub("", _CLOSING_HOLE.sub(r"\1", _OPENING_HOLE.sub(r"\1", text)))
    text = _DOUBLED.sub(r"\1", _SPACED.sub(r"\1", _BLANKS.sub(" ", text)))
    text = _LEADING_HOLE.sub("", _BEFORE_STOP.sub(".", text)).strip()
    return _Line(text if any(mark.isalpha() for mark in text) else "", level)


def _drop_empty_sections(lines: Iterable[_Line]) -> list[_Line]:
    """Without the headings that no text follows before the next heading of the same or a higher level."""
    kept: list[_Line] = []
    for line in lines:
        if line.level:
            while kept and kept[-1].level >= line.level:
                kept.pop()
        kept.append(line)
    while kept and kept[-1].level:
        kept.pop()
    return kept
