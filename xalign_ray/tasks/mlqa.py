"""Questions answered by a part of a context (MLQA): F1 and exact match, in one language and across two."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import AutoModelForQuestionAnswering

from xalign_ray.errors import DataError
from xalign_ray.tasks.answers import Compare, best_match, exact_match, random_answer, token_f1
from xalign_ray.tasks.classification import replace_running_words
from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.squad import Answer, Question, find_squad_files, pair_languages, pair_name, read_squad
from xalign_ray.tasks.task import Files, Measure, ReplaceWord, TunedTask
from xalign_ray.tasks.windows import Window, batch_windows, make_windows, predict_answers

_PART = re.compile(r"\S+|\s+")
_COMPARISONS: dict[str, Compare] = {"mlqa_f1": token_f1, "mlqa_em": exact_match}


class MlqaTask(TunedTask[Question, Window]):
    """Files are MLQA's, XQuAD's, TyDiQA-GoldP's, SQuAD's, its translations, and XTREME's labels, all SQuAD 1.1 JSON.

    `de` is German in German (XLT); `de-en` is German contexts with English questions (G-XLT), whose metrics end in
    `_gxlt`, so that the mean over languages keeps the two apart: the diagonal of MLQA's 7 x 7 is in the first only.
    Answers are normalised by the language of the context.
    """

    model_class = AutoModelForQuestionAnswering

    def find(self, folders: Sequence[Path]) -> Files:
        return find_squad_files(folders)

    def read(self, path: Path, language: str) -> list[Question]:
        return read_squad(path, *pair_languages(language))

    def choose(self, found: Collection[str], asked: Collection[str] | None, where: object) -> list[str]:
        wanted = {pair_name(*pair_languages(name)) for name in asked or found}
        if missing := sorted(wanted - set(found)):
            raise DataError(f"{where} has no {', '.join(missing)}; it has {', '.join(sorted(found)) or 'none'}.")
        return sorted(wanted)

    def speaks(self, language: str) -> Sequence[str]:
        return tuple(dict.fromkeys(pair_languages(language)))

    def rows(self, inputs: Inputs, examples: Sequence[Question], classes: Sequence[str]) -> list[list[Window]]:  # noqa: ARG002
        """All windows, also those without the answer; none of a question that has no answer."""
        answered = iter(make_windows(inputs, [example for example in examples if example.answers]))
        return [next(answered) if example.answers else [] for example in examples]

    def batch(self, inputs: Inputs, rows: Sequence[Window]) -> dict[str, Tensor]:
        return batch_windows(inputs, rows)

    def score(
        self,
        model: Any,
        inputs: Inputs,
        examples: Sequence[Question],
        classes: Sequence[str],  # noqa: ARG002
        batch_size: int,
    ) -> dict[str, Measure]:
        return measure_answers(examples, predict_answers(model, inputs, examples, batch_size))

    def switch(self, english: Question, other: Question) -> list[Question]:
        """The translated question on the English context, and the English question on the translated context.

        The second is left out where the translation lost the answer, the first where English has none.
        """
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
        for match in _PART.finditer(example.context):
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
    """F1 and exact match of an answer to each question, best over its right answers; chance is that of random spans.

    Raises:
        DataError: a question has no right answer.
    """
    language = questions[0].context_language
    same = language == questions[0].question_language
    if lacking := [question.key for question in questions if not question.answers]:
        raise DataError(
            f"{len(lacking)} of {len(questions)} {language} questions have no answer, such as {lacking[0]}; what is "
            "scored needs one each."
        )
    right = [[answer.text for answer in question.answers] for question in questions]
    chance = [
        random_answer(question.key, question.context, texts[0], language)
        for question, texts in zip(questions, right, strict=True)
    ]

    def mean(answers: Sequence[str], compare: Compare) -> float:
        pairs = zip(answers, right, strict=True)
        return sum(best_match(answer, texts, language, compare) for answer, texts in pairs) / len(right)

    return {
        metric if same else f"{metric}_gxlt": Measure(mean(said, compare), mean(chance, compare), len(questions))
        for metric, compare in _COMPARISONS.items()
    }


MLQA = MlqaTask(name="mlqa", title="questions about a text", example="{split}-{language}.json", metric="mlqa_f1")
