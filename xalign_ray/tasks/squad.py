"""Reads questions that a part of a context answers (SQuAD 1.1 JSON), by the names of MLQA, XQuAD, TyDiQA and SQuAD."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.tasks.files import find_split_files, name_language
from xalign_ray.text.language_codes import check_language, is_language

_LANGUAGE = r"(?P<language>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)"
_CROSSED = "-question-"
_NAMES = (
    re.compile(rf"(?P<split>dev|test)-context-(?P<language>[A-Za-z0-9-]+{_CROSSED}[A-Za-z0-9-]+)\.json"),  # MLQA
    re.compile(rf"(?P<split>train|dev|test)-{_LANGUAGE}\.json"),  # XTREME's labels
    re.compile(rf"(?P<split>)xquad\.{_LANGUAGE}\.json"),  # XQuAD, which is for testing
    re.compile(rf"tydiqa\.goldp\.{_LANGUAGE}\.(?P<split>train|dev)\.json"),
    re.compile(r"(?P<language>)(?P<split>train|dev)-v1\.1\.json"),  # SQuAD, which is English
    re.compile(rf"squad\.translate\.(?P<split>train)\.en-{_LANGUAGE}\.json"),  # XTREME's translations of SQuAD
    re.compile(rf"{_LANGUAGE}_squad-translate-train-(?P<split>train)-v1\.1\.json"),  # MLQA's
)
_EXAMPLES = ("train-v1.1.json", "dev-context-de-question-en.json", "xquad.de.json", "tydiqa.goldp.sw.dev.json")


@dataclass(frozen=True, slots=True)
class Answer:
    """A part of a context: what it says, and the place of its first character."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the text that answers it.

    Attributes:
        key: its id in the file, which its translations share; ids that a file repeats are numbered.
        question: in words.
        context: holds the answers.
        answers: any of them is right, the first is trained on; none where a translation lost it.
        question_language: of the question.
        context_language: of the context, and so of the answers.
    """

    key: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    question_language: str
    context_language: str


def find_squad_files(folders: Sequence[Path]) -> dict[str, dict[str, Path]]:
    """The files of questions, by split, then language: `de`, or `de-en` for German contexts with English questions.

    Raises:
        DataError: a folder is missing, there is nothing in any, or two files are the same split of one language.
    """
    return find_split_files(folders, _NAMES, "question", _EXAMPLES, _languages_of)


def pair_name(context: str, question: str) -> str:
    """What a file in these two languages is called: the language itself, or `context-question`."""
    return context if context == question else f"{context}-{question}"


def pair_languages(name: str) -> tuple[str, str]:
    """The languages of contexts and questions that a name of `pair_name` says.

    `en-de` is English with German questions, not the English of Germany, which is `en-DE`.

    Raises:
        ConfigError: it says none.
    """
    if is_language(name) and check_language(name) == name:
        return name, name
    parts = name.split("-")
    for cut in range(1, len(parts)):
        context, question = "-".join(parts[:cut]), "-".join(parts[cut:])
        if is_language(context) and is_language(question):
            return check_language(context), check_language(question)
    language = check_language(name)
    return language, language


def read_squad(path: Path, context_language: str, question_language: str) -> list[Question]:
    """The questions of a file.

    Raises:
        DataError: the file is not SQuAD's JSON, holds no answered question, or the context does not hold an answer
            where the answer says (named by file and id).
    """
    rows = list(_read_rows(path))
    repeated = Counter(str(row["id"]) for row, _ in rows)
    seen: Counter[str] = Counter()
    questions = []
    for row, context in rows:
        key = str(row["id"])
        seen[key] += 1
        answers = tuple(_check_answer(path, key, context, answer) for answer in row["answers"] if answer["text"])
        name = f"{key}#{seen[key]}" if repeated[key] > 1 else key
        questions.append(Question(name, row["question"], context, answers, question_language, context_language))
    if not questions:
        raise DataError(f"{path} holds no question.")
    if not any(question.answers for question in questions):
        raise DataError(
            f"{path}: no question has an answer. XTREME empties those of its test files: take the data set's own file."
        )
    return questions


def _read_rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Each question as the file has it, and its context."""
    try:
        file = json.loads(path.read_text(encoding="utf-8-sig"))
        for article in file["data"]:
            for paragraph in article["paragraphs"]:
                for row in paragraph["qas"]:
                    _check_types(row, paragraph["context"])
                    yield row, paragraph["context"]
    except FileNotFoundError:
        raise DataError(f"{path} is missing; give the folder that holds the task's data.") from None
    except KeyError as error:
        raise DataError(f"{path} is not SQuAD 1.1: {error} is missing.") from None
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not SQuAD 1.1: {error}.") from None


def _check_types(row: dict[str, Any], context: Any) -> None:
    texts = [context, row["question"], *(answer["text"] for answer in row["answers"])]
    if not all(isinstance(text, str) for text in texts) or not isinstance(row["id"], str | int):
        raise TypeError(f"question {row['id']} has a text that is none")


def _check_answer(path: Path, key: str, context: str, answer: dict[str, Any]) -> Answer:
    text, start = answer["text"], answer["answer_start"]
    if not isinstance(start, int) or start < 0 or not context.startswith(text, start):
        raise DataError(
            f"{path}, question {key}: the context does not hold the answer {text!r} at character {start}; correct its "
            "answer_start or leave the question out."
        )
    return Answer(text, start)


def _languages_of(name: str, path: Path) -> tuple[str]:
    context, _, question = name.partition(_CROSSED)
    known = name_language(context or "en", path)
    return (pair_name(known, name_language(question, path) if question else known),)
