"""Cloze: is a masked word predicted, and better beside its translation? Without training (WEAM, section 3)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.errors import DataError
from xalign_ray.models.open import open_encoder
from xalign_ray.models.tokenized import Features, Inputs, first_position
from xalign_ray.tasks.retrieval import TATOEBA, find_pairs, read_pair
from xalign_ray.tasks.scores import Score, average_languages
from xalign_ray.tasks.task import ENGLISH, Measure, Metric, Task
from xalign_ray.vocabulary.tokenizer import tokenize_lines
from xalign_ray.work.artifacts import hash_file, hash_value

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder

LONGEST_ANSWER = 4  # pieces of a masked word


class ClozeTask(Task):
    """Share of masked words whose pieces are all predicted, beside their English translation and alone, per language.

    One word of each sentence is masked, drawn by a hash of the sentence, so that all encoders with one tokenizer are
    asked the same. Chance is the share of the commonest answer. Its data is Tatoeba's, its encoders are masked language
    models.
    """

    name = "cloze"
    metrics = (
        Metric(
            "cloze_accuracy",
            "Masked words beside their translation",
            "masked words predicted beside their English translation",
        ),
        Metric("cloze_accuracy_alone", "Masked words without it", "the same words predicted without it"),
    )

    def check_data(self, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:
        """Reads all pairs of files."""
        return TATOEBA.check_data(data, languages)

    def evaluate(
        self, encoder: str, data: Path | None, languages: Sequence[str] | None = None, device: str = "auto"
    ) -> list[Score]:
        assert data is not None
        pairs = find_pairs(data, languages)
        predictor = Predictor.open(encoder, device)
        predictor.encoder.inputs.check_languages([ENGLISH, *pairs])
        scores = []
        for language, paths in pairs.items():
            questions = list(ask(predictor.encoder.inputs, *read_pair(paths), language))
            if not questions:
                raise DataError(f"{paths[0]} has no sentence of which a word can be masked.")
            test_set = hash_value([*map(hash_file, paths)])
            answers = [question.answer for question in questions]
            commonest = Counter(answers).most_common(1)[0][1]
            for metric, with_translation in zip(self.metrics, (True, False), strict=True):
                guesses = predictor.answers(questions, with_translation)
                right = sum(guess == other for guess, other in zip(guesses, answers, strict=True))
                measure = Measure(right / len(questions), commonest / len(questions), len(questions))
                scores.append(
                    self.score_of(predictor.encoder, "test", language, metric.name, measure, test_set=test_set)
                )
        return scores + average_languages(scores)


@dataclass(frozen=True, slots=True)
class Question:
    """One masked word: the English sentence, the other with the word's place in it [begin, end), and its language."""

    english: Sequence[int]
    other: Sequence[int]
    begin: int
    end: int
    language: str

    @property
    def answer(self) -> tuple[int, ...]:
        return tuple(self.other[self.begin : self.end])


