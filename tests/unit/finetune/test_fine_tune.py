"""The fine-tuning loop: repeatable, the best epoch kept, every example once an epoch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from xalign_ray.errors import TrainingError
from xalign_ray.finetune.loop import Choice, fine_tune, repeatable
from xalign_ray.finetune.settings import FineTuning

SETTINGS = FineTuning(learning_rate=0.05, num_train_epochs=3, train_batch_size=4, seed=1)
LENGTHS = [5, 1, 3, 2, 4, 6, 2, 1, 3, 5]


class Line(nn.Module):
    """y = w x, with dropout on x so that randomness matters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, x: Tensor) -> SimpleNamespace:
        seen = nn.functional.dropout(x, 0.5, self.training)
        return SimpleNamespace(loss=((self.layer(seen) - 3 * x) ** 2).mean())


def batch_of(indices: Sequence[int], _: int) -> dict[str, Tensor]:
    return {"x": torch.tensor([[0.1 * index] for index in indices])}


def run(settings: FineTuning, development: Callable[[nn.Module], float] = lambda _: 0.0) -> tuple[Choice, list[float]]:
    with repeatable(settings.seed):
        model = Line()
        choice = fine_tune(model, LENGTHS, batch_of, lambda: development(model), settings)
    return choice, [parameter.item() for parameter in model.parameters()]


def test_equal_seeds_give_equal_weights_to_the_bit_and_others_do_not():
    assert run(SETTINGS) == run(SETTINGS)
    assert run(SETTINGS)[1] != run(FineTuning(learning_rate=0.05, num_train_epochs=3, train_batch_size=4, seed=2))[1]


def test_the_first_of_the_best_epochs_is_kept():
    seen: list[list[float]] = []

    def development(model: nn.Module) -> float:
        assert not model.training
        seen.append([parameter.item() for parameter in model.parameters()])
        return [0.2, 0.7, 0.7][len(seen) - 1]

    choice, weights = run(SETTINGS, development)
    assert choice == Choice(2, (0.2, 0.7, 0.7))
    assert weights == seen[1]
    assert len({tuple(values) for values in seen}) == 3


def test_each_epoch_is_told_with_its_development_score_before_the_next_begins():
    told: list[tuple[int, float]] = []

    def development() -> float:
        return [0.2, 0.7, 0.4][len(told)]

    with repeatable(SETTINGS.seed):
        fine_tune(Line(), LENGTHS, batch_of, development, SETTINGS, lambda *epoch: told.append(epoch))
    assert told == [(1, 0.2), (2, 0.7), (3, 0.4)]


def test_training_stops_when_no_better_epoch_came_for_as_long_as_patience():
    scores = iter([0.2, 0.7, 0.6, 0.7, 0.9])
    patient = FineTuning(learning_rate=0.05, num_train_epochs=5, train_batch_size=4, seed=1, early_stopping_patience=2)
    assert run(patient, lambda _: next(scores))[0] == Choice(2, (0.2, 0.7, 0.6, 0.7))
    assert next(scores) == 0.9


def test_every_example_is_seen_once_an_epoch_in_a_new_order_and_like_lengths_together():
    epochs: list[list[list[int]]] = [[]]

    def recording(indices: Sequence[int], epoch: int) -> dict[str, Tensor]:
        assert epoch == len(epochs)
        epochs[-1].append(list(indices))
        return batch_of(indices, epoch)

    with repeatable(0):
        fine_tune(Line(), LENGTHS, recording, lambda: float(bool(epochs.append([]))), SETTINGS)
    epochs.pop()
    assert len(epochs) == 3
    for batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(10))
        assert sorted(len(batch) for batch in batches) == [2, 4, 4]
        ranked = sorted(batches, key=lambda batch: LENGTHS[batch[0]])
        assert [LENGTHS[index] for batch in ranked for index in batch] == sorted(LENGTHS)
    assert epochs[0] != epochs[1]


def test_the_rate_warms_up_over_a_tenth_of_the_steps_and_decays_to_zero():
    # One weight, gradient always 1: Adam's step is the learning rate itself, decay aside.
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> SimpleNamespace:
            places.append(self.weight.item())
            return SimpleNamespace(loss=self.weight.sum() + 0 * x.sum())

    places: list[float] = []
    settings = FineTuning(learning_rate=1.0, num_train_epochs=2, train_batch_size=1)
    with repeatable(0):
        fine_tune(Constant(), LENGTHS, batch_of, lambda: float(len(places)), settings)
    steps = [before - after for before, after in itertools.pairwise(places)]
    assert steps == pytest.approx([0.5, 1.0] + [1 - k / 18 for k in range(17)], abs=1e-4)


def test_a_loss_that_is_not_finite_stops_with_the_cure():
    with (
        repeatable(0),
        pytest.raises(TrainingError, match=r"The fine-tuning loss became nan; lower the learning rate\."),
    ):
        fine_tune(Line(), [1], lambda *_: {"x": torch.tensor([[float("nan")]])}, lambda: 0.0, SETTINGS)


def test_randomness_and_threads_outside_stay_as_they_were():
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    with repeatable(5):
        assert torch.get_num_threads() == 1
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    with repeatable(5):
        assert torch.equal(torch.rand(3), first)
