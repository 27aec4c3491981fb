"""What is scored between steps: held-out losses, and retrieval on the recipe's tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.schema import RunConfig
from xalign_ray.models.own_pooling import own_pooling, own_prompt
from xalign_ray.objectives.combine import Objectives
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.held_out import can_score, held_out_losses
from xalign_ray.train.micro_batch import RankBatch
from xalign_ray.train.pair_retrieval import retrieval_accuracies

TENTHS = 10  # of a run, after each of which retrieval is scored unless the recipe says otherwise


class ScoredRows(Protocol):
    """What is scored of prepared data; `data.prepared.Prepared` has it."""

    @property
    def languages(self) -> list[str]: ...
    @property
    def held_out_missing(self) -> Mapping[str, int]: ...
    @property
    def has_tests(self) -> bool: ...
    def read_tests(self, prompt: str) -> Any: ...  # a sequence of TestPairs
    def held_out(self, rank: int, workers: int, batch_rows: int) -> Sequence[tuple[NDArray[np.integer], RankBatch]]: ...


class Scoring:
    """Scores the model when it is due; every method is called by all ranks. Training goes on as if it had not been."""

    def __init__(
        self, engine: Engine, objectives: Objectives, config: RunConfig, prepared: ScoredRows, workers: Workers
    ) -> None:
        train = config.train
        self._engine, self._prepared, self._workers = engine, prepared, workers
        self._steps, self._rows = train.max_steps, train.per_device_batch_size
        self._tokens = self._rows * config.data.max_seq_length
        self._has_loss = can_score(objectives)
        self._held_out_steps = train.eval_steps
        self._has_text = bool(config.data.corpora)
        every = train.retrieval_steps
        has_tests = every != 0 and prepared.has_tests
        self._retrieval_steps = (max(1, train.max_steps // TENTHS) if every is None else every) if has_tests else 0
        start = config.model.init_from if has_tests else None
        self._pooling = (own_pooling(start) if start else None) or "mean"
        self._tests = prepared.read_tests(own_prompt(start) if start else "") if has_tests else ()

    def is_due(self, step: int) -> bool:
        """Whether something is scored after so many steps."""
        return self._is_at(step, self._held_out_steps) or (
            bool(self._tests) and self._is_at(step, self._retrieval_steps)
        )

    def score(self, step: int, log: Callable[..., None]) -> None:
        """Scores what is due after so many steps; before the first one retrieval alone.

        Args:
            log: called with the kind of event, the step and its metrics, and fields by name.
        """
        if step and self._has_loss and self._is_at(step, self._held_out_steps):
            self._score_held_out(step, log)
        if self._is_at(step, self._retrieval_steps):
            found = retrieval_accuracies(
                self._engine, self._tests, self._prepared.languages, self._workers, self._pooling, self._tokens
            )
            log("retrieval", step, {"retrieval/accuracy": sum(found.values()) / len(found)}, languages=found)

    def notes(self) -> list[tuple[bool, str]]:
        """What the run's numbers will lack, and why, each with whether it is so."""
        missing = self._prepared.held_out_missing if self._held_out_steps else {}
        return [
            (
                bool(missing),
                "The held-out loss leaves out "
                + ", ".join(f"{language} ({count:,} lines)" for language, count in missing.items())
                + ": no line of so few was drawn to be held out.",
            ),
            (
                bool(self._held_out_steps) and not self._has_loss,
                "There is no held-out loss: it is that of the objective masked_lm, which the recipe lacks.",
            ),
            (
                bool(self._held_out_steps) and self._has_loss and not self._has_text,
                "There is no held-out loss: it is of text in one language, and data.corpora names none.",
            ),
        ]

    def _is_at(self, step: int, every: int) -> bool:
        return bool(every) and (step % every == 0 or step == self._steps)

    def _score_held_out(self, step: int, log: Callable[..., Any]) -> None:
        batches = self._prepared.held_out(self._workers.rank, self._workers.size, self._rows)
        losses = held_out_losses(self._engine, batches, self._prepared.languages, self._workers)
        if losses:
            missing = sorted(set(self._prepared.held_out_missing) - set(losses))
            by_language = {code: loss if math.isfinite(loss) else None for code, loss in losses.items()}
            mean = {"held_out/loss": sum(losses.values()) / len(losses)}
            log("held_out", step, mean, languages=by_language, missing=missing)
