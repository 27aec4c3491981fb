"""Multiple choice: each choice is read behind its text and scored, and the highest is taken; accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from xalign_ray.errors import DataError
from xalign_ray.models.tokenized import Features, Inputs
from xalign_ray.tasks.task import ReplaceWord, TunedTask, check_keys
from xalign_ray.tasks.task_files import read_table
from xalign_ray.tasks.text_classification import longest_first, replace_running_words

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder


@dataclass(frozen=True, slots=True)
class Choices:
    """A text, a question about it, and answers; one is right."""

    key: str  # equal in a file and in its translation
    text: str
    answers: tuple[str, ...]  # each behind the question
    right: int  # from 0
    languages: tuple[str, str]  # of the text, and of question and answers

    @property
    def gold(self) -> str:
        """The number of the right answer, from 1."""
        return str(self.right + 1)


class ChoiceTask(TunedTask[Choices]):
    """A task of the head that transformers calls multiple choice: one number for each answer, softmax over them.

    Attributes:
        text, question, answers, right: columns, as `read_table` takes them; before each answer stands the question.
        keys: columns that together are equal in a translation's row; without them that is the number of the row.
        questions: what stands for each value of the question's column; without them that is the question.
        rights: by value of the column `right`, which of the answers is right.
    """

    head = "AutoModelForMultipleChoice"
    text: ClassVar[str]
    question: ClassVar[str]
    answers: ClassVar[tuple[str, ...]]
    right: ClassVar[str]
    rights: ClassVar[Mapping[str, int]]
    questions: ClassVar[Mapping[str, str]] = {}
    keys: ClassVar[tuple[str, ...]] = ()

    def read(self, path: Path, language: str) -> list[Choices]:
        examples = []
        columns = (self.text, self.question, self.right, *self.answers)
        for number, (where, row) in enumerate(read_table(path, columns, self.keys)):
            text, asked, right, *answers = (str(row[column]).strip() for column in columns)
            for column, value, permitted in ((self.question, asked, self.questions), (self.right, right, self.rights)):
                if permitted and value not in permitted:
                    raise DataError(f"{where}: {column} is none of {', '.join(permitted)}: {value!r}.")
            if not text or not all(answers):
                raise DataError(f"{where}: a text or an answer is empty.")
            key = "#".join(str(row[column]) for column in self.keys if column in row) or str(number)
            behind = tuple(f"{self.questions.get(asked, asked)} {answer}" for answer in answers)
            examples.append(Choices(key, text, behind, self.rights[right], (language, language)))
        check_keys(path, examples)
        return examples

    def features(self, inputs: Inputs, examples: Sequence[Choices], classes: Sequence[str]) -> list[list[Features]]:  # noqa: ARG002
        """An input of several rows, a row for each answer behind the text; the longer of both is cut first."""
        pieces = iter(inputs.piece_texts([part for example in examples for part in (example.text, *example.answers)]))
        room = inputs.room(self.longest) - len(inputs.middle)
        features = []
        for example in examples:
            text, *answers = (next(pieces) for _ in (example.text, *example.answers))
            cuts = [longest_first(len(text), len(answer), room) for answer in answers]
            rows = [
                inputs.pair(text[:left], answer[:right], example.languages)
                for answer, (left, right) in zip(answers, cuts, strict=True)
            ]
            features.append([{name: [row[name] for row in rows] for name in rows[0]} | {"labels": example.right}])
        return features

    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[str]:
        chosen = tuned.forward([feature for (feature,) in features], lambda output: output.logits.argmax(dim=-1))
        return [str(int(index) + 1) for index in chosen]

    def from_gold(self, key: str, gold: str, language: str) -> Choices:
        return Choices(key, "", (), int(gold) - 1, (language, language))

    def replace_words(self, example: Choices, replace_word: ReplaceWord) -> Choices:
        text, *answers = (replace_running_words(part, replace_word) for part in (example.text, *example.answers))
        return replace(example, text=text, answers=tuple(answers))

    def switch(self, english: Choices, other: Choices) -> list[Choices]:
        if english.right != other.right:
            raise DataError(
                f"{self.name}: answer {english.gold} of example {english.key} is right in {english.languages[0]}, and "
                f"answer {other.gold} in {other.languages[0]}; the training files are not translations of each other."
            )
        return [
            replace(left, answers=two.answers, languages=(left.languages[0], two.languages[1]))
            for left, two in ((english, other), (other, english))
        ]
