"""Question answering: files of SQuAD's form, windows, best span, and the rules of answers."""

from __future__ import annotations

import json
import random
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.errors import DataError
from xalign_ray.models.tokenized import Features, Inputs
from xalign_ray.tasks.task import Measure, ReplaceWord, TunedTask
from xalign_ray.tasks.task_files import name_language, split_of
from xalign_ray.tasks.text_classification import replace_running_words
from xalign_ray.vocabulary.tokenizer import encode_text
from xalign_ray.vocabulary.words import begin_of_marks, end_of_marks
from xalign_ray.work.file_checks import open_file

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder


# Rules by which answers to questions are compared: MLQA's official script, and SQuAD 1.1's.

_ARTICLES: Mapping[str, re.Pattern[str]] = {
    "en": re.compile(r"\b(?:a|an|the)\b"),
    "es": re.compile(r"\b(?:un|una|unos|unas|el|la|los|las)\b"),
    "de": re.compile(r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    "vi": re.compile(r"\b(?:c\u1ee7a|l\u00e0|c\u00e1i|chi\u1ebfc|nh\u1eefng)\b"),
    "ar": re.compile("\u0627\u0644"),  # wherever it stands: the official script's pattern, and so the published scores
}
_ASCII_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))
_TOKEN = {"zh": re.compile(r"[\u4e00-\u9fa5]|[^\s\u4e00-\u9fa5]+")}  # else what white space parts
Compare = Callable[[Sequence[str], Sequence[str]], float]
Tokens = Callable[[str, str], list[str]]  # of an answer and its language


def mlqa_tokens(text: str, language: str) -> list[str]:
    """The tokens of an answer as MLQA's official script makes them (Lewis et al. 2020), in its order.

    Lower case; no punctuation (Unicode's categories P, and ASCII's); no articles; then tokens between white space, in
    Chinese each ideograph. A language that MLQA lacks has no articles and white space.
    """
    bare = text.lower().translate(_punctuation())
    articles = _ARTICLES.get(language.partition("-")[0])
    return [match[0] for match in _tokens(articles.sub(" ", bare) if articles else bare, language)]


def squad_tokens(text: str, language: str) -> list[str]:  # noqa: ARG001
    """The tokens of an answer as SQuAD 1.1's official script makes them, which XTREME calls for XQuAD and TyDiQA.

    In every language the same: lower case, no ASCII punctuation, no English articles, tokens between white space.
    """
    return _ARTICLES["en"].sub(" ", text.lower().translate(_ASCII_PUNCTUATION)).split()


TOKENS: Mapping[str, Tokens] = {"mlqa": mlqa_tokens, "squad": squad_tokens}


def exact_match(said: Sequence[str], right: Sequence[str]) -> float:
    """1 if the tokens are the same in the same order. Nothing equals an answer that is articles only."""
    return float(list(said) == list(right))


