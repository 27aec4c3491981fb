"""One optimizer step as one rank computes it: check the rows, count, micro-steps, scale, clip, move the weights."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch.profiler import record_function

from xalign_ray.config.choices import ObjectiveChoice
from xalign_ray.config.derive import derive_batch
from xalign_ray.config.fields import Scheduled, value_at
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import LossError, TrainingError
from xalign_ray.models.attention import labelled_at, layout
from xalign_ray.models.sizes import Operations, encoded_by
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.objectives.objective import Compare, Compared, StepObjective, compare_terms
from xalign_ray.streams.collate import IGNORED
from xalign_ray.train.distributed import Workers, combine_hash, split_hash
from xalign_ray.train.engine import Engine
from xalign_ray.train.optimizers import learning_rate

RankBatch = Mapping[str, np.ndarray]
MODEL_INPUTS = ("input_ids", "labels", "position_ids", "segment_ids", "language_ids", "example_ids")


def tensors(rows: RankBatch, device: torch.device, also: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """A batch's rows as tensors on the model's device: int64 [B, L] each; packed bits stay packed.

    The indexes of `layout` for every column of examples, and `labelled_at`, are added.

    Args:
        also: further columns to take, if the rows have them.
    """
    arrays = {key: np.ascontiguousarray(rows[key]) for key in (*MODEL_INPUTS, *also) if key in rows}
    columns = {key: torch.from_numpy(value) for key, value in arrays.items()}  # narrow on its way to a device
    for examples in [key for key in columns if key.endswith("example_ids")]:
        of = examples.removesuffix("example_ids")
        columns |= {f"{of}{name}": at for name, at in layout(columns[examples]).items()}
    columns["labelled_at"] = labelled_at(columns["labels"])
    if device.type == "cuda":
        columns = _copied_ahead(columns, device)
    return {key: value if value.dtype == torch.uint8 else value.long() for key, value in columns.items()}


def _copied_ahead(host: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """Copies to the device, for its current stream, while that computes the step before."""
    computing, copying = torch.cuda.current_stream(device), _copy_stream(device)
    with torch.cuda.stream(copying):
        copies = {key: value.pin_memory().to(device, non_blocking=True) for key, value in host.items()}
    computing.wait_stream(copying)
    for value in copies.values():
        value.record_stream(computing)  # its memory is not given away before it has been read
    return copies


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class Flops:
    """Operations of an encoder and its losses; `models/sizes.py` lists the counted ones."""

    def __init__(self, model: EncoderWithLosses, micro_steps: int = 1) -> None:
        encoder = model.encoder
        values = encoder.family.complete(encoder.hf.config.to_dict())
        self._operations = Operations(encoder.family, values, encoder.conditioned)
        choices = [loss.settings for loss in model.used.values()]
        self._encoded = encoded_by(choices, micro_steps)
        self._predicting = [kind for kind, loss in model.used.items() if loss.predicts]

    def of_rows(self, batch: Mapping[str, np.ndarray]) -> float:
        """Operations of encoding a batch."""
        examples = {name: batch[f"{name}example_ids"] for name in self._encoded if f"{name}example_ids" in batch}
        return sum(
            self._encoded[name] * self._operations.forward(example_lengths(ids)) for name, ids in examples.items()
        )

    def of_labels(self, counts: Mapping[str, float]) -> float:
        """Operations of predicting, by the counts of the losses."""
        return self._operations.of_labels(sum(counts[kind] for kind in self._predicting))


def example_lengths(example_ids: NDArray) -> NDArray[np.int64]:
    """The tokens of each example of packed rows [B, L], whose examples are 1, 2, ... and padding 0."""
    stride = int(example_ids.max(initial=0)) + 1
    places = np.arange(len(example_ids))[:, None] * stride + example_ids
    counts = np.bincount(places[example_ids > 0])
    return counts[counts > 0]


@dataclass(frozen=True)
class Totals:
    """Counts of a global step before its first forward pass, summed over ranks.

    language_tokens: tokens of each language of the run. waits: seconds that each rank waited for the step's rows. held:
    seconds that each waited for the others at the beginning of the step before. by_rank: each loss's count on each
    rank.
    """

    counts: Mapping[str, float]
    batch_hash: int
    labels: int
    tokens: int
    positions: int
    cross_lingual: int
    no_room: int
    flops: float
    language_tokens: NDArray[np.int64]
    waits: NDArray[np.float64]
    held: NDArray[np.float64]
    by_rank: Mapping[str, Sequence[int]]
    stop_asked: bool
    checkpoint_written: bool


@dataclass(frozen=True)
class Outcome:
    """Result of a global step, equal on all ranks; losses are per counted thing, before their weight.

    metrics: further metrics of the losses, as means over the global step; absent where nothing was counted.
    """

    totals: Totals
    losses: Mapping[str, float]
    metrics: Mapping[str, float]
    loss: float
    learning_rate: float
    gradient_norm: float


@dataclass(frozen=True)
class _Pending:
    """A step whose numbers are still on the device: its losses' sums, pairs of its metrics by name, gradient norm."""

    step: int
    totals: Totals
    learning_rate: float
    weights: Mapping[str, Scheduled]
    logged: list[str]
    numbers: torch.Tensor

    def outcome(self, numbers: Sequence[float]) -> Outcome:
        *sums, norm = numbers
        counts = self.totals.counts
        losses = {kind: total / max(of, 1.0) for total, (kind, of) in zip(sums, counts.items(), strict=False)}
        pairs = zip(self.logged, sums[len(losses) :: 2], sums[len(losses) + 1 :: 2], strict=True)
        metrics = {name: total / over for name, total, over in pairs if over}
        loss = sum(value_at(self.weights[kind], self.step) * value for kind, value in losses.items())
        return Outcome(self.totals, losses, metrics, loss, self.learning_rate, norm)


