"""A step under DeepSpeed, cut over ranks, micro-steps and ZeRO parts, is the step of plain PyTorch to each number."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity.train import synthetic
from tests.parity.train.plain import Step, build, copy_of, plain_steps
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_steps import TIGHT
from xalign_ray.train.distributed import Workers
from xalign_ray.train.engine import Engine
from xalign_ray.train.step import Stepper

DECAY = 0.2
# Seven rows on two ranks in two micro-steps each: 2 + 1 and 2 + 2. The large epsilon keeps Adam from making a step of
# full length out of the rounding of a gradient that is 0, and lets clipping be seen in the first step.
OPTIMIZER = {"learning_rate": 1e-2, "weight_decay": DECAY, "epsilon": 1e-3, "beta1": 0.8, "beta2": 0.95}
SETTINGS: dict[str, Any] = {
    "model__hidden_dropout_prob": 0.0,
    "train__global_batch_size": 7,
    "train__per_device_batch_size": 2,
    "train__optimizer": OPTIMIZER,
    "train__schedule": {"warmup_steps": 2},
    "train__max_steps": 6,
}
RATES = (0.01 / 3, 0.02 / 3, 0.01, 0.0075)  # warm-up in thirds, the peak, the first quarter of the decay


def weighted(masked_lm: Any, dictionary_alignment: Any) -> dict[str, Any]:
    kinds = {"masked_lm": masked_lm, "dictionary_alignment": dictionary_alignment}
    return {"objectives": [{"kind": kind, "weight": weight} for kind, weight in kinds.items()]}


# Settings, and the weights of both losses in each of four steps.
CASES: dict[str, tuple[dict[str, Any], tuple[float, ...], tuple[float, ...]]] = {
    "weights 1 and 10": (weighted(1.0, 10.0) | {"train__max_grad_norm": 0.0}, (1.0,) * 4, (10.0,) * 4),
    "scheduled and clipped": (
        weighted([[0, 4.0], [4, 0.0]], [[1, 0.0], [3, 8.0]]) | {"train__max_grad_norm": 0.05},
        (4.0, 3.0, 2.0, 1.0),
        (0.0, 0.0, 4.0, 8.0),
    ),
    "in phases": (
        weighted(1.0, 1.0)
        | {"train__max_grad_norm": 0.5, "model__num_hidden_layers": 2}
        | {"train__optimizer": OPTIMIZER | {"rates": {"new_rows": 3.0, "layers:1-1": 0.5}}}
        | {"trainable": [[0, ["new_rows", "layers:2-"]], [2, ["head", {"layers": "1-1"}]], [0.5 * 6, "all"]]},
        (1.0,) * 4,
        (1.0,) * 4,
    ),
}
FACTORS = {"new rows": 3.0, "layer 1": 0.5}
MOVED = {"in phases": [("new_rows", "layer 2"), ("new_rows", "layer 2"), ("head", "layer 1"), ("all",)]}


@cache
def expected_steps(case: str, max_grad_norm: float | None = None, decay: float = DECAY) -> list[Step]:
    settings, *weights = CASES[case]
    changes = {} if max_grad_norm is None else {"train__max_grad_norm": max_grad_norm}
    by_step = [
        {"masked_lm": masked_lm, "dictionary_alignment": alignment}
        for masked_lm, alignment in zip(*weights, strict=True)
    ]
    config = synthetic.config(**SETTINGS | settings | changes)
    return plain_steps(config, by_step, RATES, decay, MOVED.get(case, ()), FACTORS if case in MOVED else {})


class Watched(Engine):
    """Keeps the gradients that a step is taken with, before they are clipped."""

    gradients: dict[str, torch.Tensor]

    def step(self, learning_rate: float) -> float:
        from deepspeed.utils import safe_get_full_grad

        flat = self._flat_gradients() if self._flat else {}
        self.gradients = copy_of({n: flat[p] if flat else safe_get_full_grad(p) for n, p in self.parameters()})
        return super().step(learning_rate)

    def _flat_gradients(self) -> dict[torch.nn.Parameter, torch.Tensor]:
        """Those of stages 1 and 2, which are of all ranks once they are reduced, as the step is about to do."""
        found = {}
        for own, group in zip(self._flat._sums, self._flat.groups, strict=True):
            part = self._flat._reduced(own.clone())
            whole = part.new_empty(group.flat.numel())
            self._workers.join_parts(whole, part) if self._workers.size > 1 else whole.copy_(part)
            lengths = [one.numel() for one in group.weights]
            pieces = whole[: sum(lengths)].split(lengths)
            found |= {one: piece.view_as(one) for one, piece in zip(group.weights, pieces, strict=True)}
        return found

    def parameters(self) -> list[tuple[str, torch.nn.Parameter]]:
        return list(self._engine.module.named_parameters())

    def weights(self) -> dict[str, torch.Tensor]:
        import deepspeed

        with deepspeed.zero.GatheredParameters([p for _, p in self.parameters()], enabled=self._stage == 3):
            return copy_of(dict(self.parameters()))


def engine_steps(workers: Workers, settings: dict[str, Any], count: int) -> list[Step]:
    """The first steps as a run takes them."""
    config = synthetic.config(parallel__workers=workers.size, **settings)
    objectives = build(config)
    engine = Watched(objectives, config, workers)
    stepper = Stepper(engine, objectives, config, workers)
    steps = []
    for step, share in zip(range(count), synthetic.stream(config, 0, workers.rank, workers.size), strict=False):
        stepper.take(step, share)
        took = stepper.fetch()
        steps.append(
            Step(took.losses, took.loss, took.learning_rate, took.gradient_norm, engine.gradients, engine.weights())
        )
    return steps


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float, of: str) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        torch.testing.assert_close(
            found[name], values, rtol=1e-4, atol=tolerance, msg=lambda said, name=name: f"{of} of {name}: {said}"
        )


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("case", CASES)
def test_losses_gradients_norm_rate_and_weights_are_those_of_plain_torch(two: Pool, case: str, stage: int):
    settings = SETTINGS | CASES[case][0] | {"parallel__zero_stage": stage}
    if stage == 3:
        settings["parallel__deepspeed_overrides"] = TIGHT
    for of_rank in two.call(engine_steps, settings, len(RATES)):
        weights = [
            dict(zip(("masked_lm", "dictionary_alignment"), both, strict=True))
            for both in zip(*CASES[case][1:], strict=True)
        ]
        for number, (took, plain) in enumerate(zip(of_rank, expected_steps(case), strict=True), start=1):
            # A loss of no weight is not computed, but at stage 3.
            losses = {kind: loss for kind, loss in plain.losses.items() if stage == 3 or weights[number - 1][kind]}
            assert took.losses == pytest.approx(losses, abs=1e-5)
            assert took.loss == pytest.approx(plain.loss, abs=1e-4)
            assert took.learning_rate == pytest.approx(plain.learning_rate, rel=1e-12)
            frozen = {n: zero for n, zero in plain.gradients.items() if not zero.any() and n not in took.gradients}
            assert_equal(took.gradients | frozen, plain.gradients, 1e-5, f"step {number}: the gradient")
            assert took.norm == pytest.approx(plain.norm, rel=1e-5)
            assert_equal(took.after, plain.after, 2e-6, f"step {number}: the weights")


def test_what_the_cases_are_for_can_be_seen_in_their_weights():
    """Each makes a difference far above the tolerance: otherwise an engine without it would pass, too."""
    clipped = expected_steps("scheduled and clipped")[-1]
    free, undecayed = (
        expected_steps("scheduled and clipped", max_grad_norm=clip, decay=decay)[-1]
        for clip, decay in ((0.0, DECAY), (0.05, 0.0))
    )
    assert max((clipped.after[name] - free.after[name]).abs().max() for name in clipped.after) > 1e-3
    assert max((clipped.after[name] - undecayed.after[name]).abs().max() for name in clipped.after) > 1e-4


MOMENTUM = {"kind": "momentum_contrast", "queue_size": 40, "projection": 8, "momentum": 0.9, "temperature": 0.2}
AVERAGE = "losses.momentum_contrast.average.tower."
QUEUE = "losses.momentum_contrast.queue."


def state_around_a_step(workers: Workers, settings: dict[str, Any]) -> tuple[dict[str, torch.Tensor], ...]:
    """Weights, average and queue before a step and after it."""
    config = synthetic.config(parallel__workers=workers.size, **settings)
    objectives = build(config)
    engine = Engine(objectives, config, workers)
    before = copy_of(objectives.state_dict())
    share = next(synthetic.stream(config, 0, workers.rank, workers.size))
    Stepper(engine, objectives, config, workers).take(0, share)
    return before, copy_of(objectives.state_dict())


def keys_by_hand(settings: dict[str, Any]) -> torch.Tensor:
    """The keys of the first step's sentences in the order of positions, by the average that the step began with."""
    config = synthetic.config(**settings)
    tower = build(config).losses["momentum_contrast"].average.tower
    rows = synthetic.rows(np.arange(config.train.global_batch_size))
    sides = {name.removeprefix("key_"): torch.from_numpy(rows[name]).long() for name in rows if name.startswith("key_")}
    with torch.no_grad():
        states = tower["encoder"].encode(sides)[sides["input_ids"] == synthetic.SyntheticRows().special.cls]
        return tower["project"](torch.nn.functional.normalize(states, dim=-1))


