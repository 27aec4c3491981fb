"""Resume against cold start: seconds from the command to the first finished step, at several places of a long run."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import ray
from records import record

from xalign_ray import pretraining
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.track.events import EVENT_LOG, EventReader
from xalign_ray.work.artifacts import read_manifest, write_manifest
from xalign_ray.work.run_folder import CHECKPOINTS

RECIPE, ROUNDS, TARGET = "tiny/align-mlm", 3, 1.2
STEPS = 100_000  # of the run that is begun and resumed; a checkpoint of its first step is taken for one of later steps
PLACES = (0.02, 0.5, 0.98)  # of the first epoch; and the end of the run, which is many epochs away
PATIENCE_S = 300
SETTINGS = [
    f"train.max_steps={STEPS}", "train.eval_steps=0", "train.global_batch_size=48", "train.per_device_batch_size=24",
    'track.mlflow="off"',
]  # fmt: skip


def measure(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """The ratio at the worst place, and what it is made of; runs on Ray, each a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe(RECIPE, [*SETTINGS, f"output={folder}"])
        epoch = _epoch_steps(recipe)
        saved = _first_checkpoint(Path(folder))
        places = {"cold": 0, **{f"{place:.0%} of an epoch": int(place * epoch) for place in PLACES}}
        places[f"step {STEPS - 100:,}"] = STEPS - 100
        seconds: dict[str, list[float]] = {name: [] for name in places}
        for number in range(rounds):
            for name, step in places.items():
                seconds[name].append(_time_first_step(Path(folder), saved, step, f"{step}-{number}"))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    return _records(medians, epoch, rounds)


def _epoch_steps(recipe: Recipe) -> int:
    """Steps in which as many rows are seen as there are."""
    pools = pretraining.prepare(recipe).manifest["pools"].values()
    ray.shutdown()
    return sum(pool["rows"] for pool in pools) // recipe.config.train.global_batch_size


def _first_checkpoint(folder: Path) -> Path:
    """A checkpoint as the run itself writes it."""
    run = folder / "begun"
    with _Command(folder, run, ["checkpoint.save_steps=1"]) as command:
        command.wait_for("checkpoint")
    return next(path.parent for path in sorted((run / CHECKPOINTS).glob("step_*/manifest.json")))


def _time_first_step(folder: Path, saved: Path, step: int, name: str) -> float:
    """Seconds from the command to the end of the first step after `step`; at 0 there is nothing to resume."""
    run = folder / name
    if step:
        resumed = run / CHECKPOINTS / f"step_{step:06d}"
        shutil.copytree(saved, resumed)
        manifest = read_manifest(resumed)
        assert manifest is not None
        write_manifest(resumed, manifest | {"step": step})
    with _Command(folder, run, ["checkpoint.save_steps=1000000"]) as command:
        finished = command.wait_for("step")
    assert finished["step"] == step + 1
    shutil.rmtree(run)
    return finished["time"] - command.began


class _Command:
    """`xalign pretrain` as a user gives it; inside the block it runs, at its end all its processes are gone."""

    def __init__(self, folder: Path, run: Path, settings: list[str]) -> None:
        self._reader = EventReader(run / EVENT_LOG)
        chosen = [word for setting in [*SETTINGS, f"output={folder}", *settings] for word in ("--set", setting)]
        self._words = [sys.executable, "-m", "xalign_ray", "pretrain", RECIPE, *chosen, "--out", str(run)]

    def __enter__(self) -> _Command:
        environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
        self.began = time.time()
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            self._words, stdout=quiet, stderr=quiet, env=environment | {"OMP_NUM_THREADS": "1"}, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        process = psutil.Process(self._process.pid)
        for one in [*process.children(recursive=True), process]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()

    def wait_for(self, kind: str) -> dict[str, Any]:
        """The first event of a kind."""
        while time.time() < self.began + PATIENCE_S:
            for event in self._reader.read():
                if event["event"] == kind:
                    return event
            assert self._process.poll() is None, f"{' '.join(self._words)} ended"
            time.sleep(0.02)
        raise AssertionError(f"no {kind} within {PATIENCE_S} s: {' '.join(self._words)}")


def _records(medians: dict[str, float], epoch: int, rounds: int) -> list[dict[str, Any]]:
    cold = medians["cold"]
    ratios = {name: seconds / cold for name, seconds in medians.items() if name != "cold"}
    worst = max(ratios, key=lambda name: ratios[name])
    how = (
        f"from the command to the first finished step on Ray, two workers, median of {rounds}; cold {cold:.1f} s, "
        f"an epoch is {epoch:,} steps; the worst place is {worst}"
    )
    said = ", ".join(f"{name} {medians[name]:.1f} s" for name in ratios)
    return [
        record("data/resume_ratio", ratios[worst], TARGET, how, "lower"),
        record("data/cold_start_s", cold, None, f"resumed: {said}", "lower"),
    ]


if __name__ == "__main__":
    sys.stdout.write("".join(f"{one}\n" for one in measure()))
