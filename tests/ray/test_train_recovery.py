"""Real Ray, real data, real deaths: a killed run ends as if nothing had happened."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from tests.parity.train.pool import Pool
from tests.ray.runs import curve, kill_after, on_ray, without_ray
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.prepare import prepare
from xalign_ray.demo.writer import write_demo
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.track.events import read_events
from xalign_ray.train.driver import connect

pytestmark = pytest.mark.ray
STEPS, SAVED_EVERY = 20, 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Settings that point a tiny recipe to a small world, on a running local cluster."""
    folder = tmp_path_factory.mktemp("world")
    write_demo(folder / "demo", sentences=600, parallel_sentences=100, retrieval_pairs=20)
    settings = [f"data.root={folder / 'demo'}", f"output={folder / 'runs'}", "data.tokenizer.vocab_size=1000"]
    settings += [f"train.steps={STEPS}", "train.global_batch_rows=24", "train.micro_batch_rows=12"]
    settings += [
        "model.width=32",
        "model.feed_forward=64",
        f"checkpoint.every_steps={SAVED_EVERY}",
        "train.held_out_every_steps=8",
    ]
    config = recipe(settings)
    connect(config.parallel)
    prepare(config)
    yield settings
    ray.shutdown()


@pytest.fixture(scope="module")
def two() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


def recipe(settings: list[str], *more: str) -> RunConfig:
    return load_recipe("tiny/align-mlm", [*settings, *more]).config


@pytest.mark.parametrize("stage", [2, 3])
def test_three_kills_leave_no_trace_in_hashes_and_losses(world, two: Pool, tmp_path: Path, stage: int):
    config = recipe(world, f"parallel.zero_stage={stage}", "model.dropout=0.1")
    two.call(without_ray, config, tmp_path / "calm", prepare(config).folder)
    between_saves = [step for step in range(2, STEPS) if step % SAVED_EVERY > 1]  # never just after a checkpoint
    deaths = [(step, random.randrange(2)) for step in sorted(random.sample(between_saves, 3))]
    killer = kill_after(tmp_path / "killed" / "events.jsonl", deaths)
    killed = on_ray(config, tmp_path / "killed")
    killer.join(1)
    assert not killer.is_alive()
    attempts = {event["attempt"] for event in read_events(tmp_path / "killed" / "events.jsonl", surviving=False)}
    assert attempts == {1, 2, 3, 4}, deaths
    assert killed == curve(tmp_path / "calm", STEPS), deaths


def test_one_worker_on_ray_trains_the_same_as_two_without(world, two: Pool, tmp_path: Path):
    apart = recipe(world, "model.dropout=0.0")
    two.call(without_ray, apart, tmp_path / "two", prepare(apart).folder)
    together = on_ray(recipe(world, "model.dropout=0.0", "parallel.workers=1"), tmp_path / "one")
    assert [given for given, _ in together] == [given for given, _ in curve(tmp_path / "two", STEPS)]
    assert [loss for _, loss in together] == pytest.approx(
        [loss for _, loss in curve(tmp_path / "two", STEPS)], rel=1e-4
    )


def test_a_cluster_that_is_too_small_is_refused_with_the_numbers(world, tmp_path: Path):
    config = recipe(world, "parallel.workers=8", "parallel.cpus_per_worker=1")
    with pytest.raises(ConfigError, match=r"workers 8 x .*cpus_per_worker 1 and 1 CPU for the feed are 9 CPUs; the cl"):
        on_ray(config, tmp_path)


def test_a_loss_that_is_not_finite_ends_the_job_without_a_retry(world, tmp_path: Path):
    config = recipe(world, "train.optimizer.peak_lr=1.0e+37", "train.clip_norm=0", "train.schedule.warmup_steps=0")
    with pytest.raises(TrainingError, match=r"The loss of step \d+ is not finite: .*batch_hash \d+"):
        on_ray(config, tmp_path)
    assert {event["attempt"] for event in read_events(tmp_path / "events.jsonl", surviving=False)} == {1}
