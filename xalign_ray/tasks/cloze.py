"""Cloze: is a masked word predicted, and better beside its translation? Without training (WEAM, section 3)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM

from xalign_ray.errors import DataError
from xalign_ray.models.export import HEAD_FILE, load_conditioned_head
from xalign_ray.tasks.hf_encoder import AUTO, open_model, origin_of, pick_device
from xalign_ray.tasks.scores import Score, average_languages, score_by
from xalign_ray.tasks.task_files import choose_languages
from xalign_ray.tasks.tatoeba import find_pairs, read_pair
from xalign_ray.tasks.tokenized import Inputs, first_position

TASK = "cloze"
METRICS = {True: "cloze_accuracy", False: "cloze_accuracy_alone"}  # with the translation in sight, and without
LONGEST_ANSWER = 4  # pieces of a word that is asked for


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
        """The pieces that are asked for."""
        return tuple(self.other[self.begin : self.end])


@dataclass(frozen=True, slots=True)
class Predictor:
    """A masked language model with the input conventions that it was trained on.

    Attributes:
        reset: positions of the second sentence start again at 1, as if it stood alone.
        segments: the second sentence has segment 1.
        head: the conditioned head of a folder that has one; the model is then a bare encoder.
    """

    model: Any
    inputs: Inputs
    reset: bool
    segments: bool
    head: Any

    @classmethod
    def open(cls, folder: str, device: str) -> Predictor:
        """Opens an exported folder, any other local masked language model, or a hub id.

        Raises:
            DataError: transformers cannot open it with a prediction head, or its tokenizer has no mask.
        """
        conditioned = (Path(folder) / HEAD_FILE).is_file()
        model, tokenizer = open_model(folder, AutoModel if conditioned else AutoModelForMaskedLM)
        if tokenizer.mask_token_id is None:
            raise DataError(f"{folder} has no mask token; a cloze can be asked of masked language models only.")
        head = load_conditioned_head(Path(folder), model).to(pick_device(device)) if conditioned else None
        pairs = getattr(model.config, "xalign_pairs", None) or {"positions": "running", "segments": True}
        inputs = Inputs.of_model(tokenizer, model, folder)
        return cls(model.to(pick_device(device)).eval(), inputs, pairs["positions"] == "reset", pairs["segments"], head)

    @torch.inference_mode()
    def answers(self, questions: Sequence[Question], with_translation: bool) -> list[tuple[int, ...]]:
        """The likeliest pieces at the masked places of each question, each place on its own."""
        rows = [self._row(question, with_translation) for question in questions]
        device = next(self.model.parameters()).device
        batch = {key: _pad([row[key] for row in rows]).to(device) for key in rows[0] if key != "at"}
        output = self.model(**batch)
        found = []
        for number, (row, question) in enumerate(zip(rows, questions, strict=True)):
            at = slice(row["at"], row["at"] + len(question.answer))
            if self.head is None:
                logits = output.logits[number, at]
            else:
                language = torch.full((len(question.answer),), self.inputs.languages.index(question.language))
                logits = self.head(output.last_hidden_state[number, at], language.to(device))
            found.append(tuple(logits.argmax(dim=-1).tolist()))
        return found

    def _row(self, question: Question, with_translation: bool) -> dict[str, Any]:
        inputs = self.inputs
        first = inputs.wrap(question.english) if with_translation else list(inputs.prefix)
        masked = [inputs.tokenizer.mask_token_id] * len(question.answer)
        second = [*question.other[: question.begin], *masked, *question.other[question.end :], *inputs.suffix]
        begin, length = len(first), len(first) + len(second)
        segment = int(self.segments and with_translation and inputs.segments > 1)
        row: dict[str, Any] = {"input_ids": [*first, *second], "attention_mask": [1] * length}
        restart = 1 if self.reset and with_translation else begin
        row["at"] = begin + question.begin
        if self.reset:
            positions = [*range(begin), *range(restart, restart + len(second))]
            row["position_ids"] = [first_position(self.model) + position for position in positions]
        if getattr(self.model.config, "type_vocab_size", 0) > 1:
            english, other = (inputs.token_type(language) for language in ("en", question.language))
            row["token_type_ids"] = [english if with_translation else other] * begin + [other + segment] * len(second)
        return row


def evaluate_cloze(
    encoder_folder: str,
    data: Path,
    languages: Sequence[str] | None = None,
    batch_size: int = 64,
    device: str = AUTO,
) -> list[Score]:
    """Share of masked words whose pieces are all predicted, beside their English translation and alone, per language.

    One word of each sentence is masked, drawn by a hash of the sentence, so that all encoders with one tokenizer are
    asked the same. Chance is the share of the commonest answer.

    Args:
        encoder_folder: folder or hub id of a masked language model.
        data: folder of Tatoeba's pairs of files.
        languages: those to score; all that are found if None.
        batch_size: sentences at a time.
        device: a torch device; "auto" is the GPU where there is one.

    Raises:
        DataError: files are missing or of unequal length; the folder has no prediction head.
    """
    pairs = find_pairs(data)
    chosen = choose_languages(pairs, languages, data)
    predictor = Predictor.open(encoder_folder, device)
    predictor.inputs.check_languages(["en", *chosen])
    origin = origin_of(predictor.model.config, encoder_folder)
    scores = []
    for language in chosen:
        questions = list(ask(predictor.inputs, *read_pair(pairs[language]), language))
        if not questions:
            raise DataError(f"{pairs[language].other} has no sentence of which a word can be masked.")
        commonest = Counter(question.answer for question in questions).most_common(1)[0][1]
        for with_translation, metric in METRICS.items():
            scores.append(
                score_by(
                    origin,
                    task=TASK,
                    split="test",
                    language=language,
                    layer=None,
                    pooling=None,
                    metric=metric,
                    value=_accuracy(predictor, questions, with_translation, batch_size),
                    chance=commonest / len(questions),
                    n=len(questions),
                )
            )
    return scores + average_languages(scores)


def ask(inputs: Inputs, other: Sequence[str], english: Sequence[str], language: str) -> Iterator[Question]:
    """One question of each pair that fits into the model and has a word of letters and few pieces (LONGEST_ANSWER)."""
    room = inputs.max_length - len(inputs.prefix) - 2 * len(inputs.suffix)
    encode = lambda texts: inputs.tokenizer(list(texts), add_special_tokens=False)  # noqa: E731
    ours, theirs = encode(other), encode(english)
    for number, text in enumerate(other):
        ids, translation = ours["input_ids"][number], theirs["input_ids"][number]
        offsets = ours.encodings[number].offsets
        words = [
            (begin, end)
            for begin, end in _words(ours.word_ids(number))
            if end - begin <= LONGEST_ANSWER
            and inputs.tokenizer.unk_token_id not in ids[begin:end]
            and any(map(str.isalpha, text[offsets[begin][0] : offsets[end - 1][1]]))
        ]
        if words and len(ids) + len(translation) <= room:
            drawn = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
            yield Question(translation, ids, *words[drawn % len(words)], language)


def _words(numbers: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[begin]:
            yield begin, at
            begin = at


def _accuracy(predictor: Predictor, questions: Sequence[Question], with_translation: bool, batch_size: int) -> float:
    right = 0
    for begin in range(0, len(questions), batch_size):
        part = questions[begin : begin + batch_size]
        found = predictor.answers(part, with_translation)
        right += sum(answer == question.answer for answer, question in zip(found, part, strict=True))
    return right / len(questions)


def _pad(rows: Sequence[Sequence[int]]) -> Tensor:
    length = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
