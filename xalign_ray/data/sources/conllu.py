"""Reads CoNLL-U as text: the sentences of parsed corpora, as they were written before they were cut into words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xalign_ray.data.sources.broken import BrokenFileError, held_back
from xalign_ray.data.sources.open import Line, read_lines
from xalign_ray.data.sources.parts import Part, split_at_blank_lines
from xalign_ray.data.sources.records import BadRow, Document, Record

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
