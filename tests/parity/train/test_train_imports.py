"""What a training process imports: starting it must not cost more than training needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.parity.train.pool import Pool
from tests.parity.train.test_train_checkpoint import train

HEAVY = ("mlflow", "fastapi", "torch._inductor.compile_fx")


def brought_in(workers, folder: Path, stage: int) -> list[str]:
    train(workers, folder, {"parallel__zero_stage": stage, "train__max_steps": 2})
    return [name for name in HEAVY if name in sys.modules]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_worker_takes_its_steps_without_mlflow_and_without_the_compiler(one: Pool, tmp_path: Path, stage: int):
    assert one.call(brought_in, tmp_path, stage) == [[]]
