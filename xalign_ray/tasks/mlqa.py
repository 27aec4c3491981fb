"""Questions answered by a part of a context (MLQA and its like): F1 and exact match, in one language and across two."""

from __future__ import annotations

import json
import random
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.file_checks import open_file
from xalign_ray.tasks.question_answering import Answer, Question, QuestionAnsweringTask
from xalign_ray.tasks.task import Measure, Metric, ReplaceWord
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT, name_language
from xalign_ray.tasks.text_classification import replace_running_words
from xalign_ray.text.language_codes import check_language, is_language

_CROSSED = "-question-"
_ARTICLES: Mapping[str, re.Pattern[str]] = {
    "en": re.compile(r"\b(?:a|an|the)\b"),
    "es": re.compile(r"\b(?:un|una|unos|unas|el|la|los|las)\b"),
    "de": re.compile(r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    "vi": re.compile(r"\b(?:c\u1ee7a|l\u00e0|c\u00e1i|chi\u1ebfc|nh\u1eefng)\b"),
    "ar": re.compile("\u0627\u0644"),  # wherever it stands: the official script's pattern, and so the published scores
}
_TOKEN = {"zh": re.compile(r"[\u4e00-\u9fa5]|[^\s\u4e00-\u9fa5]+")}  # else what white space parts
_TOKENS, _EXACT = "F1 over the tokens of answers", "answers that match exactly"
Compare = Callable[[Sequence[str], Sequence[str]], float]


class MlqaTask(QuestionAnsweringTask):
    """Files are MLQA's, XQuAD's, TyDiQA-GoldP's, SQuAD's, its translations, and XTREME's labels, all SQuAD 1.1 JSON.

    `de` is German in German (XLT); `de-en` is German contexts with English questions (G-XLT), whose metrics end in
    `_gxlt`, so that the mean over languages keeps the two apart: the diagonal of MLQA's 7 x 7 is in the first only.
    Answers are normalised by the language of the context.
    """

    name = "mlqa"
    metrics = tuple(
        Metric(f"mlqa_{metric}{suffix}", f"{title}, {short}", f"{meaning}, question and context in {languages}")
        for suffix, title, languages in (
            ("", "Questions (MLQA)", "one language"),
            ("_gxlt", "Questions in another language (MLQA)", "two languages"),
        )
        for metric, short, meaning in (("f1", "F1", _TOKENS), ("em", "exact match", _EXACT))
    )
    file_names = ("{split}-v1.1.json", "dev-context-de-question-en.json", "xquad.de.json", "tydiqa.goldp.sw.dev.json")
    patterns = (
        re.compile(rf"(?P<split>dev|test)-context-(?P<language>[A-Za-z0-9-]+{_CROSSED}[A-Za-z0-9-]+)\.json"),  # MLQA
        re.compile(rf"{SPLIT}-{LANGUAGE}\.json"),  # XTREME's labels
        re.compile(rf"(?P<split>)xquad\.{LANGUAGE}\.json"),  # XQuAD, which is for testing
        re.compile(rf"tydiqa\.goldp\.{LANGUAGE}\.(?P<split>train|dev)\.json"),
        re.compile(r"(?P<language>)(?P<split>train|dev)-v1\.1\.json"),  # SQuAD, which is English
        re.compile(rf"squad\.translate\.(?P<split>train)\.en-{LANGUAGE}\.json"),  # XTREME's translations of SQuAD
        re.compile(rf"{LANGUAGE}_squad-translate-train-(?P<split>train)-v1\.1\.json"),  # MLQA's
    )

    def languages_of(self, code: str, path: Path) -> Sequence[str]:
        context, _, question = code.partition(_CROSSED)
        known = name_language(context or "en", path)
        return (pair_name(known, name_language(question, path) if question else known),)

    def read(self, path: Path, language: str) -> list[Question]:
        return read_squad(path, *pair_languages(language))

    def canonical(self, language: str) -> str:
        return pair_name(*pair_languages(language))

    def speaks(self, language: str) -> Sequence[str]:
        return tuple(dict.fromkeys(pair_languages(language)))

    def measure(self, examples: Sequence[Question], predicted: Sequence[str]) -> dict[str, Measure]:
        return measure_answers(examples, predicted)

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


def measure_answers(questions: Sequence[Question], said: Sequence[str]) -> dict[str, Measure]:
    """F1 and exact match of an answer to each question, best over its right answers; chance is that of random spans."""
    language = questions[0].context_language
    same = language == questions[0].question_language
    if lacking := [question.key for question in questions if not question.answers]:
        raise DataError(
            f"{len(lacking)} of {len(questions)} {language} questions have no answer, such as {lacking[0]}; what is "
            "scored needs one each."
        )
    right = [[answer.text for answer in question.answers] for question in questions]
    chance = [random_answer(one.key, one.context, one.answers[0].text, language) for one in questions]

    def mean(answers: Sequence[str], compare: Compare) -> float:
        pairs = zip(answers, right, strict=True)
        return sum(best_match(answer, texts, language, compare) for answer, texts in pairs) / len(right)

    return {
        metric if same else f"{metric}_gxlt": Measure(mean(said, compare), mean(chance, compare), len(questions))
        for metric, compare in {"mlqa_f1": token_f1, "mlqa_em": exact_match}.items()
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


def normalise(text: str, language: str) -> list[str]:
    """The tokens of an answer, as MLQA's official script makes them (Lewis et al. 2020), in its order.

    Lower case; no punctuation (Unicode's categories P, and ASCII's); no articles; then tokens between white space, in
    Chinese each ideograph by itself. A language that MLQA lacks has no articles and white space.
    """
    bare = text.lower().translate(_punctuation())
    articles = _ARTICLES.get(language.partition("-")[0])
    return [match[0] for match in _tokens(articles.sub(" ", bare) if articles else bare, language)]


def exact_match(said: Sequence[str], right: Sequence[str]) -> float:
    """1 if the tokens are the same in the same order. Nothing equals an answer that is articles only."""
    return float(list(said) == list(right))


def token_f1(said: Sequence[str], right: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over tokens, each as often as it occurs; 0 if none is shared."""
    shared = (Counter(said) & Counter(right)).total()
    return 2 * shared / (len(said) + len(right)) if shared else 0.0


def best_match(said: str, right: Sequence[str], language: str, compare: Compare) -> float:
    """The comparison (`exact_match`, `token_f1`) with the right answer that fits best, in the context's language."""
    tokens = normalise(said, language)
    return max(compare(tokens, normalise(answer, language)) for answer in right)


def random_answer(key: str, context: str, right: str, language: str) -> str:
    """As many tokens as the right answer has, from a place in the context that depends on the question's key alone.

    The level of a model that knows how long answers are and not where: by hash, so that it is a fact of the file.
    """
    tokens = list(_tokens(context, language))
    length = min(len(tokens), len(list(_tokens(right, language))))
    first = random.Random(f"answer/{key}").randrange(len(tokens) - length + 1)
    return context[tokens[first].start() : tokens[first + length - 1].end()] if length else ""


def _tokens(text: str, language: str) -> Iterator[re.Match[str]]:
    return re.finditer(_TOKEN.get(language.partition("-")[0], r"\S+"), text)


@cache
def _punctuation() -> dict[int, None]:
    marks = {code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith("P")}
    return dict.fromkeys(marks | set(map(ord, string.punctuation)))


MLQA = MlqaTask()
