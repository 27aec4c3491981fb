"""What a training process holds: no larger address space than training needs, no package that only drivers need."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.parity.train.pool import Pool
from tests.parity.train.test_train_checkpoint import train


def largest_address_space(workers, folder: Path, stages: list[int]) -> int:
    """The process's largest address space in its life, in MiB, after training at these stages."""
    for stage in stages:
        train(workers, folder / f"{stage}", {"parallel__zero_stage": stage, "train__max_steps": 4})
    (peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmPeak:"))
    return int(peak.split()[1]) >> 10


def imported(_) -> set[str]:
    return {"mlflow", "torch._inductor.compile_fx", "deepspeed"} & sys.modules.keys()


def test_deepspeeds_buffers_are_as_large_as_the_model_and_what_it_does_not_use_is_not_imported(tmp_path: Path):
    # Its own size, 5e8 numbers, would be asked for anew in every step: memory on a GPU, address space on a CPU.
    alone = Pool(1)
    try:
        (before,) = alone.call(largest_address_space, tmp_path, [0])
        (after,) = alone.call(largest_address_space, tmp_path, [1, 2, 3])
        assert alone.call(imported) == [{"deepspeed"}]
    finally:
        alone.close()
    assert after - before < 500
