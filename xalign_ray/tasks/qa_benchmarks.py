"""MLQA, XQuAD, TyDiQA-GoldP and SQuAD: F1 and exact match of answers, each by its benchmark's own rules."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.errors import DataError
from xalign_ray.tasks.question_answering import (
    Answer,
    Compare,
    Question,
    QuestionAnsweringTask,
    Tokens,
    best_match,
    exact_match,
    mlqa_tokens,
    random_answer,
    squad_tokens,
    token_f1,
)
from xalign_ray.tasks.task import Files, Measure, Metric, ReplaceWord
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT, name_language
from xalign_ray.tasks.text_classification import replace_running_words
from xalign_ray.work.file_checks import open_file

_CROSSED = "-question-"
# Names of files by benchmark
_OF_MLQA = re.compile(rf"(?P<split>dev|test)-context-(?P<language>[A-Za-z0-9-]+{_CROSSED}[A-Za-z0-9-]+)\.json")
_OF_XQUAD = re.compile(rf"(?P<split>)xquad\.{LANGUAGE}\.json")  # for testing only
_OF_TYDIQA = re.compile(rf"tydiqa\.goldp\.{LANGUAGE}\.(?P<split>train|dev)\.json")
_OF_SQUAD = re.compile(r"(?P<language>)(?P<split>train|dev)-v1\.1\.json")  # English
_LABELS = re.compile(rf"{SPLIT}-{LANGUAGE}\.json")  # XTREME's, of any of its benchmarks
_LENT = (  # files that a model of any benchmark can be trained and chosen on
    _OF_SQUAD,
    re.compile(rf"squad\.translate\.(?P<split>train)\.en-{LANGUAGE}\.json"),  # XTREME's translations of SQuAD
    re.compile(rf"{LANGUAGE}_squad-translate-train-(?P<split>train)-v1\.1\.json"),  # MLQA's
    _OF_TYDIQA,
)
_TOKENS, _EXACT = "F1 over the tokens of answers", "answers that match exactly"


class QaBenchmark(QuestionAnsweringTask):
    """The questions of one benchmark. SQuAD's files, its translations and TyDiQA's can be trained on in each.

    Attributes:
        title: of the benchmark.
        tokens: its rule for what of an answer is compared.
        own: names of the files that are scored, which are the benchmark's alone.
    """

    title: ClassVar[str]
    tokens: ClassVar[Tokens]
    own: ClassVar[tuple[re.Pattern[str], ...]]
    same_heads = ("mlqa", "xquad", "tydiqa", "squad")

    def choose_tested(
        self, found: Files, asked: Sequence[str] | None, tuned_on: str, folders: Sequence[Path]
    ) -> dict[str, str]:
        """As other tasks, of the benchmark's own files; DataError if there is none."""
        own = {
            split: {code: path for code, path in files.items() if any(name.fullmatch(path.name) for name in self.own)}
            for split, files in found.items()
        }
        if not own["test"] and not own["dev"]:
            raise DataError(
                f"{', '.join(map(str, folders))}: no file of {self.title} to score. MLQA, XQuAD, TyDiQA and SQuAD are "
                "tasks of their own (mlqa, xquad, tydiqa, squad), which score their own files."
            )
        return super().choose_tested(own, asked, tuned_on, folders)

    def languages_of(self, code: str, path: Path) -> Sequence[str]:
        context, _, question = code.partition(_CROSSED)
        known = name_language(context or "en", path)
        return (pair_name(known, name_language(question, path) if question else known),)

    def read(self, path: Path, language: str) -> list[Question]:
        """The questions of a file; DataError if one that would be scored has no answer."""
        questions = read_squad(path, *pair_languages(language))
        split = next((match["split"] for name in self.patterns if (match := name.fullmatch(path.name))), "train")
        lacking = [question.key for question in questions if not question.answers]
        if lacking and split != "train":
            raise DataError(
                f"{path}: {len(lacking)} of {len(questions)} questions have no answer, such as {lacking[0]}; each that "
                "is scored needs one. SQuAD 2.0 has such questions: leave them out, or take SQuAD 1.1."
            )
        return questions

    def canonical(self, language: str) -> str:
        return pair_name(*pair_languages(language))

    def speaks(self, language: str) -> Sequence[str]:
        return tuple(dict.fromkeys(pair_languages(language)))

    def from_gold(self, key: str, gold: Sequence[str], language: str) -> Question:
        context_language, question_language = pair_languages(language)
        answers = tuple(Answer(text, 0) for text in gold)
        return Question(key, "", "", answers, question_language, context_language)

    def measure(self, examples: Sequence[Question], predicted: Sequence[str]) -> dict[str, Measure]:
        return measure_answers(examples, predicted, self.name, type(self).tokens)

    def switch(self, english: Question, other: Question) -> list[Question]:
        """The translated question on the English context, and the other way round, where the answer is not lost."""
        switched = [
            replace(context, question=asked.question, question_language=asked.question_language)
            for asked, context in ((other, english), (english, other))
        ]
        return [question for question in switched if question.answers]

    def replace_words(self, example: Question, replace_word: ReplaceWord) -> Question:
        """Words of question and context are replaced, but not those that an answer holds or begins or ends in."""
        spans = [(answer.start, answer.start + len(answer.text)) for answer in example.answers]
        moved: dict[int, int] = {}
        context = ""
        for match in re.finditer(r"\S+|\s+", example.context):
            begin, end = match.span()
            inside = [start for start, stop in spans if start < end and stop > begin]
            moved |= {start: len(context) + start - begin for start in inside if start >= begin}
            context += match[0] if inside else replace_running_words(match[0], replace_word)
        return replace(
            example,
            question=replace_running_words(example.question, replace_word),
            context=context,
            answers=tuple(Answer(answer.text, moved[answer.start]) for answer in example.answers),
        )


