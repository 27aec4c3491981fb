"""What a fine-tuned task is: how its files are found and read, its features, its predictions and their metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from xalign_ray.errors import DataError
from xalign_ray.tasks.task_files import choose_languages
from xalign_ray.tasks.tokenized import Features, Inputs

SCORING_BATCH = 64
Files = Mapping[str, Mapping[str, Path]]  # split, then language
ReplaceWord = Callable[[str], str]
_ENCODED = ("input_ids", "attention_mask", "token_type_ids")


class Example(Protocol):
    """One thing that is labelled in a file. Its key is the same in a file and in that file's translation."""

    @property
    def key(self) -> str: ...

    @property
    def gold(self) -> Any: ...


E = TypeVar("E", bound=Example)


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of one file.

    Attributes:
        value: in [0, 1].
        chance: what a majority or random baseline reaches on this very file.
        n: number of things scored.
    """

    value: float
    chance: float
    n: int


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> Measure:
    """Share of labels that were predicted; chance is the share of the most frequent label of this very set."""
    right = sum(one == other for one, other in zip(gold, predicted, strict=True))
    return Measure(right / len(gold), Counter(gold).most_common(1)[0][1] / len(gold), len(gold))


@dataclass(frozen=True, slots=True)
class Tuned:
    """A model with a task's head, in evaluation mode on its device, fp32.

    Attributes:
        model: as an Auto class opened it.
        inputs: its tokenizer and input conventions.
        classes: of the head in the order of their ids.
        batch_size: inputs at a time; those of like length go together.
    """

    model: Any
    inputs: Inputs
    classes: Sequence[str]
    batch_size: int = SCORING_BATCH

    @torch.inference_mode()
    def forward(self, features: Sequence[Features], take: Callable[[Any], Tensor]) -> list[NDArray[Any]]:
        """What `take` makes of the model's output `[B, ...]` for each input, in the order given."""
        order = sorted(range(len(features)), key=lambda index: len(features[index]["input_ids"]))
        found: dict[int, NDArray[Any]] = {}
        for start in range(0, len(order), self.batch_size):
            part = order[start : start + self.batch_size]
            batch = self.inputs.collate([features[index] for index in part])
            arguments = {name: batch[name].to(self.model.device) for name in batch if name in _ENCODED}
            found |= zip(part, take(self.model(**arguments)).cpu().numpy(), strict=True)
        return [found[index] for index in range(len(features))]


@dataclass(frozen=True)
class TunedTask(ABC, Generic[E]):
    """A task that a head is fine-tuned for; one object a task, listed in the registry.

    Attributes:
        name: as users say it.
        title: what the head is for, in messages.
        example: a file name as users know it, with `{split}` and `{language}` in it, for messages.
        metric: the one that decides between epochs, a key of what `measure` gives.
        classes: of the head in the order of their ids; empty if the training file names them, or there are none.
    """

    name: str
    title: str
    example: str
    metric: str
    classes: tuple[str, ...] = field(default=())
    model_class: ClassVar[Any]

    @abstractmethod
    def find(self, folders: Sequence[Path]) -> Files:
        """The task's files in these folders, which count as one. Looks at names, opens none.

        Raises:
            DataError: a folder is missing, nothing is found, or two files are the same split of one language.
        """

    @abstractmethod
    def read(self, path: Path, language: str) -> list[E]:
        """The labelled examples of a file, at least one.

        Raises:
            DataError: the file is empty, or a row is malformed (named by file and line).
        """

    @abstractmethod
    def features(self, inputs: Inputs, examples: Sequence[E], classes: Sequence[str]) -> list[list[Features]]:
        """The inputs that each example is trained and scored on, with labels; one that is too long becomes several."""

    @abstractmethod
    def predict(self, tuned: Tuned, features: Sequence[Sequence[Features]]) -> list[Any]:
        """What the model says of each example, whose features these are, as its `gold` is said."""

    @abstractmethod
    def measure(self, examples: Sequence[E], predicted: Sequence[Any]) -> dict[str, Measure]:
        """All metrics of these predictions."""

    def classes_of(self, examples: Iterable[E]) -> tuple[str, ...]:  # noqa: ARG002
        """The head's classes, for tasks whose training examples name them."""
        return self.classes

    def choose(self, found: Collection[str], asked: Collection[str] | None, where: object) -> list[str]:
        """The languages that are scored: those asked for, or all that were found."""
        return choose_languages(found, asked, where)

    def speaks(self, language: str) -> Sequence[str]:
        """The languages that occur in a file of this language, as `find` names it."""
        return (language,)

    def switch(self, english: E, other: E) -> list[E]:  # noqa: ARG002
        """Both code-switched examples made of an example and its translation (PPA, section 2.3).

        Raises:
            DataError: the task's examples have one side only.
        """
        raise DataError(
            f"{self.name} has examples of one text, so no sentence of them can be switched; train on translate_train "
            "or word_switch instead."
        )

    @abstractmethod
    def replace_words(self, example: E, replace: ReplaceWord) -> E:
        """The example with each of its words replaced by what `replace` makes of it; labels stay."""
