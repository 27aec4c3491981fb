"""A run that dies for good goes on under Ray with fewer workers, dies again, and ends with more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.train.pool import Pool
from tests.ray.runs import calm, check_rows, kill_worker, on_ray, reached, starts, when
from tests.ray.small import batches, recipe
from xalign_ray.errors import TrainingError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
STEPS, SAVED_EVERY = 24, 4
SIZES = batches(24, 12, STEPS, SAVED_EVERY)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_workers_then_one_then_two_take_the_same_steps(
    world: list[str], two: Pool, tmp_path: Path, stage: int
) -> None:
    settings = [*world, *SIZES, f"parallel.zero_stage={stage}", "parallel.max_failures=0"]
    expected = calm(two, recipe(settings), tmp_path / "calm")
    for attempt, (workers, dies_at) in enumerate([(2, 7), (1, 15)], start=1):
        killer = when((reached(tmp_path / "moved", dies_at, attempt), kill_worker(workers - 1)))
        with pytest.raises(TrainingError, match=r"Workers failed more often than parallel.max_failures allows"):
            on_ray(recipe(settings, f"parallel.workers={workers}"), tmp_path / "moved")
        killer.join(1)
    moved = on_ray(recipe(settings, "parallel.workers=2"), tmp_path / "moved")
    first, second, third = starts(tmp_path / "moved")
    assert first == 0 < second < third
    check_rows(tmp_path / "moved", expected)
    assert [loss for _, loss in moved] == pytest.approx([loss for _, loss in expected], rel=1e-4)