@pytest.mark.parametrize("stage", [0, 2])
def test_the_average_follows_the_weights_that_the_step_left_and_the_queue_takes_the_keys_of_all_ranks(
    two: Pool, stage: int
):
    settings = SETTINGS | {"objectives": [MOMENTUM], "parallel__zero_stage": stage}
    keys = keys_by_hand(settings)
    assert 6 < len(keys) < 40
    for before, after in two.call(state_around_a_step, settings):
        averaged = [name for name in before if name.startswith(f"{AVERAGE}encoder.") and "position_ids" not in name]
        assert len(averaged) > 20
        for name in averaged:
            weight = after[name.removeprefix(AVERAGE)]
            torch.testing.assert_close(after[name], 0.9 * before[name] + 0.1 * weight, rtol=0, atol=1e-6)
        moved = max((after[name] - before[name]).abs().max() for name in after if name.startswith("encoder."))
        assert moved > 1e-3, "else following the weights before the step would look the same"
        torch.testing.assert_close(after[f"{QUEUE}keys"][: len(keys)], keys, rtol=0, atol=1e-5)
        assert torch.equal(after[f"{QUEUE}keys"][len(keys) :], before[f"{QUEUE}keys"][len(keys) :])
        assert after[f"{QUEUE}entered"] == len(keys)
