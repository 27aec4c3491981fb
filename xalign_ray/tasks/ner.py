"""Named entities (WikiAnn, PAN-X, Universal NER, MasakhaNER): F1 over spans, lenient as XTREME's, and strict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Files, Measure
from xalign_ray.tasks.task_files import find_split_files, read_lines
from xalign_ray.tasks.token_classification import (
    OUTSIDE,
    Sentence,
    TaggingTask,
    lenient_spans,
    measure_spans,
    strict_spans,
)

_LANGUAGE = r"(?P<language>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)"
_SPLIT = r"(?P<split>train|dev|val|test)"
_NAMES = (
    re.compile(rf"{_LANGUAGE}/{_SPLIT}(?:\.conllu)?"),  # WikiAnn, a folder a language: de/val.conllu, de/dev
    re.compile(rf"(?:\w+_)?{_LANGUAGE}/{_SPLIT}\.txt"),  # MasakhaNER: swa/dev.txt
    re.compile(rf"{_LANGUAGE}_\w+-ud-{_SPLIT}\.iob2"),  # Universal NER: de_pud-ud-test.iob2
    re.compile(rf"{_SPLIT}-{_LANGUAGE}\.tsv"),  # XTREME: dev-de.tsv
    re.compile(rf"{_LANGUAGE}-{_SPLIT}"),  # what XTREME makes them of: de-dev
)
_EXAMPLES = ("train-en.tsv", "en/train.conllu", "en_ewt-ud-train.iob2", "swa/train.txt")
_TAG = re.compile(r"O|[BI]-\S+")
_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?:")

Row = tuple[str, str]  # word, tag


class NerTask(TaggingTask):
    """Files are XTREME's `dev-de.tsv`, WikiAnn's `de/val.conllu`, Universal NER's `.iob2`, MasakhaNER's `swa/dev.txt`.

    The kinds of names are those of the training file: a test file that has others, such as MasakhaNER's DATE for a
    model of PAN-X, is refused.
    """

    def find(self, folders: Sequence[Path]) -> Files:
        return find_split_files(folders, _NAMES, "NER", _EXAMPLES)

    def read(self, path: Path, language: str) -> list[Sentence]:
        """The sentences of a file. The prefix `en:` that PAN-X puts before each word is no part of it.

        Raises:
            DataError: the file is empty, or a row is malformed or its tag not IOB (named by file and line).
        """
        read_row = _READERS[path.suffix]
        sentences: list[list[Row]] = [[]]
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                sentences.append([])
            elif path.suffix != ".iob2" or not line.startswith("# "):
                row = read_row(line)
                if row is None or not row[0].strip():
                    raise DataError(f"{path}, line {number}: not {_FORMS[path.suffix]}: {line!r}.")
                if not _TAG.fullmatch(row[1]):
                    raise DataError(f"{path}, line {number}: {row[1]!r} is no IOB tag, such as O, B-PER or I-PER.")
                sentences[-1].append(row)
        rows = _strip_prefix([rows for rows in sentences if rows])
        if not rows:
            raise DataError(f"{path} holds no sentence.")
        return [
            Sentence(str(place), tuple(word for word, _ in words), tuple(tag for _, tag in words), language)
            for place, words in enumerate(rows)
        ]

    def classes_of(self, examples: Iterable[Sentence]) -> tuple[str, ...]:
        """O, then B- and I- of every kind of name that occurs, even if only one of the two does."""
        kinds = sorted({tag[2:] for sentence in examples for tag in sentence.tags if tag != OUTSIDE})
        return (OUTSIDE, *(f"{mark}-{kind}" for kind in kinds for mark in "BI"))

    def measure(self, examples: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> dict[str, Measure]:
        return {
            "ner_f1": measure_spans(examples, predicted, lenient_spans),
            "ner_f1_strict": measure_spans(examples, predicted, strict_spans),
        }


def _strip_prefix(sentences: list[list[Row]]) -> list[list[Row]]:
    """Words without `en:`, if every word of the file begins with the same such prefix."""
    match = _PREFIX.match(sentences[0][0][0]) if sentences else None
    if match is None or not all(word.startswith(match[0]) for rows in sentences for word, _ in rows):
        return sentences
    return [[(word.removeprefix(match[0]), tag) for word, tag in rows] for rows in sentences]


def _columns(line: str, count: int, word: int, separator: str = "\t") -> Row | None:
    cells = line.rsplit(separator, count - 1) if separator == " " else line.split(separator)
    return (cells[word], cells[word + 1].strip()) if len(cells) == count else None


_READERS: Mapping[str, Callable[[str], Row | None]] = {
    "": lambda line: _columns(line, 2, 0),
    ".tsv": lambda line: _columns(line, 2, 0),
    ".conllu": lambda line: _columns(line, 3, 1),
    ".iob2": lambda line: _columns(line, 5, 1),
    ".txt": lambda line: _columns(line, 2, 0, " "),
}
_FORMS: Mapping[str, str] = {
    "": "a word, a tab and its tag",
    ".tsv": "a word, a tab and its tag (XTREME's own test files lack the tag: take those of WikiAnn)",
    ".conllu": "an index, a word and its tag, parted by tabs",
    ".iob2": "the five columns of Universal NER, parted by tabs",
    ".txt": "a word, a space and its tag",
}

NER = NerTask(name="ner", title="named entities", example="{split}-{language}.tsv", metric="ner_f1")
