"""Losses over a whole step are those of one batch in plain torch, for any cut and ZeRO stage, and resume to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity.train import (
    synthetic,
    test_train_contrast,
    test_train_denoising_alignment,
    test_train_distillation,
    test_train_hard_negatives,
)
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_contrast import MIXED, MULTI, ROWS, RowsOf, assert_same, step_of
from tests.parity.train.test_train_steps import TIGHT
from xalign_ray.config.derive import derive_batch

CONTRAST = test_train_contrast.SETTINGS


@dataclass(frozen=True)
class Reference:
    """A loss: its settings, its rows by position, and its loss and gradient in plain torch."""

    settings: dict[str, Any]
    rows_of: RowsOf
    plain_step: Callable[..., Any]


REFERENCES = {
    "contrast": Reference(CONTRAST, test_train_contrast.rows_of, test_train_contrast.plain_step),
    "multi": Reference(CONTRAST | {"objectives": [MULTI]}, test_train_contrast.rows_of, test_train_contrast.plain_step),
    "mixed": Reference(CONTRAST | MIXED, test_train_contrast.rows_of, test_train_contrast.plain_step),
    "hard": Reference(CONTRAST, test_train_hard_negatives.rows_with_negatives, test_train_hard_negatives.plain_step),
    "distill": Reference(
        test_train_distillation.SETTINGS, test_train_contrast.rows_of, test_train_distillation.plain_step
    ),
    "denoise": Reference(
        test_train_denoising_alignment.SETTINGS,
        test_train_denoising_alignment.rows_of,
        test_train_denoising_alignment.plain_step,
    ),
}


@pytest.mark.parametrize(
    ("workers", "micro_batch", "name"),
    [
        *(("one", 1, name) for name in ("contrast", "distill")),
        *(("one", 3, name) for name in ("multi", "hard", "denoise")),
        *(("one", 8, name) for name in ("contrast", "denoise")),
        *(("two", 1, name) for name in ("hard", "denoise")),
        *(("two", 3, name) for name in ("contrast", "multi", "distill")),
        *(("four", 1, name) for name in ("contrast", "multi", "hard", "distill", "denoise")),
        *(("four", 2, name) for name in ("multi", "hard")),
    ],
)
def test_any_cut_is_one_batch(request: pytest.FixtureRequest, workers: str, micro_batch: int, name: str) -> None:
    pool, asked = request.getfixturevalue(workers), REFERENCES[name]
    taken = pool.call(step_of, asked.settings | {"train__per_device_batch_size": micro_batch}, asked.rows_of)
    assert_same(taken, *asked.plain_step(asked.settings)[:2])


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        *((stage, "mixed") for stage in (0, 1, 2)),
        *((1, "distill"), (2, "denoise"), (2, "hard")),
        *((3, name) for name in ("mixed", "multi", "hard", "distill", "denoise")),
    ],
)
def test_every_zero_stage_is_one_batch(two: Pool, stage: int, name: str) -> None:
    asked = REFERENCES[name]
    settings = asked.settings | {"train__per_device_batch_size": 2, "parallel__zero_stage": stage}
    settings |= {"parallel__deepspeed_overrides": TIGHT} if stage == 3 else {}
    taken = two.call(step_of, settings, asked.rows_of)
    assert_same(taken, *asked.plain_step(asked.settings)[:2])
    assert taken[0][2].get("train/sentence_accuracy") == taken[1][2].get("train/sentence_accuracy")


def train_until(workers: Any, folder: Path, settings: dict[str, Any], rows_of: RowsOf, until: int | None) -> None:
    """A run on the same rows each step, broken off after so many steps."""
    config = synthetic.config(parallel__workers=workers.size, **settings)
    if until:
        config = config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update={"async_save": False})})
    low, high = derive_batch(config).rows_of(workers.rank)

    def batches(first_step: int, *_: Any) -> Any:
        for step in range(first_step, 100):
            if step == until:
                raise synthetic.Interrupted
            yield rows_of(np.arange(low, high)) | {"position": step * ROWS + np.arange(low, high)}

    synthetic.run(config, folder, workers, open_batches=batches)


@pytest.mark.parametrize(
    ("stage", "bf16", "name"),
    [
        *((0, False, name) for name in ("mixed", "distill")),
        *((2, True, name) for name in ("mixed", "hard", "denoise")),
        (3, False, "mixed"),
    ],
)
def test_a_resumed_run_with_dropout_is_the_same_to_the_last_bit(
    two: Pool, tmp_path: Path, stage: int, bf16: bool, name: str
) -> None:
    asked = REFERENCES[name]
    settings = asked.settings | {"parallel__zero_stage": stage, "train__bf16": bf16, "checkpoint__save_steps": 3}
    settings |= {"model__hidden_dropout_prob": 0.1, "train__per_device_batch_size": 2}
    two.call(train_until, tmp_path / "straight", settings, asked.rows_of, None)
    with pytest.raises(synthetic.Interrupted):
        two.call(train_until, tmp_path / "cut", settings, asked.rows_of, 5)
    two.call(train_until, tmp_path / "cut", settings, asked.rows_of, None)
    straight, cut = (synthetic.losses(tmp_path / folder) for folder in ("straight", "cut"))
    assert straight == cut
    assert len(set(straight)) == 6
    states = [synthetic.weights(tmp_path / folder) for folder in ("straight", "cut")]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