class MlqaTask(QaBenchmark):
    """MLQA, by its official script.

    `de` is German in German (XLT); `de-en` is German contexts with English questions (G-XLT), whose metrics end in
    `_gxlt`, so that the mean over languages keeps the two apart: the diagonal of MLQA's 7 x 7 is in the first only.
    Answers are normalised by the language of the context.
    """

    name, title, tokens = "mlqa", "MLQA", mlqa_tokens
    metrics = tuple(
        Metric(f"mlqa_{metric}{suffix}", f"{title}, {short}", f"{meaning}, question and context in {languages}")
        for suffix, title, languages in (
            ("", "Questions (MLQA)", "one language"),
            ("_gxlt", "Questions in another language (MLQA)", "two languages"),
        )
        for metric, short, meaning in (("f1", "F1", _TOKENS), ("em", "exact match", _EXACT))
    )
    own = (_OF_MLQA, _LABELS)
    patterns = (*own, *_LENT)
    file_names = ("{split}-v1.1.json", "dev-context-de-question-en.json", "test-de.json")


def _metrics(name: str, title: str) -> tuple[Metric, ...]:
    return (
        Metric(f"{name}_f1", f"Questions ({title}), F1", f"{_TOKENS}, by SQuAD's script"),
        Metric(f"{name}_em", f"Questions ({title}), exact match", f"{_EXACT}, by SQuAD's script"),
    )


class XquadTask(QaBenchmark):
    """XQuAD, by SQuAD's script as in XTREME. It is for testing: models are trained and chosen on SQuAD."""

    name, title, tokens = "xquad", "XQuAD", squad_tokens
    metrics = _metrics("xquad", "XQuAD")
    own = (_OF_XQUAD, _LABELS)
    patterns = (*own, *_LENT)
    file_names = ("{split}-v1.1.json", "xquad.de.json", "test-de.json")


class TydiqaTask(QaBenchmark):
    """TyDiQA-GoldP, by SQuAD's script as in XTREME; scored on its dev files, as it has no others."""

    name, title, tokens = "tydiqa", "TyDiQA", squad_tokens
    metrics = _metrics("tydiqa", "TyDiQA")
    own = (_OF_TYDIQA, _LABELS)
    patterns = (*_LENT, _LABELS)
    file_names = ("tydiqa.goldp.{language}.{split}.json", "test-sw.json")


