"""What the tasks share that put one label on a text or on a pair of texts: rows of pieces, batches, accuracy."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from xalign_ray.errors import DataError
from xalign_ray.tasks.inputs import Inputs, Row
from xalign_ray.tasks.labelled import LabelledText
from xalign_ray.tasks.task import Measure, ReplaceWord, TunedTask

LONGEST_ROW = 128  # PPA's and XTREME's
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One input of the model.

    Attributes:
        row: pieces and token types.
        label: the id of its class.
    """

    row: Row
    label: int

    @property
    def ids(self) -> tuple[int, ...]:
        """The piece ids."""
        return self.row.ids


class ClassificationTask(TunedTask[LabelledText, LabelledRow]):
    """A task with one label for a text or a pair; how its files are found and read is the rest.

    Attributes:
        translations_keep_labels: whether an example's translation always has its label, so that another one means that
            the files are not translations row by row.
    """

    model_class = AutoModelForSequenceClassification
    translations_keep_labels: ClassVar[bool] = True

    def rows(self, inputs: Inputs, examples: Sequence[LabelledText], classes: Sequence[str]) -> list[list[LabelledRow]]:
        pieces = iter(inputs.piece_texts([text for example in examples for text in example.texts]))
        return [
            [
                LabelledRow(
                    _make_row(inputs, [next(pieces) for _ in example.texts], example), classes.index(example.label)
                )
            ]
            for example in examples
        ]

    def batch(self, inputs: Inputs, rows: Sequence[LabelledRow]) -> dict[str, Tensor]:
        return inputs.batch([row.row for row in rows]) | {"labels": torch.tensor([row.label for row in rows])}

    def score(
        self, model: Any, inputs: Inputs, examples: Sequence[LabelledText], classes: Sequence[str], batch_size: int
    ) -> dict[str, Measure]:
        rows = [row for part in self.rows(inputs, examples, classes) for row in part]
        gold = np.array([row.label for row in rows], dtype=np.int64)
        predicted = predict_classes(model, inputs, [row.row for row in rows], batch_size)
        chance = float(np.bincount(gold).max() / len(gold))
        return {self.metric: Measure(float((gold == predicted).mean()), chance, len(gold))}

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


@torch.inference_mode()
def predict_classes(model: Any, inputs: Inputs, rows: Sequence[Row], batch_size: int) -> NDArray[np.int64]:
    """The predicted class of every row, in their order; `model` must be in evaluation mode."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
    found = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), batch_size):
        part = order[start : start + batch_size]
        batch = inputs.batch([rows[index] for index in part])
        logits = model(**{key: value.to(model.device) for key, value in batch.items()}).logits
        found[part] = logits.argmax(dim=-1).cpu().numpy()
    return found


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


def _make_row(inputs: Inputs, pieces: Sequence[Sequence[int]], example: LabelledText) -> Row:
    room = min(LONGEST_ROW, inputs.max_length) - len(inputs.prefix) - len(inputs.suffix)
    if len(pieces) == 1:
        return inputs.single(inputs.wrap(pieces[0][:room]), example.languages[0])
    first, second = pieces
    kept = longest_first(len(first), len(second), room - len(inputs.middle))
    return inputs.pair(first[: kept[0]], second[: kept[1]], (example.languages[0], example.languages[1]))
