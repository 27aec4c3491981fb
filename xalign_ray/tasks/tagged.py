"""Reads sentences with a part of speech for each word: CoNLL-U, and the two columns of XTREME."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.tasks.files import find_split_files, read_lines

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
)  # fmt: skip

_LANGUAGE = r"(?P<language>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)"
_SPLIT = r"(?P<split>train|dev|test)"
_NAMES = (
    re.compile(rf"{_LANGUAGE}\.{_SPLIT}\.conllu"),  # the embedded world: de.test.conllu
    re.compile(rf"{_LANGUAGE}_\w+-ud-{_SPLIT}\.conllu"),  # Universal Dependencies: de_pud-ud-test.conllu
    re.compile(rf"{_SPLIT}-{_LANGUAGE}\.tsv"),  # XTREME: dev-de.tsv
)
_EXAMPLES = ("en.train.conllu", "en_ewt-ud-train.conllu", "train-en.tsv")
_WORD_ID = re.compile(r"[1-9][0-9]*")
_SKIPPED_ID = re.compile(r"[1-9][0-9]*-[1-9][0-9]*|[0-9]+\.[1-9][0-9]*")  # multiword ranges 1-2, empty nodes 1.1


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words and a tag for each.

    Attributes:
        key: its place in the file, from 0.
        words: as they are written.
        tags: equally many.
        language: of the words.
    """

    key: str
    words: tuple[str, ...]
    tags: tuple[str, ...]
    language: str


def find_tagged_files(folders: tuple[Path, ...]) -> dict[str, dict[str, Path]]:
    """The files of tagged sentences, by split, then language. Names are looked at, contents are not.

    Raises:
        DataError: a folder is missing, there is nothing in any, or two files are the same split of one language.
    """
    return find_split_files(folders, _NAMES, "tagged", _EXAMPLES)


def read_tagged(path: Path, language: str) -> list[Sentence]:
    """The sentences of a `.conllu` or `.tsv` file.

    Raises:
        DataError: the file is empty, or a row is malformed or its tag is not universal (named by file and line).
    """
    sentences: list[Sentence] = []
    rows: list[tuple[str, str]] = []
    read_row = _READERS[path.suffix]
    for number, line in enumerate([*read_lines(path), ""], 1):
        if line.strip():
            rows.extend(read_row(line, path, number, len(rows)))
        elif rows:
            words, tags = zip(*rows, strict=True)
            sentences.append(Sentence(str(len(sentences)), words, tags, language))
            rows = []
    if not sentences:
        raise DataError(f"{path} holds no sentence.")
    return sentences


def _read_conllu_row(line: str, path: Path, number: int, words_before: int) -> Iterator[tuple[str, str]]:
    if line.startswith("#"):
        return
    columns = line.split("\t")
    if len(columns) != 10:
        raise DataError(f"{path}, line {number}: {len(columns)} columns; CoNLL-U has 10, separated by tabs.")
    if _SKIPPED_ID.fullmatch(columns[0]):
        return
    if not _WORD_ID.fullmatch(columns[0]) or int(columns[0]) != words_before + 1:
        raise DataError(f"{path}, line {number}: word id {columns[0]!r}; {words_before + 1} was expected.")
    yield columns[1], _check_tag(columns[3], path, number)


def _read_tsv_row(line: str, path: Path, number: int, _: int) -> Iterator[tuple[str, str]]:
    columns = line.split("\t")
    if len(columns) != 2 or not columns[0]:
        raise DataError(f"{path}, line {number}: not a word, a tab and its part of speech: {line!r}.")
    yield columns[0], _check_tag(columns[1], path, number)


def _check_tag(tag: str, path: Path, number: int) -> str:
    if tag not in UPOS:
        raise DataError(f"{path}, line {number}: {tag!r} is not one of the parts of speech {', '.join(UPOS)}.")
    return tag


_READERS: Mapping[str, Callable[[str, Path, int, int], Iterator[tuple[str, str]]]] = {
    ".conllu": _read_conllu_row,
    ".tsv": _read_tsv_row,
}