def _check_finite(step: int, outcome: Outcome) -> None:
    bad = [f"{kind} is {value}" for kind, value in outcome.losses.items() if not math.isfinite(value)]
    what = "loss" if bad else "gradient"
    # DeepSpeed passes such a gradient over without a word, or applies it: then the next loss is not finite.
    bad += [] if bad or math.isfinite(outcome.gradient_norm) else [f"its norm is {outcome.gradient_norm}"]
    if bad:
        raise LossError(
            f"The {what} of step {step + 1} is not finite: {', '.join(bad)} (batch_hash {outcome.totals.batch_hash}). "
            "Lower train.optimizer.learning_rate or raise train.schedule.warmup_steps; "
            "checkpoints from before are valid."
        )


def compare_over_ranks(
    loss: StepObjective, vectors: torch.Tensor, marks: torch.Tensor, totals: Totals, workers: Workers
) -> Compared:
    """A rank's terms of a loss over the whole step, and the gradient of all ranks' terms by this rank's vectors."""
    sizes = totals.by_rank[loss.settings.kind]
    first = sum(sizes[: workers.rank])
    mine = slice(first, first + sizes[workers.rank])
    compared = compare_terms(loss, workers.concatenate(vectors, sizes), workers.concatenate(marks, sizes), mine)
    return replace(compared, gradient=workers.add_up(compared.gradient)[mine])


def raise_on_all_ranks(workers: Workers, problem: str | None) -> None:
    """Raises on every rank the problem of any rank, so that none waits for another; called by all."""
    problems = [text for text in workers.gather(problem) if text]
    if problems:
        raise TrainingError(problems[0])


