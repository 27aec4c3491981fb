"""Reads running text: plain lines, where a blank one ends a document, and the sentences of CoNLL-U."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from xalign_ray.sources.open import BrokenFileError, Line, held_back, read_lines
from xalign_ray.sources.records import BadRow, Document, Part, Record, split_at_blank_lines

MAX_DOCUMENT_LINES = 10_000


def read_text(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Documents of a text file. If no blank line stands between its first 10,000 lines, each line is a document.

    A document of more than 10,000 lines is split after each 10,000, so that memory stays bounded. Of one that a broken
    file cuts in two, the lines before it are yielded.
    """
    (path,), (language,) = part.paths, languages
    borders = has_borders(path) if part.borders is None else part.borders
    limit = MAX_DOCUMENT_LINES if borders else 1
    pending: list[str] = []
    first = 0  # number of its first line
    broken: list[BrokenFileError] = []
    for line in held_back(read_lines(path, part.spans[0], part.first_line), broken):
        if line.fault:
            yield BadRow(path, line.number, line.fault)
            continue
        if text := line.text.strip():
            first = first if pending else line.number
            pending.append(text)
        if pending and (not text or len(pending) == limit):
            yield Document(language, tuple(pending), path, first)
            pending = []
    if pending:
        yield Document(language, tuple(pending), path, first)
    if broken:
        raise broken[0]


def has_borders(path: str) -> bool:
    """Whether a blank line stands between two lines of text among the first 10,000 lines of a file."""
    lines = held_back(read_lines(path), [])  # the error is raised where they are read as text
    kinds = [bool(line.fault or line.text.strip()) for line in islice(lines, MAX_DOCUMENT_LINES)]
    words = "".join("t" if is_text else "_" for is_text in kinds)
    return "_" in words.strip("_")


def split_text(format_: str, paths: Sequence[str]) -> list[Part]:
    """Parts that never split a document."""
    return split_at_blank_lines(format_, paths, has_borders)


# Reads CoNLL-U as text: the sentences of parsed corpora, as they were written before they were cut into words.

COLUMNS = 10
WITHHELD = "_"  # what stands for each word in treebanks whose text may not be given away
WITHHELD_WORDS = "the words are withheld (all are _): merge them with the treebank's script"
MERGE = "Merge them with the script that comes with the treebank, or leave these sentences out."
_TEXT, _NEW = "# text = ", "# newdoc"


def read_conllu(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Documents as `# newdoc` begins them, a sentence a paragraph; a file without it is a document a sentence.

    A sentence is its `# text`, or its words where that is missing, apart but where SpaceAfter=No. One with a line that
    is not of ten columns is set aside at that line, one whose words are withheld (all are _) at its first. A document
    of more than one part of the file is one of each.
    """
    (path,), (language,) = part.paths, languages
    has_documents, sentences, begins = False, [], 1
    broken: list[BrokenFileError] = []
    for block in line_blocks(held_back(read_lines(path, part.spans[0], part.first_line), broken)):
        if any(line.text.startswith(_NEW) for line in block):
            has_documents = True
            if sentences:
                yield Document(language, tuple(sentences), path, begins)
                sentences = []
        fault = next(((line.number, why) for line in block if (why := _fault(line))), None)
        text = "" if fault else _sentence(block)
        if text and set(text) <= {WITHHELD, " "}:
            fault = block[0].number, WITHHELD_WORDS
        if fault:
            yield BadRow(path, *fault)
        if fault or not text:
            continue
        begins = begins if sentences else block[0].number
        sentences.append(text)
        if not has_documents:
            yield Document(language, tuple(sentences), path, begins)
            sentences = []
    if sentences:
        yield Document(language, tuple(sentences), path, begins)
    if broken:
        raise broken[0]


def explain_withheld(path: object, withheld: int, sentences: int) -> str:
    """The sentence for a treebank whose words are withheld, all or in part."""
    return f"{path}: the words of {withheld:,} of {sentences:,} sentences are withheld (all are _). {MERGE}"


def split_conllu(format_: str, paths: Sequence[str]) -> list[Part]:
    """Parts that never split a sentence."""
    return split_at_blank_lines(format_, paths, lambda _: True)


def line_blocks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    """The lines of each sentence: runs between blank lines."""
    block: list[Line] = []
    for line in lines:
        if line.text.strip() or line.fault:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _fault(line: Line) -> str:
    if line.fault or line.text.startswith("#"):
        return line.fault
    fields = line.text.split("\t")
    if len(fields) != COLUMNS:
        return f"line has {len(fields)} columns, not {COLUMNS}"
    return "" if fields[0].replace("-", "").replace(".", "").isdigit() else "line has no word number"


def _sentence(block: Sequence[Line]) -> str:
    written = next((line.text[len(_TEXT) :].strip() for line in block if line.text.startswith(_TEXT)), "")
    return written or "".join(_words(block)).strip()


def _words(block: Sequence[Line]) -> Iterator[str]:
    """Words as they were written: a range `1-2` stands for its members, an empty node `8.1` is none."""
    inside = 0
    for line in block:
        fields = line.text.split("\t")
        if line.text.startswith("#") or len(fields) != COLUMNS or "." in fields[0]:
            continue
        first, _, last = fields[0].partition("-")
        if int(first) <= inside:
            continue
        inside = int(last or 0)
        yield fields[1] + ("" if "SpaceAfter=No" in fields[9].split("|") else " ")
