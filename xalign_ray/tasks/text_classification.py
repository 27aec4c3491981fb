"""What the tasks share that put one label on a text or on a pair of texts: tables, features, accuracy."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from transformers import AutoModelForSequenceClassification

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Measure, ReplaceWord, Tuned, TunedTask, accuracy
from xalign_ray.tasks.task_files import read_lines
from xalign_ray.tasks.tokenized import Features, Inputs

LONGEST_TEXT = 128  # pieces; PPA's and XTREME's
_WORD = re.compile(r"\S+")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text with a label, or a pair of texts.

    Attributes:
        key: equal in a file and in its translation.
        texts: one or two.
        languages: of each text.
        label: a class of the task.
    """

    key: str
    texts: tuple[str, ...]
    languages: tuple[str, ...]
    label: str

    @property
    def gold(self) -> str:
        """The label."""
        return self.label


class ClassificationTask(TunedTask[LabelledText]):
    """A task with one label for a text or a pair; how its files are found and read is the rest.

    Attributes:
        translations_keep_labels: whether an example's translation always has its label, so that another one means that
            the files are not translations row by row.
    """

    model_class = AutoModelForSequenceClassification
    translations_keep_labels: ClassVar[bool] = True

    def features(
        self, inputs: Inputs, examples: Sequence[LabelledText], classes: Sequence[str]
    ) -> list[list[Features]]:
        pieces = iter(inputs.piece_texts([text for example in examples for text in example.texts]))
        return [
            [_encode(inputs, [next(pieces) for _ in one.texts], one) | {"labels": classes.index(one.label)}]
            for one in examples
        ]

    def predict(self, tuned: Tuned, features: Sequence[Sequence[Features]]) -> list[str]:
        found = tuned.forward([one for (one,) in features], lambda output: output.logits.argmax(dim=-1))
        return [tuned.classes[int(index)] for index in found]

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
            replace(
                english,
                texts=(first.texts[0], second.texts[1]),
                languages=(first.languages[0], second.languages[1]),
            )
            for first, second in ((other, english), (english, other))
        ]

    def replace_words(self, example: LabelledText, replace_word: ReplaceWord) -> LabelledText:
        return replace(example, texts=tuple(replace_running_words(text, replace_word) for text in example.texts))


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table are read, by name; others are left alone.

    Attributes:
        texts: one or two.
        label: of the class.
        key: of what is equal in a translation's row; if there is none, that is the number of the row.
        language: of a code; rows of other languages than the file's are left out.
        header: whether the file's first line says the names; if not, it has exactly these columns in this order.
    """

    texts: tuple[str, ...]
    label: str
    key: str | None = None
    language: str | None = None
    header: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Of all that are read."""
        return tuple(name for name in (self.key, *self.texts, self.label, self.language) if name)


def read_table(
    path: Path, language: str, layouts: Sequence[Columns], classes: Sequence[str], spellings: Mapping[str, str]
) -> list[LabelledText]:
    """The rows of a table whose columns are parted by tabs.

    Args:
        path: of the file.
        language: of its texts.
        layouts: which the file may have; the first one whose header is there, else the one without a header.
        classes: what labels may be.
        spellings: other spellings of classes.

    Raises:
        DataError: no layout fits, a row is malformed or its label unknown (named by file and line), or there is no row.
    """
    lines = read_lines(path)
    columns, places, width = _lay_out(path, lines, layouts)
    examples: list[LabelledText] = []
    for number, line in enumerate(lines[columns.header :], 1 + columns.header):
        cells = line.split("\t")
        if len(cells) != width:
            hint = (
                "" if columns.header else "; XTREME's own test files lack the label: take those of the data set itself"
            )
            raise DataError(
                f"{path}, line {number}: {len(cells)} columns; {width} were expected, with {', '.join(places)}{hint}."
            )
        row = {name: cells[place] for name, place in places.items()}
        if columns.language and row[columns.language].strip() != language:
            continue
        texts = tuple(_unquote(row[name]).strip() for name in columns.texts)
        label = check_label(row[columns.label].strip(), path, number, classes, spellings)
        key = row[columns.key].strip() if columns.key else str(len(examples))
        examples.append(make_example(path, number, key, texts, language, label))
    return check_examples(path, examples, classes)


def check_label(
    label: str, path: Path, number: int, classes: Sequence[str], spellings: Mapping[str, str] | None = None
) -> str:
    """The class that a label means.

    Raises:
        DataError: it means none.
    """
    named = (spellings or {}).get(label, label)
    if named not in classes:
        raise DataError(f"{path}, line {number}: the label {label!r} is none of {', '.join(classes)}.")
    return named


def make_example(path: Path, number: int, key: str, texts: tuple[str, ...], language: str, label: str) -> LabelledText:
    """An example of texts in one language.

    Raises:
        DataError: there is no text at all; one side of a pair may be empty, as machine translations leave some.
    """
    if not any(texts):
        raise DataError(f"{path}, line {number}: there is no text.")
    return LabelledText(key, texts, (language,) * len(texts), label)


def check_examples(path: Path, examples: list[LabelledText], classes: Collection[str]) -> list[LabelledText]:
    """The examples of a file; a class that none of them has is warned about, as the mark of a file that was cut badly.

    Raises:
        DataError: there is no example, or two have the same key.
    """
    if not examples:
        raise DataError(f"{path} holds no example.")
    seen: set[str] = set()
    for example in examples:
        if example.key in seen:
            raise DataError(f"{path}: two rows have the id {example.key}.")
        seen.add(example.key)
    if missing := sorted(set(classes) - {example.label for example in examples}):
        log.warning("%s: no row has the label %s; other files may", path, ", ".join(missing))
    return examples


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many pieces of two texts are kept in this room: the longer one is cut until both are equally long.

    Tokenizers of Hugging Face say `longest_first` to it. Of an odd room the longer text has one more, the second of
    equals.
    """
    if first + second <= room:
        return first, second
    shorter = min(first, second)
    kept = shorter if shorter <= room // 2 else room // 2
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

    return _WORD.sub(replace_core, text)


def _encode(inputs: Inputs, pieces: Sequence[Sequence[int]], example: LabelledText) -> Features:
    room = inputs.room(LONGEST_TEXT)
    if len(pieces) == 1:
        return inputs.single(inputs.wrap(pieces[0][:room]), example.languages[0])
    first, second = pieces
    kept = longest_first(len(first), len(second), room - len(inputs.middle))
    return inputs.pair(first[: kept[0]], second[: kept[1]], (example.languages[0], example.languages[1]))


def _lay_out(path: Path, lines: Sequence[str], layouts: Sequence[Columns]) -> tuple[Columns, dict[str, int], int]:
    """The layout of the file, the place of each column, and how many columns there are."""
    header = lines[0].split("\t") if lines else []
    for columns in layouts:
        if not columns.header:
            return columns, {name: place for place, name in enumerate(columns.names)}, len(columns.names)
        if set(columns.names) <= set(header):
            return columns, {name: header.index(name) for name in columns.names}, len(header)
    raise DataError(f"{path}, line 1: not a header with the columns {', '.join(layouts[0].names)}.")


def _unquote(cell: str) -> str:
    """Undoes CSV's quotes, which XTREME's script puts around a text that holds quotes: `"a ""b"" c"` is `a "b" c`."""
    inner = cell[1:-1]
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else cell
