"""What a fine-tuned task is: how its files are found and read, what the model is given of them, how it is scored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torch import Tensor

from xalign_ray.errors import DataError
from xalign_ray.tasks.files import choose_languages
from xalign_ray.tasks.inputs import Inputs

SPLITS = ("train", "dev", "test")
Files = Mapping[str, Mapping[str, Path]]  # split, then language
ReplaceWord = Callable[[str], str]


class Example(Protocol):
    """One thing that is labelled in a file. Its key is the same in a file and in that file's translation."""

    @property
    def key(self) -> str: ...


class ModelRow(Protocol):
    """One input of the model, of any class: tasks make them and batch them."""

    @property
    def ids(self) -> tuple[int, ...]: ...


E = TypeVar("E", bound=Example)
R = TypeVar("R", bound=ModelRow)


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


@dataclass(frozen=True)
class TunedTask(ABC, Generic[E, R]):
    """A task that a head is fine-tuned for; one object a task, listed in the registry.

    Attributes:
        name: as users say it.
        title: what the head is for, in messages.
        example: a file name as users know it, with `{split}` and `{language}` in it, for messages.
        metric: the one that decides between epochs, a key of what `score` gives.
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
    def rows(self, inputs: Inputs, examples: Sequence[E], classes: Sequence[str]) -> list[list[R]]:
        """The inputs that each example is trained on; one that does not fit may become several."""

    @abstractmethod
    def batch(self, inputs: Inputs, rows: Sequence[R]) -> dict[str, Tensor]:
        """A model's arguments for these rows, labels included."""

    @abstractmethod
    def score(
        self, model: Any, inputs: Inputs, examples: Sequence[E], classes: Sequence[str], batch_size: int
    ) -> dict[str, Measure]:
        """All metrics of the model, which is in evaluation mode, on these examples."""

    def classes_of(self, examples: Sequence[E]) -> tuple[str, ...]:  # noqa: ARG002
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
