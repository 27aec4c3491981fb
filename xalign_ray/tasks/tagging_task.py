"""What the tasks that tag words share: rows, batches, predictions, and words replaced under their tags."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForTokenClassification

from xalign_ray.errors import DataError
from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.spans import Cut, count_spans, shuffled_tags, span_f1
from xalign_ray.tasks.tagged import Sentence
from xalign_ray.tasks.tagging import TaggedRow, batch_rows, make_rows, predict_labels
from xalign_ray.tasks.task import Measure, ReplaceWord, TunedTask


class TaggingTask(TunedTask[Sentence, TaggedRow]):
    """A task whose examples are sentences with a tag for each word; how they are found, read and scored differs."""

    model_class = AutoModelForTokenClassification

    @abstractmethod
    def measure(self, sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> dict[str, Measure]:
        """All metrics of the tags predicted for each sentence."""

    def rows(self, inputs: Inputs, examples: Sequence[Sentence], classes: Sequence[str]) -> list[list[TaggedRow]]:
        self._check_tags(examples, classes)
        return make_rows(inputs, examples, {tag: index for index, tag in enumerate(classes)})

    def batch(self, inputs: Inputs, rows: Sequence[TaggedRow]) -> dict[str, Tensor]:
        return batch_rows(inputs, rows)

    def score(
        self, model: Any, inputs: Inputs, examples: Sequence[Sentence], classes: Sequence[str], batch_size: int
    ) -> dict[str, Measure]:
        rows = [row for part in self.rows(inputs, examples, classes) for row in part]
        labels = predict_labels(model, inputs, rows, batch_size)
        return self.measure(examples, _tags_of(examples, classes, labels))

    def replace_words(self, example: Sentence, replace_word: ReplaceWord) -> Sentence:
        return replace(example, words=tuple(map(replace_word, example.words)))

    def _check_tags(self, sentences: Sequence[Sentence], classes: Sequence[str]) -> None:
        for sentence in sentences:
            if strange := sorted(set(sentence.tags) - set(classes)):
                raise DataError(
                    f"{self.name}: {sentence.language} has the tag {', '.join(strange)}, which the head does not know; "
                    f"its classes are {', '.join(classes)}. Leave that language out, or give a copy of its file with O "
                    "for that tag."
                )


def measure_spans(sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]], cut: Cut) -> Measure:
    """F1 of spans; chance is that of each sentence's own tags in random order, n the number of gold spans.

    Raises:
        DataError: no sentence has a span.
    """
    gold = [sentence.tags for sentence in sentences]
    if not (spans := count_spans(gold, cut)):
        raise DataError(f"The {sentences[0].language} file has no span at all: there is nothing to score.")
    chance = [shuffled_tags(sentence.words, sentence.tags) for sentence in sentences]
    return Measure(span_f1(gold, predicted, cut), span_f1(gold, chance, cut), spans)


def _tags_of(sentences: Sequence[Sentence], classes: Sequence[str], labels: NDArray[np.int64]) -> list[list[str]]:
    """The predicted tags of each sentence; `labels` are those of all words in order."""
    ends = np.cumsum([len(sentence.words) for sentence in sentences])
    return [[classes[int(label)] for label in part] for part in np.split(labels, ends[:-1])]
