"""What the tasks share that put one label on a text or on a pair of texts: tables, features, accuracy."""

from __future__ import annotations

import csv
import itertools
import logging
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Measure, ReplaceWord, TunedTask, accuracy
from xalign_ray.tasks.task_files import column_in, is_table, read_lines, read_rows
from xalign_ray.tasks.tokenized import Features, Inputs

if TYPE_CHECKING:
    from xalign_ray.tasks.hf_encoder import Encoder

LABEL = "label"  # the column of the label in most data sets of the hub
LONGEST_TEXT = 128  # pieces; PPA's and XTREME's
Row = tuple[int, str, tuple[str, ...], str]  # line, key, texts, label

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text with a label, or a pair of texts."""

    key: str  # equal in a file and in its translation
    texts: tuple[str, ...]  # one or two
    languages: tuple[str, ...]  # of each text
    label: str  # a class of the task

    @property
    def gold(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table are read, by name; others are left alone."""

    texts: tuple[str, ...]  # one or two
    label: str
    key: str | None = None  # equal in a translation's row; without it that is the number of the row
    language: str | None = None  # rows of other languages than the file's are left out
    header: bool = True  # the file's first line says the names; if not, it has exactly these columns in this order
    quoted: bool = False  # fields may be quoted as in CSV, and then hold tabs and line ends

    @property
    def names(self) -> tuple[str, ...]:
        """Of all that are read."""
        return tuple(name for name in (self.key, *self.texts, self.label, self.language) if name)


class ClassificationTask(TunedTask[LabelledText]):
    """A task with one label for a text or a pair. Its files are tables, or `rows` says how they are read."""

    head = "AutoModelForSequenceClassification"
    longest = LONGEST_TEXT
    layouts: ClassVar[Sequence[Columns]]  # of its tables: the first whose header is there, else the one without one
    spellings: ClassVar[Mapping[str, str]] = {}  # other spellings of classes
    translations_keep_labels: ClassVar[bool] = True  # if not, a translation may have another label than its original

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        """The rows of a table whose columns are parted by tabs; DataError where no layout or number of columns fits."""
        if is_table(path):
            yield from self._rows_of_table(path)
            return
        lines = read_lines(path)
        header = lines[0].split("\t") if lines else []
        columns = next((one for one in self.layouts if not one.header or set(one.names) <= set(header)), None)
        if columns is None:
            raise DataError(f"{path}, line 1: not a header with the columns {', '.join(self.layouts[0].names)}.")
        names = header if columns.header else columns.names
        hint = "" if columns.header else "; XTREME's own test files lack the label: take those of the data set itself"
        numbers = itertools.count()
        for line, cells in _cells(path, lines[columns.header :], 1 + columns.header, columns.quoted):
            if len(cells) != len(names):
                raise DataError(
                    f"{path}, line {line}: {len(cells)} columns; {len(names)} were expected, with "
                    f"{', '.join(columns.names)}{hint}."
                )
            row = dict(zip(names, cells, strict=True))
            if columns.language is None or row[columns.language].strip() == language:
                key = row[columns.key].strip() if columns.key else str(next(numbers))
                written = (row[name] if columns.quoted else _unquote(row[name]) for name in columns.texts)
                texts = tuple(text.strip() for text in written)
                yield line, key, texts, row[columns.label].strip()

    def _rows_of_table(self, path: Path) -> Iterator[Row]:
        rows = read_rows(path)
        there = set(rows[0]) if rows else set()
        fitting = [one for one in self.layouts if set(one.texts) <= there and {one.label, LABEL} & there]
        if not fitting:
            wanted = " or ".join(", ".join((*one.texts, one.label)) for one in self.layouts)
            raise DataError(f"{path} has not the columns {wanted}; it has {', '.join(sorted(there)) or 'no rows'}.")
        columns = fitting[0]
        label = column_in(path, rows, (columns.label, LABEL))
        for number, row in enumerate(rows, 1):
            key = str(row[columns.key]) if columns.key and columns.key in there else str(number - 1)
            yield number, key, tuple((row[name] or "").strip() for name in columns.texts), str(row[label]).strip()

    def read(self, path: Path, language: str) -> list[LabelledText]:
        """One side of a pair may be empty, as in some machine translations; a class without a row is warned about."""
        examples: dict[str, LabelledText] = {}
        for line, key, texts, written in self.rows(path, language):
            label = self.spellings.get(written, written)
            if label not in self.classes:
                raise DataError(f"{path}, line {line}: the label {label!r} is none of {', '.join(self.classes)}.")
            if not any(texts):
                raise DataError(f"{path}, line {line}: there is no text.")
            if key in examples:
                raise DataError(f"{path}: two rows have the id {key}.")
            examples[key] = LabelledText(key, texts, (language,) * len(texts), label)
        if not examples:
            raise DataError(f"{path} holds no example.")
        if missing := sorted(set(self.classes) - {example.label for example in examples.values()}):
            log.warning("%s: no row has the label %s; other files may", path, ", ".join(missing))
        return list(examples.values())

    def features(
        self, inputs: Inputs, examples: Sequence[LabelledText], classes: Sequence[str]
    ) -> list[list[Features]]:
        """An input of at most 128 pieces for each example; of a pair the longer text is cut first."""
        pieces = iter(inputs.piece_texts([text for example in examples for text in example.texts]))
        room = inputs.room(self.longest)
        found = []
        for example in examples:
            first, *others = (next(pieces) for _ in example.texts)
            if others:
                left, right = longest_first(len(first), len(others[0]), room - len(inputs.middle))
                row = inputs.pair(first[:left], others[0][:right], example.languages)
            else:
                row = inputs.single(first[:room], example.languages[0])
            found.append([row | {"labels": classes.index(example.label)}])
        return found

    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[str]:
        found = tuned.forward([one for (one,) in features], lambda output: output.logits.argmax(dim=-1))
        return [tuned.classes[int(index)] for index in found]

    def from_gold(self, key: str, gold: str, language: str) -> LabelledText:
        return LabelledText(key, (), (language,), gold)

    def measure(self, examples: Sequence[LabelledText], predicted: Sequence[str]) -> dict[str, Measure]:
        return {self.metric: accuracy([example.label for example in examples], predicted)}

    def switch(self, english: LabelledText, other: LabelledText) -> list[LabelledText]:
        if len(english.texts) < 2:
            return super().switch(english, other)
        if self.translations_keep_labels and english.label != other.label:
            raise DataError(
                f"{self.name}: example {english.key} is {english.label} in {english.languages[0]} and {other.label} in "
                f"{other.languages[0]}; the training files are not translations of each other row by row."
            )
        return [
            replace(english, texts=(one.texts[0], two.texts[1]), languages=(one.languages[0], two.languages[1]))
            for one, two in ((other, english), (english, other))
        ]

    def replace_words(self, example: LabelledText, replace_word: ReplaceWord) -> LabelledText:
        return replace(example, texts=tuple(replace_running_words(text, replace_word) for text in example.texts))


