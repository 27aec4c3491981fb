"""Reads CoNLL-U: sentences with their rows, or as text as they were before they were cut into words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from xalign_ray.sources.open import Line, Span, read_lines
from xalign_ray.sources.records import BadRow, Document, Part, Record

Item = TypeVar("Item")
COLUMNS = 10
WITHHELD = "_"  # what stands for each word in treebanks whose text may not be given away
WITHHELD_WORDS = "the words are withheld (all are _): merge them with the treebank's script"
MERGE = "Merge them with the script that comes with the treebank, or leave these sentences out."
_TEXT, _NEW = "# text = ", "# newdoc"


@dataclass(slots=True)
class ConlluSentence:
    """A sentence of a file: a run of lines between blank ones.

    Attributes:
        number: of its first line, from 1.
        begins_document: it has `# newdoc`.
        text: of `# text`; empty where that is missing.
        rows: number and cells of each line that is no comment, ranges `1-2` and empty nodes `8.1` included.
        fault: number of the first bad line, and what is wrong with it.
    """

    number: int
    begins_document: bool = False
    text: str = ""
    rows: list[tuple[int, list[str]]] = field(default_factory=list)
    fault: tuple[int, str] | None = None

    def add(self, line: Line) -> None:
        """Takes the next line in."""
        if not line.fault and line.text.startswith("#"):
            self.begins_document |= line.text.startswith(_NEW)
            if line.text.startswith(_TEXT):
                self.text = self.text or line.text[len(_TEXT) :].strip()
            return
        cells = line.text.rstrip("\r\n").split("\t")
        if fault := line.fault or _fault(cells):
            self.fault = self.fault or (line.number, fault)
        else:
            self.rows.append((line.number, cells))

    def written(self) -> str:
        """The sentence as text: a range stands for its members, an empty node is no word."""
        if self.text:
            return self.text
        words, inside = "", 0
        for _, cells in self.rows:
            first, _, last = cells[0].partition("-")
            if "." not in first and int(first) > inside:
                inside = int(last or 0)
                words += cells[1] + ("" if "SpaceAfter=No" in cells[9].split("|") else " ")
        return words.strip()


def read_conllu_sentences(path: str, span: Span = Span(), first_line: int = 1) -> Iterator[ConlluSentence]:
    """The sentences of a file."""
    block = None
    for line in read_lines(path, span, first_line):
        if line.text.strip() or line.fault:
            block = block or ConlluSentence(line.number)
            block.add(line)
        elif block:
            yield block
            block = None
    if block:
        yield block


def group_documents(
    blocks: Iterable[ConlluSentence], read: Callable[[ConlluSentence], Item | None]
) -> Iterator[list[Item]]:
    """What `read` makes of sentences, by documents as `# newdoc` begins them; without it each sentence is a document.

    Args:
        read: gives None for a block that is left out.
    """
    document: list[Item] = []
    has_documents = False
    for block in blocks:
        if block.begins_document:
            has_documents = True
            if document:
                yield document
            document = []
        if (sentence := read(block)) is not None:
            document.append(sentence)
        if document and not has_documents:
            yield document
            document = []
    if document:
        yield document


def _fault(cells: Sequence[str]) -> str:
    if len(cells) != COLUMNS:
        return f"line has {len(cells)} columns, not {COLUMNS}"
    return "" if cells[0].replace("-", "").replace(".", "").isdigit() else "line has no word number"


def read_conllu(part: Part, languages: Sequence[str]) -> Iterator[Record]:
    """Documents as `# newdoc` begins them, a sentence a paragraph; a file without it is a document a sentence.

    A sentence is its `# text`, or its words where that is missing, apart but where SpaceAfter=No. One with a line that
    is not of ten columns is set aside at that line, one whose words are withheld (all are _) at its first. A document
    of more than one part of the file is one of each.
    """
    (path,), (language,) = part.paths, languages
    bad: list[BadRow] = []

    def text_of(block: ConlluSentence) -> tuple[int, str] | None:
        text = "" if block.fault else block.written()
        if text and set(text) <= {WITHHELD, " "}:
            block.fault = block.number, WITHHELD_WORDS
        if block.fault:
            bad.append(BadRow(path, *block.fault))
        return None if block.fault or not text else (block.number, text)

    blocks = read_conllu_sentences(path, part.spans[0], part.first_line)
    for numbered in group_documents(blocks, text_of):
        yield from bad
        bad.clear()
        yield Document(language, tuple(text for _, text in numbered), path, numbered[0][0])
    yield from bad


def is_withheld(words: Sequence[str]) -> bool:
    """Whether a sentence is of underscores, one for each word or each letter."""
    return len(words) > 1 and set("".join(words)) == {WITHHELD}


def explain_withheld(path: object, withheld: int, sentences: int) -> str:
    """The sentence for a treebank whose words are withheld, all or in part."""
    return f"{path}: the words of {withheld:,} of {sentences:,} sentences are withheld (all are _). {MERGE}"
