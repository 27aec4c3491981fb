"""Fine-tuning by the Trainer: repeatable, silent and alone in its process; the epoch that is kept, and the rate."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from xalign_ray.errors import TrainingError
from xalign_ray.finetune.features import LengthPools
from xalign_ray.finetune.settings import Choice, FineTuning
from xalign_ray.finetune.trainer import repeatable, train

SETTINGS = FineTuning(learning_rate=0.05, num_train_epochs=3, train_batch_size=4, seed=1)
LENGTHS = [5, 1, 3, 2, 4, 6, 2, 1, 3, 5]
ROWS = [{"x": 0.1 * number, "labels": [1] * length} for number, length in enumerate(LENGTHS)]


class Line(nn.Module):
    """y = w x, with dropout on x so that randomness matters; the loss is a mean over labels."""

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.dropout = dropout

    def forward(self, x: Tensor, labels: Tensor) -> SimpleNamespace:
        seen = nn.functional.dropout(x, self.dropout, self.training)
        weight = (labels != -100).sum(dim=1, keepdim=True)
        return SimpleNamespace(loss=(weight * (self.layer(seen) - 3 * x) ** 2).sum() / weight.sum())


def collate(rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    width = max(len(row["labels"]) for row in rows)
    labels = [row["labels"] + [-100] * (width - len(row["labels"])) for row in rows]
    return {"x": torch.tensor([[row["x"]] for row in rows]), "labels": torch.tensor(labels)}


def batches(settings: FineTuning) -> LengthPools:
    forward = settings.per_device_train_batch_size or settings.train_batch_size
    return LengthPools(np.arange(10), np.array(LENGTHS), settings.train_batch_size, forward, settings.seed)


def run(
    settings: FineTuning,
    development: Callable[[nn.Module], float] = lambda _: 0.0,
    on_epoch: Callable[[int, float], None] = lambda *_: None,
    make: Callable[[], nn.Module] = Line,
    rows: Any = ROWS,
) -> tuple[Choice, list[float]]:
    with repeatable(settings.seed):
        model = make()
        cpu = torch.device("cpu")
        choice = train(model, rows, collate, batches(settings), lambda: development(model), settings, cpu, on_epoch)
        assert not model.training
    return choice, [parameter.item() for parameter in model.parameters()]


def test_equal_seeds_give_equal_weights_to_the_bit_and_others_do_not():
    assert run(SETTINGS) == run(SETTINGS)
    assert run(SETTINGS)[1] != run(SETTINGS.model_copy(update={"seed": 2}))[1]


def test_the_first_of_the_best_epochs_is_kept_or_the_last():
    seen: list[list[float]] = []

    def development(model: nn.Module) -> float:
        assert not model.training
        seen.append([parameter.item() for parameter in model.parameters()])
        return [0.2, 0.7, 0.7][(len(seen) - 1) % 3]

    assert run(SETTINGS, development) == (Choice(2, (0.2, 0.7, 0.7)), seen[1])
    assert len({tuple(values) for values in seen}) == 3
    assert run(SETTINGS.model_copy(update={"load_best_model_at_end": False}), development) == (
        Choice(3, (0.2, 0.7, 0.7)),
        seen[2],
    )


def test_each_epoch_is_told_with_its_development_score_and_may_end_by_raising():
    told: list[tuple[int, float]] = []
    run(SETTINGS, lambda _: [0.2, 0.7, 0.4][len(told)], lambda *epoch: told.append(epoch))
    assert told == [(1, 0.2), (2, 0.7), (3, 0.4)]
    with pytest.raises(KeyboardInterrupt):
        run(SETTINGS, on_epoch=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))


@pytest.mark.parametrize("forward", [1, 2])
def test_accumulated_passes_make_the_step_of_the_whole_batch(forward: int):
    still = lambda: Line(dropout=0.0)  # noqa: E731
    whole = run(SETTINGS, make=still)[1]
    parts = run(SETTINGS.model_copy(update={"per_device_train_batch_size": forward}), make=still)[1]
    assert parts == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({}, [0, 0.5] + [1 - k / 18 for k in range(17)]),
        ({"warmup_steps": 4}, [0, 0.25, 0.5, 0.75] + [1 - k / 16 for k in range(15)]),
        ({"lr_scheduler_type": "constant"}, [1.0] * 19),
    ],
)
def test_the_rate_warms_up_over_a_share_or_a_number_of_steps(settings: dict[str, Any], rates: list[float]):
    class Constant(nn.Module):
        """One weight, gradient always 1: Adam's step is the learning rate itself, decay aside."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor, labels: Tensor) -> SimpleNamespace:
            places.append(self.weight.item())
            return SimpleNamespace(loss=self.weight.sum() + 0 * (x.sum() + labels.sum()))

    places: list[float] = []
    plain = FineTuning(learning_rate=1.0, num_train_epochs=2, train_batch_size=1, weight_decay=0.0, **settings)
    run(plain, lambda _: float(len(places)), make=Constant)
    assert [before - after for before, after in itertools.pairwise(places)] == pytest.approx(rates, abs=1e-4)


def test_a_loss_that_is_not_finite_stops_with_the_cure():
    rows = [{"x": float("nan"), "labels": [1]}] * 10
    with pytest.raises(TrainingError, match=r"The fine-tuning loss became nan; lower the learning rate\."):
        run(SETTINGS, rows=rows)


def test_nothing_is_printed_or_written_and_a_launcher_s_variables_are_not_followed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    joined = torch.distributed.is_initialized()  # by another test of this process
    launched = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    run(SETTINGS)
    before = dict(os.environ)
    assert run(SETTINGS)[0].epoch == 1  # with these it would wait for another process
    assert dict(os.environ) == before
    assert torch.distributed.is_initialized() == joined
    assert (capfd.readouterr(), list(tmp_path.iterdir())) == (("", ""), [])


def test_randomness_and_threads_outside_stay_as_they_were():
    def draw() -> tuple[float, ...]:
        return torch.rand(1).item(), float(np.random.rand()), random.random()

    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    expected, threads = draw(), torch.get_num_threads()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    with repeatable(5):
        assert torch.get_num_threads() == 1
        first = torch.rand(3)
        np.random.rand()
        random.random()
    assert draw() == expected
    assert torch.get_num_threads() == threads
    with repeatable(5):
        assert torch.equal(torch.rand(3), first)
