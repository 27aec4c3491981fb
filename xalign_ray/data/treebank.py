"""Reads CoNLL-U as sentences with dependency trees, document by document."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from xalign_ray.data.sources.conllu import MERGE, WITHHELD
from xalign_ray.data.sources.open import Line, read_lines
from xalign_ray.errors import DataError
from xalign_ray.text.trees import Sentence, Tree

COLUMNS = 10
UNSEEN = "_"  # stands for a word of blanks or invisible characters alone
_NOT_A_WORD = re.compile(r"[0-9]+[-.][0-9]+")  # multiword ranges and empty nodes
_NEW_DOCUMENT = "# newdoc"


def read_treebank(path: Path | str) -> Iterator[list[Sentence]]:
    """The documents of a CoNLL-U file as `# newdoc` begins them; without it each sentence is a document.

    Raises:
        DataError: the file is missing or empty, or a line is not of ten columns, or its head is none; named by number.
    """
    document: list[Sentence] = []
    has_documents = found = False
    for block in _blocks(path):
        if any(line.text.startswith(_NEW_DOCUMENT) for line in block):
            has_documents = True
            if document:
                yield document
            document = []
        if sentence := _read_sentence(path, block):
            found = True
            document.append(sentence)
        if document and not has_documents:
            yield document
            document = []
    if document:
        yield document
    if not found:
        raise DataError(f"{path} holds no sentence.")


def read_sentences(path: Path | str) -> Iterator[Sentence]:
    """The sentences of all documents."""
    for document in read_treebank(path):
        yield from document


def _blocks(path: Path | str) -> Iterator[list[Line]]:
    if "://" not in str(path) and not Path(path).is_file():
        raise DataError(f"{path} is missing; give a CoNLL-U file.")
    block: list[Line] = []
    for line in read_lines(str(path)):
        if line.text.strip() or line.fault:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _read_sentence(path: Path | str, block: list[Line]) -> Sentence | None:
    rows: list[list[str]] = []
    heads: list[int] = []
    for line in block:
        cells = line.text.rstrip("\r\n").split("\t")
        if line.text.startswith("#") or _NOT_A_WORD.fullmatch(cells[0]):
            continue
        where = f"{path}, line {line.number}"
        if line.fault or len(cells) != COLUMNS or cells[0] != str(len(rows) + 1) or not cells[1]:
            raise DataError(f"{where}: {line.fault or f'not {COLUMNS} columns with the next word: {line.text!r}'}.")
        if not cells[6].isdigit():
            raise DataError(f"{where}: {cells[6]!r} is no head: a parsed file is needed.")
        rows.append(cells)
        heads.append(int(cells[6]) - 1)
    if any(head >= len(rows) for head in heads):
        raise DataError(f"{path}, line {block[0].number}: a head lies outside its sentence.")
    if not rows:
        return None
    if len(rows) > 1 and {row[1] for row in rows} == {WITHHELD}:
        raise DataError(f"{path}, line {block[0].number}: the words are withheld (all are _). {MERGE}")
    tree = Tree(tuple(row[3] for row in rows), tuple(heads), tuple(row[7].partition(":")[0] for row in rows))
    # A word with a blank in it ("10 000" in French) is one word in a line of words too.
    return Sentence(tuple("".join(row[1].split()) or UNSEEN for row in rows), tree)
