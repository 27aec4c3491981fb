"""Part-of-speech tagging with the 17 universal tags (UD): accuracy over words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import AutoModelForTokenClassification

from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.tagged import UPOS, Sentence, find_tagged_files, read_tagged
from xalign_ray.tasks.tagging import (
    TaggedRow,
    batch_rows,
    gold_labels,
    majority_share,
    make_rows,
    predict_labels,
    token_accuracy,
)
from xalign_ray.tasks.task import Files, Measure, ReplaceWord, TunedTask


class PosTask(TunedTask[Sentence, TaggedRow]):
    """Files are `en.train.conllu`, `en_ewt-ud-train.conllu` or XTREME's `train-en.tsv`, and so for dev and test."""

    model_class = AutoModelForTokenClassification

    def find(self, folders: Sequence[Path]) -> Files:
        return find_tagged_files(tuple(folders))

    def read(self, path: Path, language: str) -> list[Sentence]:
        return read_tagged(path, language)

    def rows(self, inputs: Inputs, examples: Sequence[Sentence], classes: Sequence[str]) -> list[list[TaggedRow]]:
        return make_rows(inputs, examples, {tag: index for index, tag in enumerate(classes)})

    def batch(self, inputs: Inputs, rows: Sequence[TaggedRow]) -> dict[str, Tensor]:
        return batch_rows(inputs, rows)

    def score(
        self, model: Any, inputs: Inputs, examples: Sequence[Sentence], classes: Sequence[str], batch_size: int
    ) -> dict[str, Measure]:
        rows = [row for part in self.rows(inputs, examples, classes) for row in part]
        gold, predicted = gold_labels(rows), predict_labels(model, inputs, rows, batch_size)
        return {"pos_accuracy": Measure(token_accuracy(gold, predicted), majority_share(gold), len(gold))}

    def replace_words(self, example: Sentence, replace_word: ReplaceWord) -> Sentence:
        return replace(example, words=tuple(map(replace_word, example.words)))


POS = PosTask(
    name="pos", title="parts of speech", example="{language}.{split}.conllu", metric="pos_accuracy", classes=UPOS
)
