"""The fine-tuning loop of every task: AdamW, linear warm-up and decay, the epoch chosen by a development score."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from xalign_ray.errors import TrainingError
from xalign_ray.finetune.settings import FineTuning

WARMUP_SHARE = 0.1
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
POOL_BATCHES = 32  # inside so many batches' worth of shuffled examples, those of like length go together

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which epoch was kept, and why.

    Attributes:
        epoch: from 1; the first of equals.
        development: score after each epoch.
    """

    epoch: int
    development: tuple[float, ...]


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Everything random inside follows from the seed, on one thread; outside nothing changes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def fine_tune(
    model: nn.Module,
    lengths: Sequence[int],
    batch_of: Callable[[Sequence[int], int], Mapping[str, Tensor]],
    development: Callable[[], float],
    settings: FineTuning,
    on_epoch: Callable[[int, float], None] = lambda _epoch, _score: None,
) -> Choice:
    """Trains the model in place and leaves it at its best epoch, in evaluation mode. Call it inside `repeatable`.

    Args:
        model: gives an output with `.loss` for a batch.
        lengths: of each example, at least one; only to put those of like length together.
        batch_of: the model's arguments for examples given by index, in an epoch (from 1), on the model's device.
        development: score of the model as it is now, higher is better; called after every epoch.
        settings: learning rate, epochs, batch size, seed.
        on_epoch: told the epoch (from 1) and its development score; it may end everything by raising.

    Raises:
        TrainingError: the loss is not finite.
    """
    steps_per_epoch = math.ceil(len(lengths) / settings.train_batch_size)
    optimizer = torch.optim.AdamW(_parameter_groups(model), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, _warm_up_and_decay(steps_per_epoch * settings.num_train_epochs)
    )
    order = torch.Generator().manual_seed(settings.seed)
    scores: list[float] = []
    best: dict[str, Tensor] = {}
    for epoch in range(1, settings.num_train_epochs + 1):
        model.train()
        for indices in _shuffled_batches(lengths, settings.train_batch_size, order):
            _step(model, batch_of(indices, epoch), optimizer)
            schedule.step()
        model.eval()
        scores.append(development())
        log.info("epoch %d of %d: development score %.4f", epoch, settings.num_train_epochs, scores[-1])
        on_epoch(epoch, scores[-1])
        if scores[-1] > max(scores[:-1], default=-math.inf):
            best = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
        if (
            settings.early_stopping_patience is not None
            and epoch - _best_epoch(scores) >= settings.early_stopping_patience
        ):
            log.info("no better score for %d epochs: stopped", settings.early_stopping_patience)
            break
    model.load_state_dict(best)
    return Choice(_best_epoch(scores), tuple(scores))


def _best_epoch(scores: Sequence[float]) -> int:
    return scores.index(max(scores)) + 1


def _shuffled_batches(lengths: Sequence[int], batch_size: int, order: torch.Generator) -> list[list[int]]:
    """Every index once, in batches of like length in random order: half the padding of a plain shuffle, or less."""
    batches = []
    for pool in torch.randperm(len(lengths), generator=order).split(POOL_BATCHES * batch_size):
        ranked = sorted(pool.tolist(), key=lambda index: lengths[index])
        batches += [ranked[start : start + batch_size] for start in range(0, len(ranked), batch_size)]
    return [batches[place] for place in torch.randperm(len(batches), generator=order).tolist()]


def _step(model: nn.Module, batch: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    loss = model(**batch).loss
    if not torch.isfinite(loss):
        raise TrainingError(f"The fine-tuning loss became {loss.item()}; lower the learning rate.")
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _warm_up_and_decay(steps: int) -> Callable[[int], float]:
    warmup = math.ceil(WARMUP_SHARE * steps)

    def factor(step: int) -> float:
        return (step + 1) / warmup if step < warmup else (steps - step) / max(1, steps - warmup)

    return factor


def _parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Matrices decay, vectors (biases, LayerNorm) do not."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    return [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