class Stepper:
    """Takes optimizer steps; every method is called by all ranks for the same step."""

    def __init__(self, engine: Engine, model: EncoderWithLosses, config: RunConfig, workers: Workers) -> None:
        self._engine = engine
        self._model = model
        self._config = config
        self._workers = workers
        self._sizes = derive_batch(config)
        self._use(self._losses_at(0))
        self._pending: list[_Pending] = []
        self._held = 0.0

    def _losses_at(self, step: int) -> Sequence[ObjectiveChoice]:
        """The losses whose weight at a step is not 0; all at ZeRO stage 3, where each step moves every weight."""
        losses = self._config.objectives
        weighed = tuple(loss for loss in losses if value_at(loss.weight, step))
        return losses if self._config.parallel.zero_stage == 3 or not weighed else weighed

    def _use(self, losses: Sequence[ObjectiveChoice]) -> None:
        self._losses = losses
        self._model.use(losses)
        self._flops = Flops(self._model, self._sizes.accumulation)

    def take(
        self,
        step: int,
        batch: RankBatch,
        stop_asked: bool = False,
        written: bool = False,
        problem: str | None = None,
        waited: float = 0.0,
    ) -> Totals:
        """Takes step number `step` (from 0) on this rank's rows of it; does not wait for the device.

        Args:
            stop_asked: whether this process was asked to stop; every rank learns of it.
            written: whether this rank's part of a checkpoint is on the disk; every rank learns whether all are.
            problem: why this rank cannot go on, if it cannot.
            waited: seconds that this rank waited for its rows; every rank learns of it.

        Raises:
            TrainingError: on all ranks, if one of them has a problem or other rows than this step's.
        """
        if (losses := self._losses_at(step)) != self._losses:
            self._use(losses)
        with record_function("step/counts of the global step"):
            totals = self._totals(step, batch, stop_asked, written, problem or self._wrong_rows(step, batch), waited)
        self._engine.begin(step)
        summed, logged = self._micro_steps(step, batch, totals)
        train = self._config.train
        rate = learning_rate(train.schedule, step, train.max_steps, train.optimizer.learning_rate)
        with record_function("step/optimizer"):
            norm = self._engine.step(rate)
        self._model.after_step(self._workers.concatenate, totals.by_rank)
        numbers = torch.cat([summed, norm.to(summed).reshape(1)])
        self._pending.append(_Pending(step, totals, rate, self._model.weights, logged, numbers))
        return totals

    def fetch(self) -> Outcome:
        """Result of the last step; waits until the device has done all steps that were taken.

        Raises:
            LossError: on all ranks, if a loss or the gradient of a step since the last fetch is not finite.
        """
        steps, self._pending = self._pending, []
        with record_function("step/wait for the device"):  # here alone: it computes while this process prepares
            numbers = iter(torch.cat([pending.numbers for pending in steps]).tolist())
        outcomes = [pending.outcome(list(islice(numbers, len(pending.numbers)))) for pending in steps]
        for pending, outcome in zip(steps, outcomes, strict=True):
            _check_finite(pending.step, outcome)
        return outcomes[-1]

    def _wrong_rows(self, step: int, batch: RankBatch) -> str | None:
        low, high = self._sizes.rows_of(self._workers.rank)
        expected = step * self._sizes.global_rows + np.arange(low, high)
        if np.array_equal(batch["position"], expected):
            return None
        return (
            f"The feed gave worker {self._workers.rank} other rows than step {step + 1} owns: positions "
            f"{batch['position'][:3].tolist()}... instead of {expected[:3].tolist()}... They were not trained on."
        )

    def _totals(
        self, step: int, batch: RankBatch, stop_asked: bool, written: bool, problem: str | None, waited: float
    ) -> Totals:
        """One all-reduce: the counts that losses are divided by must be known before the first backward."""
        counts = self._model.counts(batch, [self._part(micro) for micro in range(self._sizes.accumulation)], step)
        low, high = split_hash(int(batch["row_hash"].sum(dtype=np.uint64)))
        shown, languages = batch["example_ids"] > 0, len(self._config.languages)
        local = {
            "low": low,
            "high": high,
            "labels": (batch["labels"] != IGNORED).sum(),
            "tokens": shown.sum(),
            "positions": shown.size,
            "cross_lingual": batch["cross_lingual"].sum(),
            "no_room": batch["no_room"].sum(),
            "flops": self._flops.of_rows(batch) + self._flops.of_labels(counts),
            "stops": stop_asked,
            "written": written,
            "problems": problem is not None,
        }
        by_rank = np.zeros((2 + len(counts), self._workers.size))
        by_rank[:, self._workers.rank] = [waited, self._held, *counts.values()]
        language_tokens = np.bincount(batch["language_ids"][shown], minlength=languages)[:languages]
        parts = [list(local.values()), list(counts.values()), language_tokens, by_rank.ravel()]
        began = time.perf_counter()
        summed = self._workers.sum(np.concatenate(parts).tolist())
        self._held = time.perf_counter() - began
        numbers, of_counts, tokens, of_ranks = np.split(summed, np.cumsum([len(part) for part in parts[:-1]]))
        total = dict(zip(local, numbers.tolist(), strict=True))
        waits, held, *counted = of_ranks.reshape(by_rank.shape)
        if total["problems"]:
            raise_on_all_ranks(self._workers, problem)
        return Totals(
            counts=dict(zip(counts, of_counts.tolist(), strict=True)),
            batch_hash=combine_hash(total["low"], total["high"]),
            **{name: int(total[name]) for name in ("labels", "tokens", "positions", "cross_lingual", "no_room")},
            flops=total["flops"],
            language_tokens=tokens.astype(np.int64),
            waits=waits,
            held=held,
            by_rank={kind: of.astype(int).tolist() for kind, of in zip(counts, counted, strict=True)},
            stop_asked=total["stops"] > 0,
            checkpoint_written=total["written"] == self._workers.size,
        )

    def _micro_steps(self, step: int, batch: RankBatch, totals: Totals) -> tuple[torch.Tensor, list[str]]:
        """Forward and backward over the batch in `accumulation` parts.

        Returns:
            Sums over all ranks, on the device: the losses' in the order of counts, then of each metric, in the order
            of the names, its sum and its count.
        """
        last = self._sizes.accumulation - 1
        nothing = torch.zeros((), dtype=torch.float64, device=self._workers.device)
        sums = dict.fromkeys(totals.counts, nothing)  # on the device: to read one there is to wait for it
        logged: dict[str, torch.Tensor] = {}
        batches: Iterable[dict[str, torch.Tensor]] = self._on_device(batch)
        compare = partial(compare_over_ranks, totals=totals, workers=self._workers)
        if self._model.over_step and last:
            batches = list(batches)
            compare = self._first_pass(step, batches, compare)
        for micro, moved in enumerate(batches):
            self._reseed(step, micro)
            losses = self._engine.forward(moved, self._part(micro), step, compare=compare)
            with record_function("step/backward"):
                self._engine.backward(self._scaled(step, losses, totals))
            for kind, value in losses.items():
                sums[kind] = sums[kind] + value.detach()
            for name, both in self._model.metrics.items():
                logged[name] = logged.get(name, nothing) + torch.stack(both)
            if micro < last:
                self._engine.next_micro_step()
        return self._workers.sum_on_device(torch.cat([torch.stack([*sums.values()]), *logged.values()])), [*logged]

    def _on_device(self, batch: RankBatch) -> Iterator[dict[str, torch.Tensor]]:
        """The rows of each micro-step, moved to the device when the loop comes to them."""
        for rows in np.array_split(np.arange(len(batch["position"])), self._sizes.accumulation):
            mine = {key: values[rows] for key, values in batch.items()}
            with record_function("step/copy to the device"):
                moved = tensors(mine, self._workers.device, self._model.extra_columns)
            yield moved

    def _first_pass(self, step: int, batches: Sequence[dict[str, torch.Tensor]], compare: Compare) -> Compare:
        """Embeds all micro-steps without gradients and compares; gives what each learns of it in the second pass."""
        embedded = []
        for micro, moved in enumerate(batches):
            self._reseed(step, micro)
            with torch.no_grad(), record_function("step/first pass"):
                embedded.append(self._engine.forward(moved, self._part(micro), step, compare=None))
        learned = {}
        for kind, loss in self._model.over_step.items():
            vectors, marks = zip(*(of_micro[kind] for of_micro in embedded), strict=True)
            compared = compare(loss, torch.cat(vectors), torch.cat(marks))
            first, *others = compared.gradient.split([len(part) for part in vectors])
            nothing = torch.zeros_like(compared.total)  # only the first micro-step reports the sum
            learned[kind] = iter(
                [Compared(compared.total, first, compared.metrics), *(Compared(nothing, g, {}) for g in others)]
            )
        return lambda loss, *_: next(learned[loss.settings.kind])

    def _scaled(self, step: int, sums: Mapping[str, torch.Tensor], totals: Totals) -> torch.Tensor:
        """The loss to backpropagate: DeepSpeed averages over ranks and micro-steps, counts are the global step's."""
        parts = self._workers.size * self._sizes.accumulation
        weights = {kind: value_at(weight, step) for kind, weight in self._model.weights.items()}
        terms = [value * (weights[kind] * parts / max(totals.counts[kind], 1.0)) for kind, value in sums.items()]
        return torch.stack(terms).sum()

    def _part(self, micro: int) -> tuple[int, int]:
        parts = self._sizes.accumulation
        return self._workers.rank * parts + micro, self._workers.size * parts

    def _reseed(self, step: int, micro: int) -> None:
        """Dropout is a function of where in the run it is drawn, so that a resumed run draws it again."""
        key = [self._config.seed % 2**63, step, self._workers.rank, micro]
        torch.manual_seed(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1))
