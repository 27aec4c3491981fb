"""Part-of-speech tagging with the 17 universal tags (UD): accuracy over words, and XTREME's F1 over runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Files, Measure, accuracy
from xalign_ray.tasks.task_files import find_split_files, read_lines
from xalign_ray.tasks.token_classification import Sentence, TaggingTask, measure_spans, runs

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


class PosTask(TaggingTask):
    """Files are `en.train.conllu`, `en_ewt-ud-train.conllu` or XTREME's `train-en.tsv`, and so for dev and test.

    XTREME calls seqeval on tags without B- and I-, whose F1 is of runs and is no accuracy: each has its own name here.
    """

    def find(self, folders: Sequence[Path]) -> Files:
        return find_split_files(folders, _NAMES, "tagged", _EXAMPLES)

    def read(self, path: Path, language: str) -> list[Sentence]:
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

    def measure(self, examples: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> dict[str, Measure]:
        gold = [tag for sentence in examples for tag in sentence.tags]
        return {
            "pos_accuracy": accuracy(gold, [tag for tags in predicted for tag in tags]),
            "pos_f1_runs": measure_spans(examples, predicted, runs),
        }


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

POS = PosTask(
    name="pos", title="parts of speech", example="{language}.{split}.conllu", metric="pos_accuracy", classes=UPOS
)
