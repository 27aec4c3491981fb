"""One small embedded world for all tests of what is in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.demo import write_demo

SIZES = {"sentences": 700, "parallel_sentences": 80, "retrieval_pairs": 60}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    write_demo(folder, seed=3, **SIZES)
    return folder
