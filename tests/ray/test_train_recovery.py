"""Real Ray, real data, real deaths: a killed run ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.parity.train.pool import Pool
from xalign_ray.config.derive import run_fingerprint
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.local import open_local
from xalign_ray.data.prepare import prepare
from xalign_ray.data.prepared import Prepared
from xalign_ray.demo.writer import write_demo
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.track.events import read_events
from xalign_ray.train.driver import connect, run_on_ray
from xalign_ray.train.loop import train

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


def facts(config: RunConfig, prepared: Prepared) -> dict[str, Any]:
    return {"recipe": "tiny/align-mlm", "fingerprint": run_fingerprint(config, prepared.fingerprint)}


def on_ray(config: RunConfig, folder: Path) -> list[tuple[int, float]]:
    prepared = prepare(config)
    run_on_ray(config, folder, prepared.folder, facts(config, prepared))
    return curve(folder)


def without_ray(workers, config: RunConfig, folder: Path, prepared_folder: Path) -> None:
    prepared = Prepared.open(prepared_folder)
    given = facts(config, prepared)
    train(config, folder, prepared, lambda at, rank, _: open_local(prepared, config, at, rank), workers, given)


def curve(folder: Path) -> list[tuple[int, float]]:
    """(batch_hash, loss) of each step along the surviving lineage."""
    steps = [event for event in read_events(folder / "events.jsonl") if event["event"] == "step"]
    assert [event["step"] for event in steps] == list(range(1, STEPS + 1))
    return [(event["batch_hash"], event["metrics"]["train/loss"]) for event in steps]


def worker_pids() -> list[int]:
    """Train workers below this process, in order of age."""
    shown = subprocess.run(
        ["ps", "-eo", "pid,ppid,args", "--sort=start_time"], capture_output=True, text=True, check=True
    )
    rows = [line.split(maxsplit=2) for line in shown.stdout.splitlines()[1:]]
    parents = {int(pid): int(parent) for pid, parent, *_ in rows}

    def ours(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == os.getpid():
                return True
        return False

    return [int(pid) for pid, _, command in rows if "RayTrainWorker" in command and ours(int(pid))]


def kill_after(log: Path, deaths: list[tuple[int, int]]) -> threading.Thread:
    """A thread that kills one of the two workers as soon as the log shows a step, for each (step, which worker)."""

    def watch() -> None:
        for attempt, (step, which) in enumerate(deaths, start=1):
            while not any(
                event["event"] == "step" and event["attempt"] == attempt and event["step"] >= step
                for event in (read_events(log, surviving=False) if log.is_file() else [])
            ):
                time.sleep(0.02)
            os.kill(worker_pids()[which], signal.SIGKILL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


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
    assert killed == curve(tmp_path / "calm"), deaths


def test_one_worker_on_ray_trains_the_same_as_two_without(world, two: Pool, tmp_path: Path):
    apart = recipe(world, "model.dropout=0.0")
    two.call(without_ray, apart, tmp_path / "two", prepare(apart).folder)
    together = on_ray(recipe(world, "model.dropout=0.0", "parallel.workers=1"), tmp_path / "one")
    assert [given for given, _ in together] == [given for given, _ in curve(tmp_path / "two")]
    assert [loss for _, loss in together] == pytest.approx([loss for _, loss in curve(tmp_path / "two")], rel=1e-4)


def test_a_cluster_that_is_too_small_is_refused_with_the_numbers(world, tmp_path: Path):
    config = recipe(world, "parallel.workers=8", "parallel.cpus_per_worker=1")
    with pytest.raises(ConfigError, match=r"workers 8 x .*cpus_per_worker 1 and 1 CPU for the feed are 9 CPUs; the cl"):
        on_ray(config, tmp_path)


def test_a_loss_that_is_not_finite_ends_the_job_without_a_retry(world, tmp_path: Path):
    config = recipe(world, "train.optimizer.peak_lr=1.0e+37", "train.clip_norm=0", "train.schedule.warmup_steps=0")
    with pytest.raises(TrainingError, match=r"The loss of step \d+ is not finite: .*batch_hash \d+"):
        on_ray(config, tmp_path)
    assert {event["attempt"] for event in read_events(tmp_path / "events.jsonl", surviving=False)} == {1}