@dataclass(frozen=True, slots=True)
class Predictor:
    """A masked language model with the input conventions that it was trained on."""

    encoder: Encoder
    reset: bool  # positions of the second sentence start again at 1, as if it stood alone
    segments: bool  # the second sentence has segment 1
    head: Any  # the conditioned head of a folder that has one; the model is then a bare encoder

    @classmethod
    def open(cls, folder: str, device: str = "auto") -> Predictor:
        """Opens an exported folder, any other local masked language model, or a hub id."""
        from transformers import AutoModel, AutoModelForMaskedLM

        from xalign_ray.models.export import HEAD_FILE, load_conditioned_head
        from xalign_ray.models.inference import Encoder

        conditioned = (Path(folder) / HEAD_FILE).is_file()
        encoder = Encoder.open(open_encoder(folder), device, AutoModel if conditioned else AutoModelForMaskedLM)
        model = encoder.model
        if encoder.inputs.tokenizer.mask_token_id is None:
            raise DataError(f"{folder} has no mask token; a cloze can be asked of masked language models only.")
        head = load_conditioned_head(Path(folder), model).to(model.device) if conditioned else None
        pairs = getattr(model.config, "xalign_pairs", None) or {"positions": "running", "segments": True}
        return cls(encoder, pairs["positions"] == "reset", pairs["segments"], head)

    def answers(self, questions: Sequence[Question], with_translation: bool) -> list[tuple[int, ...]]:
        """The likeliest pieces at the masked places of each question, each place on its own."""
        import torch

        inputs, answers_by_number = self.encoder.inputs, {}
        rows = [self._row(question, with_translation) for question in questions]
        with torch.inference_mode():
            for places, output, _ in self.encoder.run(rows):
                for number, index in enumerate(places):
                    question, begin = questions[index], rows[index]["at"]
                    at = slice(begin, begin + len(question.answer))
                    if self.head is None:
                        logits = output.logits[number, at]
                    else:
                        states = output.last_hidden_state[number, at]
                        language = torch.full((len(states),), inputs.languages.index(question.language))
                        logits = self.head(states, language.to(states.device))
                    answers_by_number[index] = tuple(logits.argmax(dim=-1).tolist())
        return [answers_by_number[index] for index in range(len(questions))]

    def _row(self, question: Question, with_translation: bool) -> Features:
        """The input, and `at`, the place of its first mask."""
        inputs, model = self.encoder.inputs, self.encoder.model
        first = [*inputs.prefix, *question.english, *inputs.suffix] if with_translation else [*inputs.prefix]
        masked = [inputs.tokenizer.mask_token_id] * len(question.answer)
        more = inputs.middle[len(inputs.suffix) :] if with_translation else ()  # separators before the second sentence
        second = [*more, *question.other[: question.begin], *masked, *question.other[question.end :], *inputs.suffix]
        begin = len(first)
        row: Features = {"input_ids": [*first, *second], "at": begin + len(more) + question.begin}
        if self.reset:
            restart = 1 - len(more) if with_translation else begin
            positions = [*range(begin), *range(restart, restart + len(second))]
            row["position_ids"] = [first_position(model) + position for position in positions]
        if getattr(model.config, "type_vocab_size", 0) > 1:
            english, other = inputs.token_type(ENGLISH), inputs.token_type(question.language)
            segment = int(self.segments and with_translation and inputs.segments > 1)
            row["token_type_ids"] = [english if with_translation else other] * begin + [other + segment] * len(second)
        return row


def ask(inputs: Inputs, other: Sequence[str], english: Sequence[str], language: str) -> Iterator[Question]:
    """One question of each pair that fits into the model and has a word of letters and few pieces (LONGEST_ANSWER)."""
    room = inputs.max_length - len(inputs.prefix) - len(inputs.middle) - len(inputs.suffix)
    translations = inputs.piece_texts(english)
    tokenized = tokenize_lines(inputs.tokenizer.backend_tokenizer, other, LONGEST_ANSWER, language=language)
    word_length, pieces = tokenized.word_length.tolist(), tokenized.pieces.tolist()
    first_word, first_piece = 0, 0
    for text, translation, count in zip(other, translations, tokenized.line_words.tolist(), strict=True):
        lengths = word_length[first_word : first_word + count]
        ids = pieces[first_piece : first_piece + sum(lengths)]
        spans = zip(accumulate(lengths, initial=0), accumulate(lengths), strict=False)
        forms = tokenized.forms[first_word : first_word + count]
        words = [
            (begin, end)
            for (begin, end), form in zip(spans, forms, strict=True)
            if any(map(str.isalpha, form)) and inputs.tokenizer.unk_token_id not in ids[begin:end]
        ]
        first_word, first_piece = first_word + count, first_piece + sum(lengths)
        if words and len(ids) + len(translation) <= room:
            drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
            yield Question(translation, ids, *words[drawn % len(words)], language)


CLOZE = ClozeTask()