class SquadTask(QaBenchmark):
    """SQuAD 1.1, English, by its script; scored on its dev file, as its test file is not published."""

    name, title, tokens = "squad", "SQuAD", squad_tokens
    metrics = _metrics("squad", "SQuAD")
    own = (_OF_SQUAD,)
    patterns = _LENT
    file_names = ("{split}-v1.1.json", "dev-v1.1.json")


def measure_answers(
    questions: Sequence[Question], said: Sequence[str], benchmark: str, tokens: Tokens
) -> dict[str, Measure]:
    """F1 and exact match of an answer to each question, best over its right answers; chance is that of random spans."""
    language = questions[0].context_language
    same = language == questions[0].question_language
    right = [[answer.text for answer in question.answers] for question in questions]
    chance = [random_answer(one.key, one.context, one.answers[0].text, language) for one in questions]

    def mean(answers: Sequence[str], compare: Compare) -> float:
        pairs = zip(answers, right, strict=True)
        return sum(best_match(answer, texts, language, compare, tokens) for answer, texts in pairs) / len(right)

    return {
        f"{benchmark}_{metric}{'' if same else '_gxlt'}": Measure(
            mean(said, compare), mean(chance, compare), len(questions)
        )
        for metric, compare in {"f1": token_f1, "em": exact_match}.items()
    }


def pair_name(context: str, question: str) -> str:
    """What a file in these two languages is called."""
    return context if context == question else f"{context}-{question}"


def pair_languages(name: str) -> tuple[str, str]:
    """The languages of contexts and questions that a name of `pair_name` says; ConfigError if it says none.

    `en-de` is English with German questions, not the English of Germany, which is `en-DE`.
    """
    dashes = [] if is_language(name) and check_language(name) == name else re.finditer("-", name)
    for dash in dashes:
        context, question = name[: dash.start()], name[dash.end() :]
        if is_language(context) and is_language(question):
            return check_language(context), check_language(question)
    return check_language(name), check_language(name)


def read_squad(path: Path, context_language: str, question_language: str) -> list[Question]:
    """The questions of a file of SQuAD's JSON; DataError for another form, or an answer that is not where it says."""
    rows = list(_read_rows(path))
    counts, seen = Counter(str(row["id"]) for row, _ in rows), Counter()
    questions = []
    for row, context in rows:
        key = str(row["id"])
        seen[key] += 1
        answers = tuple(Answer(one["text"], one["answer_start"]) for one in row["answers"] if one["text"])
        for text, start in ((answer.text, answer.start) for answer in answers):
            if not isinstance(start, int) or start < 0 or not context.startswith(text, start):
                raise DataError(
                    f"{path}, question {key}: the context does not hold the answer {text!r} at character {start}; "
                    "correct its answer_start or leave the question out."
                )
        name = f"{key}#{seen[key]}" if counts[key] > 1 else key
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
    if not path.is_file():
        raise DataError(f"{path} is missing; give the folder that holds the task's data.")
    try:
        with open_file(path) as file:
            articles = json.loads(file.read().decode("utf-8-sig"))["data"]
        paragraphs = (paragraph for article in articles for paragraph in article["paragraphs"])
        for row, context in ((row, paragraph["context"]) for paragraph in paragraphs for row in paragraph["qas"]):
            texts = [context, row["question"], *(answer["text"] for answer in row["answers"])]
            if not all(isinstance(text, str) for text in texts) or not isinstance(row["id"], str | int):
                raise TypeError(f"question {row['id']} has a text that is none")
            yield row, context
    except KeyError as error:
        raise DataError(f"{path} is not SQuAD 1.1: {error} is missing.") from None
    except (ValueError, TypeError) as error:
        raise DataError(f"{path} is not SQuAD 1.1: {error}.") from None


MLQA, XQUAD, TYDIQA, SQUAD = MlqaTask(), XquadTask(), TydiqaTask(), SquadTask()
