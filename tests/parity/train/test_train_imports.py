"""What a training process brings in and asks for: it must not cost more than training needs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parity.train.pool import Pool
from tests.parity.train.test_train_checkpoint import train

# The last runs compilers, when DeepSpeed asks which operators it could build: stderr is led into a file meanwhile.
HEAVY = ("mlflow", "fastapi", "torch._inductor.compile_fx", "distutils.ccompiler")


def brought_in(workers, folder: Path, stage: int) -> list[str]:
    train(workers, folder, {"parallel__zero_stage": stage, "train__max_steps": 2})
    return [name for name in HEAVY if name in sys.modules]


@pytest.fixture(scope="module")
def fresh() -> Iterator[Pool]:
    """A worker process in which no other file's tests have imported anything."""
    pool = Pool(1)
    yield pool
    pool.close()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_worker_takes_its_steps_without_mlflow_and_without_the_compiler(fresh: Pool, tmp_path: Path, stage: int):
    assert fresh.call(brought_in, tmp_path, stage) == [[]]


def largest_address_space(workers, folder: Path, stages: list[int]) -> int:
    """The process's largest address space in its life, in MiB, after training at these stages."""
    for stage in stages:
        train(workers, folder / f"{stage}", {"parallel__zero_stage": stage, "train__max_steps": 4})
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmPeak:"))
    return int(peak.split()[1]) >> 10


def test_deepspeeds_buffers_are_as_large_as_the_model(tmp_path: Path):
    # Its own size, 5e8 numbers, would be asked for anew in every step: memory on a GPU, address space on a CPU.
    alone = Pool(1)
    try:
        (before,) = alone.call(largest_address_space, tmp_path, [0])
        (after,) = alone.call(largest_address_space, tmp_path, [1, 2, 3])
    finally:
        alone.close()
    assert after - before < 500
