"""What another try would only meet again ends a job at once: a cluster too small, a loss that is not finite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ray.runs import events, on_ray
from tests.ray.small import batches, recipe
from xalign_ray.errors import ConfigError, TrainingError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
STEPS, SAVED_EVERY = 20, 4
SIZES = batches(24, 12, STEPS, SAVED_EVERY, held_out_every=8)


def test_a_cluster_that_is_too_small_is_refused_with_the_numbers(world: list[str], tmp_path: Path):
    config = recipe([*world, *SIZES], "parallel.workers=8", "parallel.cpus_per_worker=1")
    with pytest.raises(ConfigError, match=r"workers 8 x .*cpus_per_worker 1 and 1 CPU for the feed are 9 CPUs; the cl"):
        on_ray(config, tmp_path)


def test_a_loss_that_is_not_finite_ends_the_job_without_a_retry(world: list[str], tmp_path: Path):
    broken = ["train.optimizer.learning_rate=1.0e+37", "train.max_grad_norm=0", "train.schedule.warmup_steps=0"]
    with pytest.raises(TrainingError, match=r"The loss of step \d+ is not finite: .*batch_hash \d+"):
        on_ray(recipe([*world, *SIZES, "parallel.workers=1"], *broken), tmp_path)
    assert {event["attempt"] for event in events(tmp_path)} == {1}
