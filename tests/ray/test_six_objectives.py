"""Four losses in one run of 200 steps on two workers, one of them killed: the same rows, the same losses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.train.pool import Pool
from tests.ray.runs import calm, check_rows, kill_after, on_ray, starts
from tests.ray.small import batches, recipe, write_world

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
STEPS, KILLED_AT, SAVED_EVERY = 200, 117, 50


def test_a_killed_run_of_four_objectives_ends_as_the_calm_one(two: Pool, tmp_path: Path) -> None:
    settings = [*write_world(tmp_path, parallel=300), *batches(16, 8, STEPS, saved_every=SAVED_EVERY)]
    config = recipe(settings, "model.dropout=0.1", "objectives.3.queue_size=100", name="tiny/all")
    assert [one.kind for one in config.objectives] == [
        "masked_lm",
        "dictionary_alignment",
        "word_exchange",
        "momentum_contrast",
    ]
    expected = calm(two, config, tmp_path / "calm")
    killer = kill_after(tmp_path / "killed", [(KILLED_AT, 1)])
    killed = on_ray(config, tmp_path / "killed")
    killer.join(1)
    first, again = starts(tmp_path / "killed")
    assert (first, again % SAVED_EVERY) == (0, 0)
    assert 100 <= again < STEPS  # the kill comes at step 117 or as soon after it as the machine allows
    assert killed == expected
    check_rows(tmp_path / "killed", expected)
