"""Scores between steps: held-out losses, and retrieval on the recipe's tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xalign_ray.config.choices import ContrastedPairs
from xalign_ray.config.language_codes import name_of_pair
from xalign_ray.config.schema import RunConfig
from xalign_ray.models.nearest import find_translations, thin
from xalign_ray.models.open import open_encoder
from xalign_ray.models.sentence_files import SentenceFiles
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.shards.prepared import HELD_OUT_ROWS, Prepared, RetrievalPairs
from xalign_ray.sources.stage import DEV
from xalign_ray.streams.collate import IGNORED
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.step import RankBatch, tensors

KIND = "masked_lm"


def held_out_losses(
    engine: Engine,
    batches: Sequence[tuple[NDArray[np.integer], RankBatch]],
    languages: Sequence[str],
    workers: Workers,
) -> dict[str, float]:
    """Mean masked-LM loss of each language, nats a label; languages without a held-out label are left out.

    Args:
        batches: the language of each row, a number of `languages`, and rows of this rank, of any languages; as
            many on each rank, some possibly with no rows.
        languages: the run's languages in order.
    """
    sums, labels = np.zeros(len(languages)), np.zeros(len(languages))
    part = (workers.rank, workers.size)
    with engine.scoring() as forward:
        for language, batch in batches:
            of_label = forward(tensors(batch, workers.device), part, 0, KIND)[KIND]
            asked = language[np.nonzero(batch["labels"] != IGNORED)[0]]
            sums += np.bincount(asked, of_label.double().cpu().numpy(), len(languages))
            labels += np.bincount(asked, minlength=len(languages))
    summed = workers.sum([*sums, *labels])
    pairs = zip(languages, summed[: len(languages)], summed[len(languages) :], strict=True)
    return {language: total / count for language, total, count in pairs if count}


MAX_PAIRS = 1_000  # of two languages: more are thinned evenly, since this is done many times

Ids = NDArray[np.int32]


def retrieval_accuracies(
    engine: Engine,
    tests: Sequence[RetrievalPairs],
    languages: Sequence[str],
    workers: Workers,
    pooling: str,
    max_tokens: int,
) -> dict[str, float]:
    """Share of sentences that find their translation by cosine, mean of both directions; called by all ranks.

    Sentences are spread over the ranks, their vectors gathered; every rank calls the encoder equally often.

    Args:
        languages: the run's languages in order.
        pooling: how a vector is made of the last layer, "mean" or "cls".
        max_tokens: of a rank's forward pass, padding included; at least one sentence goes in.

    Returns:
        The accuracy by the names that `name_of_pair` gives.
    """
    accuracies = {}
    with engine.scoring() as forward:
        for test in tests:
            chosen = thin(len(test.first), MAX_PAIRS)
            texts = [[ids[index] for index in chosen] for ids in (test.first, test.second)]
            codes = [languages.index(code) if code in languages else 0 for code in (test.language, test.other_language)]
            of_sentence = np.repeat(np.array(codes), len(chosen))
            vectors = _vectors(forward, [*texts[0], *texts[1]], of_sentence, workers, pooling, max_tokens)
            first, second = vectors.double().chunk(2)
            right = find_translations(first, second, (_numbers(texts[0]), _numbers(texts[1])), device=str(first.device))
            accuracies[name_of_pair(test.language, test.other_language)] = float(right.mean())
    return accuracies


def _vectors(
    forward: Callable[..., Any],
    sentences: Sequence[Ids],
    languages: NDArray[np.integer],
    workers: Workers,
    pooling: str,
    max_tokens: int,
) -> torch.Tensor:
    """A vector for each sentence, fp32 [N, d] on the device, equal on all ranks."""
    lengths = np.array([len(ids) for ids in sentences])
    shares = [*_shares(lengths, workers.size, max_tokens)]
    vectors_here = []
    for of_ranks in shares:
        width = lengths[np.concatenate(of_ranks)].max()
        mine = of_ranks[workers.rank]
        rows = _rows([sentences[index] for index in mine], languages[mine], width)
        batch = tensors(rows, workers.device)
        vectors_here.append(forward(batch, (workers.rank, workers.size), 0, pooling=pooling)["vectors"])
    gathered = workers.concatenate(torch.cat(vectors_here).float())
    places = np.concatenate([of_ranks[rank] for rank in range(workers.size) for of_ranks in shares])
    vectors = torch.empty_like(gathered)
    vectors[torch.from_numpy(places).to(gathered.device)] = gathered
    return vectors


def _shares(lengths: NDArray[np.integer], ranks: int, max_tokens: int) -> Iterator[list[NDArray[np.integer]]]:
    """The sentences of each forward pass, by rank: sentences of like length together, perhaps none for some ranks."""
    order = np.argsort(lengths, kind="stable")[::-1]
    begin = 0
    while begin < len(order):
        rows = max(1, max_tokens // int(lengths[order[begin]]))
        together = order[begin : begin + rows * ranks]
        yield [together[rank::ranks] for rank in range(ranks)]
        begin += rows * ranks


def _rows(sentences: Sequence[Ids], languages: NDArray[np.integer], width: int) -> RankBatch:
    """A row for each sentence, as the model takes it; perhaps no rows."""
    shape = len(sentences), int(width)
    rows = {name: np.zeros(shape, np.int32) for name in ("input_ids", "position_ids", "segment_ids", "example_ids")}
    for row, ids in enumerate(sentences):
        rows["input_ids"][row, : len(ids)] = ids
        rows["position_ids"][row, : len(ids)] = np.arange(len(ids))
        rows["example_ids"][row, : len(ids)] = 1
    rows["language_ids"] = np.repeat(languages[:, None], shape[1], axis=1).astype(np.int32)
    return rows | {"labels": np.full(shape, IGNORED, np.int32)}


def _numbers(sentences: Sequence[Ids]) -> NDArray[np.int64]:
    """A number for each distinct sentence, [N]."""
    return np.unique([ids.tobytes() for ids in sentences], return_inverse=True)[1]


TENTHS = 10  # of a run: the model is scored after each, unless the recipe sets other steps
SHARE = 0.1  # of the cost of training, at most, that this scoring takes
IN_FP32 = 5  # cost of a scoring's forward pass, in fp32, in passes of a training in bf16: about that on GPUs
OF_TRAINING = 3  # cost of a token in training, in forward passes: one, and a backward pass of two


class Scoring:
    """Scores the model when it is due; every method is called by all ranks. Training goes on as if it had not been."""

    def __init__(
        self, engine: Engine, model: EncoderWithLosses, config: RunConfig, prepared: Prepared, workers: Workers
    ) -> None:
        train = config.train
        self._engine, self._prepared, self._workers = engine, prepared, workers
        self._steps, self._rows = train.max_steps, train.per_device_batch_size
        self._tokens = self._rows * config.data.max_seq_length
        self._of_pass = IN_FP32 if train.in_bf16(workers.device.type != "cpu") else 1
        self._has_loss = KIND in model.losses
        self._has_text = bool(config.data.corpora)
        self.part = prepared.retrieval_part if train.retrieval_steps != 0 else None
        start = config.model.init_from if self.part else None
        files = open_encoder(start).sentences if start else SentenceFiles("")
        self._pooling = files.pooling or "mean"
        contrasted = [rows for rows in config.streams if isinstance(rows, ContrastedPairs)]
        by_side = [rows.prompts for rows in contrasted if rows.key_prompt is not None]
        prompts = by_side[0] if by_side else (files.prompt, files.prompt)
        self._tests = prepared.read_tests(self.part, prompts) if self.part else ()
        held_out_steps, retrieval_steps = train.eval_steps, train.retrieval_steps if self.part else 0
        self._points = TENTHS + 1
        if retrieval_steps is None or (held_out_steps is None and self._has_loss):
            affordable = int(SHARE * self._cost_of_training(config) / self._cost_of_scoring())
            self._points = max(1, min(self._points, affordable))
        self._has_start = self._points > 2  # where there are fewer, the end and the middle are worth more
        interval = math.ceil(self._steps / max(1, self._points - self._has_start))
        self._held_out_steps = interval if held_out_steps is None else held_out_steps
        self._retrieval_steps = interval if retrieval_steps is None else retrieval_steps

    def _cost_of_training(self, config: RunConfig) -> float:
        """In forward passes of a token. By counts and not by the clock, so that a resumed run scores the same steps."""
        pools = self._prepared.manifest["pools"].values()
        of_row = sum(pool["tokens"] for pool in pools) / max(1, sum(pool["rows"] for pool in pools))
        return OF_TRAINING * of_row * config.train.global_batch_size * config.train.max_steps

    def _cost_of_scoring(self) -> int:
        """Of all that is scored at one step, in the same unit."""
        chosen = (side[index] for test in self._tests for side in test[2:] for index in thin(len(side), MAX_PAIRS))
        languages = len(self._prepared.manifest["held_out"]) if self._has_loss else 0
        tokens = sum(map(len, chosen)) + languages * HELD_OUT_ROWS * self._prepared.manifest["max_seq_length"]
        return max(1, self._of_pass * tokens)

    def is_due(self, step: int) -> bool:
        """Whether anything is scored after this step."""
        return self._is_at(step, self._held_out_steps) or self._is_at(step, self._retrieval_steps)

    def chooses(self, step: int) -> bool:
        """Whether the score after this step may choose its checkpoint."""
        return self.part == DEV and step > 0 and self._is_at(step, self._retrieval_steps)

    def score(self, step: int, log: Callable[..., None]) -> float | None:
        """Runs the scorings that are due after this step; before the first one retrieval alone.

        Args:
            log: called with the kind of event, the step and its metrics, and fields by name.

        Returns:
            The mean accuracy of retrieval, where it is due.
        """
        if step and self._has_loss and self._is_at(step, self._held_out_steps):
            batches = self._prepared.held_out(self._workers.rank, self._workers.size, self._rows)
            if losses := held_out_losses(self._engine, batches, self._prepared.languages, self._workers):
                missing = sorted(set(self._prepared.held_out_missing) - set(losses))
                by_language = {code: loss if math.isfinite(loss) else None for code, loss in losses.items()}
                held_out_loss = sum(losses.values()) / len(losses)
                log("held_out", step, {"held_out/loss": held_out_loss}, languages=by_language, missing=missing)
        if not self._is_at(step, self._retrieval_steps):
            return None
        accuracies = retrieval_accuracies(
            self._engine, self._tests, self._prepared.languages, self._workers, self._pooling, self._tokens
        )
        mean = sum(accuracies.values()) / len(accuracies)
        log("retrieval", step, {"retrieval/accuracy": mean}, languages=accuracies, part=self.part)
        return mean

    def notes(self) -> list[str]:
        """Notes on the choice of the exported checkpoint, and on numbers that the run will lack, with the reasons."""
        notes = []
        if self.part == DEV:
            pairs = ", ".join(f"{name_of_pair(*test[:2])} {len(test.first):,}" for test in self._tests)
            notes.append(f"The checkpoint with the best retrieval on the dev pairs is exported. Dev pairs: {pairs}.")
        if self._points <= TENTHS:
            notes.append(
                f"Scored {self._points} times in place of {TENTHS + 1}: more would take over {SHARE:.0%} of the time "
                "of training (train.retrieval_steps sets the steps between)."
            )
        if not self._held_out_steps:
            return notes
        if missing := self._prepared.held_out_missing:
            lines = ", ".join(f"{language} ({count:,} lines)" for language, count in missing.items())
            notes.append(f"The held-out loss leaves out {lines}: no line of so few was drawn to be held out.")
        if not self._has_loss:
            notes.append("There is no held-out loss: it is that of the objective masked_lm, which the recipe lacks.")
        elif not self._has_text:
            notes.append("There is no held-out loss: it is of text in one language, and data.corpora names none.")
        return notes

    def _is_at(self, step: int, every: int) -> bool:
        return bool(every) and (step % every == 0 or step == self._steps) and (step > 0 or self._has_start)
