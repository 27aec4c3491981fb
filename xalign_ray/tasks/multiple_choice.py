"""Multiple choice: each choice is read behind its text and scored, and the highest is taken; accuracy."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from xalign_ray.config.language_codes import ENGLISH
from xalign_ray.errors import DataError
from xalign_ray.models.tokenized import Features, Inputs
from xalign_ray.tasks.task import Measure, Metric, ReplaceWord, TunedTask, accuracy
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT, is_table, name_language, plain_language, read_lines, read_rows
from xalign_ray.tasks.text_classification import LONGEST_TEXT, longest_first, replace_running_words

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder

Fields = Mapping[str, Any]  # a row of a file


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
    """A task of the head that transformers calls multiple choice: one number for each answer, softmax over them."""

    head = "AutoModelForMultipleChoice"

    @abstractmethod
    def fields(self, row: Fields, language: str, number: int) -> Choices:
        """The example of a row; KeyError where the row lacks a column, ValueError where a value means nothing."""

    def read(self, path: Path, language: str) -> list[Choices]:
        examples: dict[str, Choices] = {}
        for number, row in _rows(path):
            try:
                example = self.fields(row, language, number)
            except KeyError as error:
                raise DataError(f"{path}, row {number}: there is no {error.args[0]}.") from None
            except ValueError as error:
                raise DataError(f"{path}, row {number}: {error}.") from None
            if not example.text or not all(example.answers):
                raise DataError(f"{path}, row {number}: a text or an answer is empty.")
            if example.key in examples:
                raise DataError(f"{path}: two rows have the id {example.key}.")
            examples[example.key] = example
        if not examples:
            raise DataError(f"{path} holds no example.")
        return list(examples.values())

    def features(self, inputs: Inputs, examples: Sequence[Choices], classes: Sequence[str]) -> list[list[Features]]:  # noqa: ARG002
        """An input of several rows, a row for each answer behind the text; the longer of both is cut first."""
        pieces = iter(inputs.piece_texts([part for one in examples for part in (one.text, *one.answers)]))
        room = inputs.room(self.longest) - len(inputs.middle)
        found = []
        for example in examples:
            text, *answers = (next(pieces) for _ in (example.text, *example.answers))
            cuts = [longest_first(len(text), len(answer), room) for answer in answers]
            rows = [
                inputs.pair(text[:left], answer[:right], example.languages)
                for answer, (left, right) in zip(answers, cuts, strict=True)
            ]
            found.append([{name: [row[name] for row in rows] for name in rows[0]} | {"labels": example.right}])
        return found

    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[str]:
        found = tuned.forward([one for (one,) in features], lambda output: output.logits.argmax(dim=-1))
        return [str(int(index) + 1) for index in found]

    def from_gold(self, key: str, gold: str, language: str) -> Choices:
        return Choices(key, "", (), int(gold) - 1, (language, language))

    def measure(self, examples: Sequence[Choices], predicted: Sequence[str]) -> dict[str, Measure]:
        return {self.metric: accuracy([example.gold for example in examples], predicted)}

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
            replace(one, answers=two.answers, languages=(one.languages[0], two.languages[1]))
            for one, two in ((english, other), (other, english))
        ]


class BelebeleTask(ChoiceTask):
    """Belebele: a passage of Flores, a question, four answers. Files are `eng_Latn.jsonl`, all for testing.

    For training bring your own in the same form, or with the columns of what Belebele's assemble_training_set.py
    writes (passage, answer1 ...), as JSON lines: `train.eng_Latn.jsonl`, `dev.eng_Latn.jsonl`.
    """

    name = "belebele"
    metrics = (Metric("belebele_accuracy", "Reading (Belebele)", "questions whose right answer of four was chosen"),)
    file_names = ("{split}.eng_Latn.jsonl", "eng_Latn.jsonl")
    patterns = tuple(
        re.compile(rf"{folder}{split}(?P<language>[a-z]{{3}}_[A-Z][a-z]{{3}})\.jsonl")
        for folder in ("", "data/")  # as the repository of the hub has them
        for split in ("(?P<split>)", rf"{SPLIT}\.")
    )

    def languages_of(self, code: str, path: Path) -> Collection[str]:
        """The language of a Flores code, with its script only where it is not the usual one."""
        return (plain_language(code) or name_language(code, path),)

    def fields(self, row: Fields, language: str, number: int) -> Choices:
        is_own = "flores_passage" in row
        passage, answer = ("flores_passage", "mc_answer") if is_own else ("passage", "answer")
        question = str(row["question"]).strip()
        answers = [str(row[f"{answer}{which}"]).strip() for which in range(1, 5)]
        said = str(row["correct_answer_num"])
        if said not in ("1", "2", "3", "4"):
            raise ValueError(f"correct_answer_num must be 1 to 4, got {said!r}")
        key = f"{row['link']}#{row['question_number']}" if is_own else str(number)
        behind = tuple(f"{question} {one}" if one else "" for one in answers)
        return Choices(key, str(row[passage]).strip(), behind, int(said) - 1, (language, language))


class XcopaTask(ChoiceTask):
    """XCOPA: which of two sentences is the cause or the effect of a premise. Files are `et/val.et.jsonl` and so on.

    English, to train on, is COPA as SuperGLUE has it, `COPA/train.jsonl`. Before each answer stands the question in
    English, as the files have it in no other language.
    """

    name = "xcopa"
    metrics = (Metric("xcopa_accuracy", "Causes and effects (XCOPA)", "premises whose right answer of two was chosen"),)
    longest = LONGEST_TEXT
    file_names = ("{split}.{language}.jsonl", "COPA/train.jsonl", "et/val.et.jsonl")
    patterns = (
        *(
            re.compile(rf"{folder}(?P<split>train|dev|val|test)\.{LANGUAGE}\.jsonl")
            for folder in ("", "[a-z]{2,3}/", "data/")
        ),
        re.compile(r"(?P<language>COPA)/(?P<split>train|val)\.jsonl"),  # its test file has no labels
    )
    questions: ClassVar = {"cause": "What was the cause?", "effect": "What happened as a result?"}
    rights: ClassVar = {"0": 0, "1": 1, "choice1": 0, "choice2": 1}  # tables of the hub name them

    def languages_of(self, code: str, path: Path) -> Collection[str]:
        return (ENGLISH,) if code == "COPA" else super().languages_of(code, path)

    def fields(self, row: Fields, language: str, number: int) -> Choices:
        asked, right = str(row["question"]), str(row["label"])
        if asked not in self.questions:
            raise ValueError(f"question must be cause or effect, got {asked!r}")
        if right not in self.rights:
            raise ValueError(f"label must be 0 or 1, got {right!r}")
        answers = [str(row[name]).strip() for name in ("choice1", "choice2")]
        behind = tuple(f"{self.questions[asked]} {one}" if one else "" for one in answers)
        key = str(row.get("idx", number - 1))
        return Choices(key, str(row["premise"]).strip(), behind, self.rights[right], (language, language))


def _rows(path: Path) -> Iterator[tuple[int, Fields]]:
    """The rows of JSON lines or of a table, and their numbers from 1."""
    if is_table(path) and ".jsonl" not in path.suffixes:
        yield from enumerate(read_rows(path), 1)
        return
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: not JSON ({error}).") from None
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: a JSON object was expected, with a name for each value.")
            yield number, row


BELEBELE, XCOPA = BelebeleTask(), XcopaTask()
