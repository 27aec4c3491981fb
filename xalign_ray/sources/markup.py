"""MediaWiki markup to the paragraphs of running text that a reader sees."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from html import unescape
from importlib.metadata import version

import mwparserfromhell
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Template, Text, Wikilink
from mwparserfromhell.nodes.extras import Parameter
from mwparserfromhell.parser import ParserError

from xalign_ray.sources.html import (
    BREAK,
    HOLE,
    LEVEL,
    LOWERED,
    RAISED,
    UNKNOWN,
    drop_html,
    write_levels,
)
from xalign_ray.sources.templates import Arguments, is_mark, is_number, plain_name, words_of_template

# Language converter markup: `-{zh-hans:..; zh-hant:..}-`, which MediaWiki shows in one of several scripts.

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


# Takes MediaWiki's bold and italic marks off a line, and leaves the apostrophes that a reader sees.

_RUN = re.compile(r"'{2,}")


def drop_quotes(line: str) -> str:
    """The line without runs of apostrophes that are marks.

    As MediaWiki reads them (Parser::handleAllQuotes): two are italic, three bold, five both; of four the first is an
    apostrophe, and so are those before the last five of more. If a line opens as much bold as italic without closing
    either, one run of three is an apostrophe and italic: after a word of one letter if there is one (French
    l'''Histoire''), else after a longer word, else after a blank.
    """
    runs = list(_RUN.finditer(line))
    if not runs:
        return line
    lengths = [len(run[0]) for run in runs]
    left = [1 if length == 4 else max(0, length - 5) for length in lengths]
    marks = [length - left for length, left in zip(lengths, left, strict=True)]
    bold = sum(mark in (3, 5) for mark in marks)
    italic = sum(mark in (2, 5) for mark in marks)
    if bold % 2 and italic % 2:
        threes = [number for number, mark in enumerate(marks) if mark == 3]
        if threes:
            left[min(threes, key=lambda number: (_place(line, runs[number].start()), number))] += 1
    kept = iter(left)
    return _RUN.sub(lambda _: "'" * next(kept), line)


def _place(line: str, start: int) -> int:
    """How likely an apostrophe stands there: 0 after a word of one letter, 1 after a longer one, 2 after a blank."""
    before, last = line[:start][-2:-1], line[:start][-1:]
    if not last.strip():
        return 2
    return 0 if before == " " else 1


_HIDDEN_NAMESPACES = frozenset({"file", "image", "category"})  # these work in every wiki
# A link to the same article in another language: `[[zh-min-nan:X]]`, but not `[[doi:10.1/182|the DOI]]`.
_OTHER_LANGUAGE = re.compile(r"(?:[a-z]{2,3}(?:-[a-z-]+)?|simple):\S.*", re.I)
_FILE_NAME = re.compile(r"\.(jpe?g|png|svg|gif|tiff?|webp|xcf|pdf|djvu|og[gav]|opus|webm|mp3|wav|flac|midi?)$", re.I)
COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.S)
_LONE_NAMESPACE_LINKS = re.compile(r"^(?:[ \t]*\[\[[^\[\]|:\n]+:[^\s\[\]][^\[\]\n]*\]\])+[ \t]*$", re.M)
_SWITCHES = re.compile(r"^[ \t]*(?:__[^\s_]+(?:_[^\s_]+)*__[ \t]*)+$", re.M)  # __TOC__ in a wiki's language
_DIRECTIONS = re.compile("[\u200e\u200f\u202a-\u202e]")  # MediaWiki takes them out of titles
_CALL = re.compile(r"(?<=\w)(?:\(\)|\[\])")  # main(), int[]: empty brackets in the source
_BEHAVIOUR = re.compile(r"__[A-Z]+__")
_LEADING_HOLE = re.compile(r"^[\s,;:)\u3001\uff0c\uff09]+(?=[^\s)])")  # but not of a smiley, or of a line without more
_BEFORE_STOP = re.compile(r"\s*[,;](?:\s*[,;])*\s*\.(?=\s|$)")  # "for example {{math|x}}, {{math|y}}."
_EMPTY_BRACKETS = re.compile(r"\s*[(\[\uff08][\s,;:/\u00b7\u3001\uff0c\u2013\u2014-]*[)\]\uff09]")
_OPENING_HOLE = re.compile(r"([(\uff08])[\s,;:\u3001\uff0c]+")
_CLOSING_HOLE = re.compile(r"[\s,;:\u3001\uff0c]+([)\uff09])")
_SPACED = re.compile(r"\s+([,.)\u3001\u3002\uff0c])(?=\s|$)")
_DOUBLED = re.compile(r"([,;\u3001\uff0c\u060c\uff1b])(\s*\1)+")
_BLANKS = re.compile(r"[^\S\n]{2,}|[^\S\n ]")  # but a single blank, which stays
_STOP = re.compile(r"[,;]\s*\.")  # most lines have none, so that _BEFORE_STOP is not asked
_TABLE_LINE = re.compile(r"\s*(\{\||\|\}|\||!(?=[ \t]|.*(\|\||!!|\w=))|\}\})")  # but not "!Kung"
_HEADING = "\x01"  # no XML holds it
_CALLED = "\x10"  # nor this: between brackets that are empty in the source
POWER = "\x11"  # as UNKNOWN, of a template that is given a number, which behind a digit is a power
_TEMPLATE = re.compile(f"[{UNKNOWN}{POWER}](?:[{HOLE}{UNKNOWN}{POWER}]*[{UNKNOWN}{POWER}])?")
_STYLE = re.compile(f"'{{2,}}|[{HOLE}{RAISED}{LOWERED}{LEVEL}]")
_LIST_MARKS = re.compile(rf"(?:{_HEADING}\d)?[\s*#:'{HOLE}{UNKNOWN}{POWER}]*")
_CONTEXT = 40  # characters around a template that tell what stands there
_NUMBER_END = re.compile(r"\d[.,]?\Z")
_JOINED_WORD = re.compile(r"(?<!\w)[\u05d0-\u06ff]{1,2}\Z")  # Arabic and Hebrew: written as one with the next word
_BRACKETED = re.compile(r"[(\[\uff08][^()\[\]\uff08\uff09]*[)\]\uff09]")
_ELEMENTS = re.compile(r"[,;:/\u060c\u061b\u3001\uff0c\uff1b]|\s[\u2013\u2014-]\s")
# Where a sentence surely ends: at a mark that has no other use, or at a stop behind a word that is no abbreviation.
_SENTENCE_END = re.compile(
    r"(?:[!?\u3002\uff01\uff1f\u0964\u0965\u061f\u06d4\u0589\u1362\u104b\u17d4]|(?<=[^\W\d_]{4})[.\u2026])"
    rf"[\"'\u201d\u00bb\u300d\u300f)\uff09\]{HOLE}]*(?:\s+|(?<=[\u3002\uff01\uff1f]))"
)
_ENDS_SENTENCE = (".", "!", "?", "\u3002", "\u0964", "\u061f", "\u06d4")
_CLOSING = frozenset(":;,\u060c\uff0c\uff1b)]%\u00bb\u201d\uff09\u300d\u300f").union(
    _ENDS_SENTENCE
)  # before a footnote
LEFT_OUT = "templates and formulas left out of a sentence"
FOOTNOTES = "templates that no list knows, taken for footnotes"
SENTENCES = "sentences left out, in which a word would be missing"
BRACKETS = "brackets left out, in which a word would be missing"
STRAY_ROWS = "lines of tables outside a table, left out"
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)")
_POINTER = re.compile(r"://|\.(jpe?g|png|svg|gif|tiff?|og[gav]|webm|mp3|wav|mid|pdf)\s*[|}]", re.I)
_MAX_ARGUMENTS = 50
MAX_OPEN = 1000  # marks that are open at once: the parser's time grows with their square
_PAIRED = re.compile(r"\{\{|\}\}|[\[\]]|</?[^\s<>/!][^<>]*>?")
_NEVERCLOSED = re.compile(r"<(br|hr|wbr|li|dt|dd|p|tr|td|th)\b|.*/>", re.I | re.S)


# Markup that is left in the text, by the name under which it is counted.
_RESIDUE = {
    "HTML": re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>"),
    "[[": re.compile(r"\[\[|\]\]"),
    "{{": re.compile(r"\{\{|\}\}"),
    "{|": re.compile(r"\{\||\|\}|\|-"),
}
_ANY_RESIDUE = re.compile(r"[<{}]|\[\[|\]\]|\|-")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    level: int  # 0 is text, 1-6 a heading


@dataclass(frozen=True, slots=True)
class Page:
    """Settings for a page's markup.

    Args:
      hidden: the wiki's own lower-case names of the file and category namespaces; the English ones always count.
      media: names of the media namespace; `media` always counts.
      language: the wiki's.
      title: the page's, which `{{PAGENAME}}` shows.
      noted: receives counts of text that is left out or kept differently from the page.
    """

    hidden: frozenset[str] = frozenset()
    media: frozenset[str] = frozenset()
    language: str = "en"
    title: str = ""
    noted: Counter[str] = field(default_factory=Counter)


def read_paragraphs(markup: str, page: Page | None = None) -> tuple[str, ...]:
    """The paragraphs, list items and headings of an article, in order, one a string.

    Gone are templates but for the words of those that templates.py lists, the sentences in which a word of a template
    is missing, tables, references, formulas, files, categories, links to other languages, comments, and the headings
    under which nothing is left.

    Raises:
      ParserError: more marks are open at once than any article has.
    """
    page = page or Page()
    _refuse_open_marks(markup)
    markup = drop_html(COMMENT.sub("", markup), page.noted)
    markup = choose_variants(_SWITCHES.sub("", _LONE_NAMESPACE_LINKS.sub("", markup)))
    code = mwparserfromhell.parse(markup, skip_style_tags=True)
    raw_lines = "".join(_render(code.nodes, page)).replace(BREAK, "\n").split("\n")
    lines = [
        line
        for raw in raw_lines
        if (line := _clean(_whole_sentences(_settle(raw, page.noted), page.noted), page.noted)).text
    ]
    texts = tuple(line.text for line in _drop_empty_sections(lines))
    _count_residue("\n".join(texts), page.noted)
    return texts


def _count_residue(text: str, noted: Counter[str]) -> None:
    if _ANY_RESIDUE.search(text):
        for name, marks in _RESIDUE.items():
            noted[f"markup left in the text: {name}"] += len(marks.findall(text))


def _refuse_open_marks(markup: str) -> None:
    opened = Counter[str]()
    for match in _PAIRED.finditer(markup):
        mark, kind = match[0], {"}": "{", "]": "["}.get(match[0][0], match[0][0])
        if kind == "<" and mark[-1] != ">":
            kind = "tag that lacks its end"  # which nothing closes
        elif mark[0] in "}]" or mark.startswith("</"):
            opened[kind] = max(0, opened[kind] - 1)
            continue
        elif _NEVERCLOSED.match(mark):
            continue
        opened[kind] += 1
        if opened[kind] > MAX_OPEN:
            raise ParserError(f"more than {MAX_OPEN} marks are open at once")


def _settle(line: str, noted: Counter[str]) -> str:
    """A line in which UNKNOWN and POWER stay only where a word of the sentence is missing.

    No word is missing where a template stands like a footnote (directly behind a word, number or stop, before a blank
    or a mark), between two sentences, or at a line's begin or end. A number behind a digit is a power: 10{{hoch|6}}.
    """
    if UNKNOWN not in line and POWER not in line:
        return line
    begin = _LIST_MARKS.match(line).end()  # pyright: ignore[reportOptionalMemberAccess] - it may be empty

    def settle(unknown: re.Match[str]) -> str:
        before = _STYLE.sub("", line[max(begin, unknown.start() - _CONTEXT) : unknown.start()])
        after = _STYLE.sub("", line[unknown.end() : unknown.end() + _CONTEXT])
        if _lacks_a_word(before, after, unknown[0]):
            noted[LEFT_OUT] += 1
            return UNKNOWN
        noted[FOOTNOTES] += bool(before)
        return HOLE

    return _TEMPLATE.sub(settle, line)


def _lacks_a_word(before: str, after: str, template: str) -> bool:
    """Whether a word of the sentence is missing between two pieces of a line."""
    following = after.lstrip()[:1]
    if not before:
        return following.islower() or following in tuple(",;(")
    if POWER in template and _NUMBER_END.search(before):
        return True
    is_word = before[-1].isalnum() and not _without_blanks(before[-1]) and not _JOINED_WORD.search(before)
    if (is_word or before[-1] in _CLOSING) and not after[:1].isalnum():
        return False
    is_between = before.rstrip().endswith(_ENDS_SENTENCE) and following.isupper()
    return bool(following) and not is_between


def _whole_sentences(line: str, noted: Counter[str]) -> str:
    """A line without the sentences, and the pairs of brackets, in which a word is missing."""
    if UNKNOWN not in line:
        return line
    line = _BRACKETED.sub(lambda match: _whole_elements(match, noted), line)
    if UNKNOWN not in line:
        return line
    ends = [match.end() for match in _SENTENCE_END.finditer(line) if not line[match.end() : match.end() + 1].islower()]
    borders = [0, *ends, len(line)]
    sentences = [line[start:end] for start, end in itertools.pairwise(borders)]
    complete = [sentence for sentence in sentences if UNKNOWN not in sentence]
    noted[SENTENCES] += len(sentences) - len(complete)
    return "".join(complete)


def _whole_elements(found: re.Match[str], noted: Counter[str]) -> str:
    """A pair of brackets without the elements that show nothing; none of it where an element lacks one of its words."""
    lacking = [element for element in _ELEMENTS.split(found[0][1:-1]) if UNKNOWN in element]
    if any(element.strip(f" '{HOLE}{UNKNOWN}") for element in lacking):
        noted[BRACKETS] += 1
        return HOLE
    return found[0].replace(UNKNOWN, HOLE)


def _without_blanks(letter: str) -> bool:
    """Whether a letter is of a script that puts no blanks between words."""
    return unicodedata.name(letter, "").startswith(("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"))


def _render(nodes: Iterable[Node], page: Page) -> Iterator[str]:
    for node in nodes:
        if shown := _SHOWN.get(type(node)):
            yield from shown(node, page)


def _show_text(node: Text, _: Page) -> Iterator[str]:
    yield node.value


def _show_entity(node: HTMLEntity, _: Page) -> Iterator[str]:
    """The character; a blank for control characters and for half a surrogate pair, which fits in no file."""
    mark = node.normalize()
    if "\x80" <= mark <= "\x9f":  # by the HTML standard these are windows-1252: `1914&#150;18` has a dash
        mark = unescape(str(node))
    yield " " if unicodedata.category(mark) in ("Cc", "Cs") else mark


def _show_template(node: Template, page: Page) -> Iterator[str]:
    name = plain_name(str(node.name))
    if is_mark(name):
        yield HOLE
        return
    if ":" in name:  # formatnum:{{..}}
        name = "".join(_render(node.name.nodes, page)).strip().lower()
    if words := words_of_template(name, _arguments(node, page), page.title):
        yield words
    elif _is_reference(node):
        yield HOLE
    else:
        yield POWER if node.params and is_number(str(node.params[0].value).strip()) else UNKNOWN


def _is_reference(node: Template) -> bool:
    """Whether a template holds a URL or a file, or nothing but dates by name, as the marks of a page's writers do."""
    dates = (param.showkey and _YEAR.search(str(param.value)) for param in node.params)
    return bool(_POINTER.search(str(node))) or (bool(node.params) and all(dates))


def _arguments(node: Template, page: Page) -> Arguments:
    """The arguments of a template by their number, whether it is written or not, from 1 on."""
    numbered, named, count = {}, {}, 0
    for param in node.params:
        if param.showkey:
            name = str(param.name).strip()
            named[name.lower()] = param
        else:
            count += 1
            name = str(count)
        if name.isdecimal() and 0 < int(name) <= _MAX_ARGUMENTS:
            numbered[int(name)] = param

    def render(param: Parameter | None) -> str:
        return "".join(_render(param.value.nodes, page)).replace(HOLE, "").strip() if param else ""

    values = [render(numbered.get(at)) for at in range(1, max(numbered, default=0) + 1)]
    return Arguments(values, lambda name: render(named.get(name)))


def _show_heading(node: Heading, page: Page) -> Iterator[str]:
    yield f"\n{_HEADING}{node.level}"
    yield "".join(_render(node.title.nodes, page)).replace(BREAK, " ")
    yield "\n"


def _show_tag(node: Tag, page: Page) -> Iterator[str]:
    """A list's mark, a line across, `<nowiki>`, or text that is no HTML; a table that began within a line goes."""
    if str(node.tag) == "table":
        return
    border = "\n" if str(node.tag) in ("li", "dt", "dd", "hr") else ""
    yield border
    if node.contents:
        yield from _render(node.contents.nodes, page)
        yield border


def _show_external_link(node: ExternalLink, page: Page) -> Iterator[str]:
    if node.title:
        yield from _render(node.title.nodes, page)


def _show_wikilink(node: Wikilink, page: Page) -> Iterator[str]:
    """The label, or the title of a link without one; nothing of a file, a category or another language.

    Of `[[Media:x.ogg|the anthem]]` and of a link with the wiki's own language code only the label is text.
    """
    title = _DIRECTIONS.sub("", str(node.title)).replace("_", " ").strip()
    prefix, colon, _ = title.partition(":")
    prefix = prefix.strip().lower() if colon else ""
    is_here = prefix in ("media", page.language) or prefix in page.media
    if prefix in page.hidden or prefix in _HIDDEN_NAMESPACES or (prefix and not is_here and _FILE_NAME.search(title)):
        return
    if node.text is None and (is_here or _OTHER_LANGUAGE.fullmatch(title)):
        return
    if node.text is None:
        yield "".join(_render(node.title.nodes, page)).strip().lstrip(":")
    else:
        yield from _render(node.text.nodes, page)


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


def _clean(raw: str, noted: Counter[str]) -> _Line:
    """One line without left-over marks, holes where a template stood, and odd blanks."""
    level = int(raw[1]) if raw.startswith(_HEADING) else 0
    text = raw[2:] if level else raw
    if not any(map(str.isalpha, text)):
        return _Line("", level)
    if _TABLE_LINE.match(text.lstrip(HOLE)):
        noted[STRAY_ROWS] += 1
        return _Line("", level)
    if "()" in text or "[]" in text:
        text = _CALL.sub(lambda call: f"{call[0][0]}{_CALLED}{call[0][1]}", text)
    text = _BEHAVIOUR.sub("", text) if "__" in text else text
    text = _BLANKS.sub(" ", drop_quotes(write_levels(text)).replace(HOLE, ""))
    if any(bracket in text for bracket in "([)\uff08\uff09"):
        text = _EMPTY_BRACKETS.sub("", _CLOSING_HOLE.sub(r"\1", _OPENING_HOLE.sub(r"\1", text)))
    text = _DOUBLED.sub(r"\1", _SPACED.sub(r"\1", text))
    text = _BEFORE_STOP.sub(".", text) if _STOP.search(text) else text
    text = _LEADING_HOLE.sub("", text).replace(_CALLED, "").strip()
    return _Line(text if any(mark.isalpha() for mark in text) else "", level)


def _drop_empty_sections(lines: Iterable[_Line]) -> list[_Line]:
    """Without the headings that no text follows before the next heading of the same or a higher level."""
    remaining: list[_Line] = []
    for line in lines:
        if line.level:
            while remaining and remaining[-1].level >= line.level:
                remaining.pop()
        remaining.append(line)
    while remaining and remaining[-1].level:
        remaining.pop()
    return remaining


def parser_version(format_: str) -> list[str]:
    """Further inputs of a format's text besides its files; most have none."""
    return ["mwparserfromhell", version("mwparserfromhell")] if format_ == "wikipedia" else []