def _cells(path: Path, lines: Sequence[str], first: int, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """The columns of each row and the number of its first line; DataError where a quote is not closed."""
    if not quoted:
        yield from enumerate((line.split("\t") for line in lines), first)
        return
    reader = csv.reader((f"{line}\n" for line in lines), delimiter="\t", strict=True)
    while True:
        line = first + reader.line_num
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}, line {line}: a quoted field is malformed ({error}).") from None
        if cells is None:
            return
        yield line, cells


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many pieces of two texts are kept in this room: the longer one is cut until both are equally long.

    Tokenizers of Hugging Face say `longest_first` to it. Of an odd room the longer text has one more, the second of
    equals.
    """
    if first + second <= room:
        return first, second
    kept = min(first, second, room // 2)
    return (room - kept, kept) if first > second else (kept, room - kept)


def replace_running_words(text: str, replace_word: ReplaceWord) -> str:
    """Running text with each word replaced: what white space parts, without the punctuation around it, which stays."""

    def replace_core(match: re.Match[str]) -> str:
        token = match[0]
        letters = [place for place, sign in enumerate(token) if unicodedata.category(sign)[0] not in "PS"]
        if not letters:
            return token
        begin, end = letters[0], letters[-1] + 1
        return token[:begin] + replace_word(token[begin:end]) + token[end:]

    return re.sub(r"\S+", replace_core, text)


def _unquote(cell: str) -> str:
    """Undoes CSV's quotes, which XTREME's script puts around a text that holds quotes: `"a ""b"" c"` is `a "b" c`."""
    inner = cell[1:-1]
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else cell