def token_f1(said: Sequence[str], right: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over tokens, each as often as it occurs; 0 if none is shared."""
    shared = (Counter(said) & Counter(right)).total()
    return 2 * shared / (len(said) + len(right)) if shared else 0.0


def best_match(said: str, right: Sequence[str], language: str, compare: Compare, tokens: Tokens) -> float:
    """The comparison (`exact_match`, `token_f1`) with the right answer that fits best, in the context's language."""
    said_tokens = tokens(said, language)
    return max(compare(said_tokens, tokens(answer, language)) for answer in right)


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


LONGEST_WINDOW = 384  # this and the next four: XTREME's
STRIDE = 128
LONGEST_QUESTION = 64
BEST = 20
LONGEST_ANSWER = 30  # pieces
_ELSEWHERE = 0  # a window without the answer points at its first token

Logits = NDArray[np.float32]  # [2, C]: for the first and the last piece, of each piece of a window's context


@dataclass(frozen=True, slots=True)
class Answer:
    """A part of a context: its text, and the place of its first character."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the text that answers it."""

    key: str  # its id in the file, which its translations share; ids that a file repeats are numbered
    question: str
    context: str
    answers: tuple[Answer, ...]  # any is right, the first is trained on; none where a translation lost it
    question_language: str
    context_language: str  # and so of the answers

    @property
    def gold(self) -> list[str]:
        return [answer.text for answer in self.answers]


@dataclass(frozen=True, slots=True)
class Context:
    """A context in pieces."""

    text: str  # as written
    ids: tuple[int, ...]
    starts: tuple[int, ...]  # the place in the text of each piece's first character that is no white space
    ends: tuple[int, ...]  # the place behind its last one


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a context that one input holds."""

    context: Context
    shift: int  # where the context begins in the input
    begin: int  # the first piece of the context that is in the input
    size: int  # how many are


class QuestionAnsweringTask(TunedTask[Question]):
    """A task whose answers are cut out of contexts, in files of SQuAD's form.

    A language is that of the contexts, or two: `de-en` is German contexts with English questions. Metrics are
    computed `by` f1 or em, or by f1_gxlt and em_gxlt where the two languages differ. All can be trained on SQuAD, its
    translations by XTREME and MLQA, and TyDiQA.

    Attributes:
        tokens: the rule for what of an answer is compared, of `TOKENS`.
    """

    head = "AutoModelForQuestionAnswering"
    longest = LONGEST_WINDOW
    same_heads = ("mlqa", "xquad", "tydiqa", "squad")
    lent = (
        "{split}-v1.1.json",
        "squad.translate.train.en-{language}.json",
        "{language}_squad-translate-train-train-v1.1.json",
        "tydiqa.goldp.{language}.{split}.json",
    )
    tokens: ClassVar[str] = "squad"

    def languages_of(self, parts: Mapping[str, str], path: Path) -> Collection[str]:
        if "first" not in parts:
            return super().languages_of(parts, path)
        return (pair_name(name_language(parts["first"], path), name_language(parts["second"], path)),)

    def canonical(self, language: str) -> str:
        return pair_name(*pair_languages(language))

    def speaks(self, language: str) -> Sequence[str]:
        return tuple(dict.fromkeys(pair_languages(language)))

    def read(self, path: Path, language: str) -> list[Question]:
        """The questions of a file; DataError if one that would be scored has no answer."""
        questions = read_squad(path, *pair_languages(language))
        lacking = [question.key for question in questions if not question.answers]
        if lacking and split_of(path.name) != "train":
            raise DataError(
                f"{path}: {len(lacking)} of {len(questions)} questions have no answer, such as {lacking[0]}; each that "
                "is scored needs one. SQuAD 2.0 has such questions: leave them out, or take SQuAD 1.1."
            )
        return questions

    def from_gold(self, key: str, gold: Sequence[str], language: str) -> Question:
        context_language, question_language = pair_languages(language)
        answers = tuple(Answer(text, 0) for text in gold)
        return Question(key, "", "", answers, question_language, context_language)

    def measure(self, examples: Sequence[Question], predicted: Sequence[str]) -> dict[str, Measure]:
        """F1 and exact match, best over the right answers; chance is that of random spans."""
        language, tokens = examples[0].context_language, TOKENS[self.tokens]
        crossed = "_gxlt" * (language != examples[0].question_language)
        chance = [
            random_answer(example.key, example.context, example.answers[0].text, language) for example in examples
        ]

        def mean(answers: Sequence[str], compare: Compare) -> float:
            pairs = zip(answers, examples, strict=True)
            return sum(best_match(answer, example.gold, language, compare, tokens) for answer, example in pairs) / len(
                examples
            )

        return {
            metric.name: Measure(mean(predicted, compare), mean(chance, compare), len(examples))
            for metric in self.metrics
            for by, compare in (("f1", token_f1), ("em", exact_match))
            if metric.by == by + crossed
        }

    def features(
        self,
        inputs: Inputs,
        examples: Sequence[Question],
        classes: Sequence[str],  # noqa: ARG002
    ) -> list[list[Features]]:
        """The windows of each question, of at most 384 pieces, also those without the answer.

        A window begins 128 pieces after the one before, or half of its context where a shorter model leaves less than
        256. A question keeps its first 64 pieces, and never more than half of the room.
        """
        contexts = piece_contexts(inputs, [question.context for question in examples])
        pieces = inputs.piece_texts([question.question for question in examples])
        free = inputs.room(self.longest) - len(inputs.middle)
        return [
            _slide(inputs, question, ids[: min(LONGEST_QUESTION, free // 2)], contexts[question.context], free)
            for question, ids in zip(examples, pieces, strict=True)
        ]

    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[str]:
        """The answer to each question, a literal part of its context."""
        import torch

        flat = [window for part in features for window in part]
        logits = iter(tuned.forward(flat, lambda out: torch.stack([out.start_logits, out.end_logits], 1).float()))
        answers = []
        for part in features:
            windows: list[Window] = [window["window"] for window in part]
            inside = [next(logits)[:, at.shift : at.shift + at.size] for at in windows]
            span, context = best_span(windows, inside), windows[0].context
            answers.append("" if span is None else context.text[context.starts[span[0]] : context.ends[span[1]]])
        return answers

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


def piece_contexts(inputs: Inputs, texts: Sequence[str]) -> dict[str, Context]:
    """Each text in pieces, with offsets in the original text."""
    if not inputs.tokenizer.is_fast:
        raise DataError(
            f"{inputs.encoder} has a tokenizer without offsets, which answers cannot be cut out with; save it with a "
            "tokenizer.json."
        )
    unique = list(dict.fromkeys(texts))
    if not unique:
        return {}
    pieces = encode_text(inputs.tokenizer.backend_tokenizer, unique)
    return {text: _trim(text, ids, offsets) for text, ids, offsets in zip(unique, *pieces, strict=True)}


def best_span(windows: Sequence[Window], logits: Sequence[Logits]) -> tuple[int, int] | None:
    """The first and last context piece of the answer with the highest sum of logits, or None if there is none.

    Of each window the 20 best first and 20 best last pieces are paired, at most 30 pieces apart. An answer is taken
    from the window that holds most context around its first piece (Devlin et al.'s run_squad). All windows are of one
    question.
    """
    best, score = None, -np.inf
    for window, own_pieces, (firsts, lasts) in zip(windows, _own_pieces(windows), logits, strict=True):
        starts = np.argsort(-firsts, kind="stable")[:BEST]
        ends = np.argsort(-lasts, kind="stable")[:BEST]
        starts = starts[own_pieces[starts]]
        length = ends[None, :] - starts[:, None] + 1
        sums = np.where((length >= 1) & (length <= LONGEST_ANSWER), firsts[starts][:, None] + lasts[ends], -np.inf)
        if sums.size and sums.max() > score:
            row, column = np.unravel_index(sums.argmax(), sums.shape)
            best, score = (window.begin + int(starts[row]), window.begin + int(ends[column])), sums.max()
    return best


def _own_pieces(windows: Sequence[Window]) -> list[NDArray[np.bool_]]:
    """For each window, which of its context pieces have more context in it than in any other; the first of equals."""
    around = np.full((len(windows), max(window.begin + window.size for window in windows)), -np.inf)
    for number, window in enumerate(windows):
        left = np.arange(window.size)
        inside = slice(window.begin, window.begin + window.size)
        around[number, inside] = np.minimum(left, left[::-1]) + 0.01 * window.size
    best_window = around.argmax(axis=0) if around.size else np.zeros(0, dtype=np.int64)
    return [best_window[window.begin : window.begin + window.size] == number for number, window in enumerate(windows)]


def _slide(inputs: Inputs, question: Question, asked: Sequence[int], context: Context, free: int) -> list[Features]:
    room = free - len(asked)
    stride = STRIDE if room >= 2 * STRIDE else max(1, room // 2)
    answer = _find_answer(question, context)
    shift = len(inputs.prefix) + len(asked) + len(inputs.middle)
    languages = question.question_language, question.context_language
    windows = []
    for begin in range(0, max(1, len(context.ids) - room + stride), stride):
        ids = context.ids[begin : begin + room]
        first, last = _ELSEWHERE, _ELSEWHERE
        if answer and begin <= answer[0] and answer[1] < begin + len(ids):
            first, last = (shift + piece - begin for piece in answer)
        features = inputs.pair(asked, ids, languages) | {"start_positions": first, "end_positions": last}
        windows.append(features | {"window": Window(context, shift, begin, len(ids))})
    return windows


def _find_answer(question: Question, context: Context) -> tuple[int, int] | None:
    """The first and the last piece that share a character with the first answer."""
    if not question.answers:
        return None
    begin, end = question.answers[0].start, question.answers[0].start + len(question.answers[0].text)
    spans = enumerate(zip(context.starts, context.ends, strict=True))
    inside = [piece for piece, (start, stop) in spans if start < end and stop > begin]
    return (inside[0], inside[-1]) if inside else None


def _trim(text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Context:
    """Pieces without the white space that some tokenizers count to the word behind it, and with the marks around them.

    The offsets of a tokenizer that strips or composes combining marks end before them: vowel signs, accents in NFD.
    One that strips invisible characters begins behind those at the beginning of a word.
    """
    starts, ends = [], []
    next_starts = [*(start for start, _ in offsets[1:]), len(text)]
    for (start, end), following in zip(offsets, next_starts, strict=False):
        part = text[start:end]
        start, end = start + len(part) - len(part.lstrip()), start + len(part.rstrip())
        is_blank = end <= start
        starts.append(start if is_blank else begin_of_marks(text, start, ends[-1] if ends else 0))
        ends.append(start if is_blank else end_of_marks(text, end, following))
    return Context(text, tuple(ids), tuple(starts), tuple(ends))


def pair_name(context: str, question: str) -> str:
    """The name of a file in these two languages."""
    return context if context == question else f"{context}-{question}"


def pair_languages(name: str) -> tuple[str, str]:
    """The languages of contexts and questions in a name of `pair_name`; ConfigError if it has none.

    `en-de` is English with German questions, not the English of Germany, which is `en-DE`.
    """
    dashes = [] if is_language(name) and check_language(name) == name else re.finditer("-", name)
    for dash in dashes:
        context, question = name[: dash.start()], name[dash.end() :]
        if is_language(context) and is_language(question):
            return check_language(context), check_language(question)
    return check_language(name), check_language(name)


def read_squad(path: Path, context_language: str, question_language: str) -> list[Question]:
    """The questions of a file of SQuAD's JSON; DataError for another form, or an answer that is not at its place."""
    rows = list(_read_rows(path))
    counts, seen = Counter(str(row["id"]) for row, _, _ in rows), Counter()
    questions = []
    for row, context, answers in rows:
        key = str(row["id"])
        seen[key] += 1
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


_FORM = "read is a JSON object whose data lists articles, their paragraphs, and in each a context and its qas"


def _read_rows(path: Path) -> Iterator[tuple[dict[str, Any], str, tuple[Answer, ...]]]:
    """Each question as the file has it, its context and its answers that hold text."""
    if not path.is_file():
        raise DataError(f"{path} is missing; give the folder that holds the task's data.")
    try:
        with open_file(path) as file:
            content = json.loads(file.read().decode("utf-8-sig"))
        if not isinstance(content, dict) or "data" not in content:
            raise DataError(f"{path} is not SQuAD 1.1: it is a list or has no data; {_FORM}.")
        paragraphs = (paragraph for article in content["data"] for paragraph in article["paragraphs"])
        for row, context in ((row, paragraph["context"]) for paragraph in paragraphs for row in paragraph["qas"]):
            answers = row["answers"] or []
            if isinstance(answers, dict):  # as Hugging Face's tables have them: a list of texts and one of places
                answers = [dict(zip(answers, answer, strict=True)) for answer in zip(*answers.values(), strict=True)]
            texts = [context, row["question"], *(answer["text"] for answer in answers)]
            if not all(isinstance(text, str) for text in texts) or not isinstance(row["id"], str | int):
                raise TypeError(f"question {row['id']} has a text that is none")
            yield (
                row,
                context,
                tuple(Answer(answer["text"], answer["answer_start"]) for answer in answers if answer["text"]),
            )
    except KeyError as error:
        raise DataError(f"{path} is not SQuAD 1.1: {error} is missing; {_FORM}.") from None
    except (ValueError, TypeError) as error:
        reason = "it holds JSON lines" if "Extra data" in str(error) else error
        raise DataError(f"{path} is not SQuAD 1.1: {reason}; {_FORM}.") from None
