"""Skips these tests where there is no GPU, but for a rehearsal: `XALIGN_GPU_TESTS=cpu` runs them on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu.device import DEVICE
from tests.parity.train.pool import Pool


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if DEVICE == "cuda" and not torch.cuda.is_available():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="no GPU; XALIGN_GPU_TESTS=cpu rehearses on the CPU"))


@pytest.fixture(scope="session")
def gpu() -> Iterator[Pool]:
    """One worker that trains on the GPU; in a rehearsal on the CPU."""
    pool = Pool(1, gpus=int(DEVICE == "cuda"))
    yield pool
    pool.close()
