"""A process and torchrun's processes, stopped or killed in the middle, go on, and take the steps of one another."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
import torch
import yaml

from tests.ray.runs import PATIENCE_S, check_batches, reached, starts
from tests.ray.small import batches, write_world
from tests.unit.conftest import prepare_here
from xalign_ray import cli, pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError, LockError
from xalign_ray.feed.batches import open_local
from xalign_ray.studies.study import run_study
from xalign_ray.track.events import EVENT_LOG, read_events

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
STEPS, STOPPED_AT = 80, 12


@dataclass(frozen=True)
class World:
    """A recipe whose shards are there, the hash of what each step of it must see, and where one process trains it."""

    settings: list[str]
    hashes: list[int]
    alone: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("stops")
    settings = write_world(folder, sentences=300, parallel=50)
    settings += batches(8, 4, STEPS, saved_every=STEPS, held_out_every=STEPS // 2)
    config = load_recipe("tiny/align-mlm", [*settings, "parallel.workers=1"]).config
    rows = open_local(prepare_here(config), config, 0, 0)
    return World(settings, [int(next(rows)["row_hash"].sum(dtype=np.uint64)) for _ in range(STEPS)], folder / "alone")


def pretrain(world: World, out: Path) -> list[str]:
    chosen = [word for setting in world.settings for word in ("--set", setting)]
    return ["pretrain", "tiny/align-mlm", "--no-ray", *chosen, "--out", str(out)]


def start(world: World, out: Path, launcher: Sequence[str] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, *launcher, "-m", "xalign_ray", *pretrain(world, out)]
    pipe = subprocess.PIPE
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def run_here(world: World, out: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The command in this process, which has imported all that it needs; its exit code."""
    monkeypatch.setattr(sys, "argv", ["xalign", *pretrain(world, out)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code


def wait_for(run: subprocess.Popen[str], out: Path, step: int, attempt: int) -> None:
    until = time.monotonic() + PATIENCE_S
    done = reached(out, step, attempt)
    while not done():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)


def end(run: subprocess.Popen[str]) -> list[str]:
    """What it said, less the lines of progress."""
    _, said = run.communicate(timeout=PATIENCE_S)
    return [line for line in said.splitlines() if line.startswith("xalign: ") or "Traceback" in line]


def stop(run: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Exit code of a run that is asked to stop and what it said; sees that nothing of it is left."""
    below = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(signal.SIGTERM)
    said = end(run)
    assert psutil.wait_procs(below, timeout=10)[1] == []
    return run.returncode, said


def test_a_process_stopped_and_killed_goes_on_and_nobody_else_may_write_its_run(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = world.alone
    first = start(world, out)
    wait_for(first, out, 1, attempt=1)
    first.send_signal(signal.SIGSTOP)  # or it might be done before this process has asked
    code = run_here(world, out, monkeypatch)
    _, refused = capsys.readouterr().err.splitlines()
    assert refused.startswith(f"xalign: {out} is being written by pretrain on {os.uname().nodename} (process ")
    assert f"(process {first.pid}) since " in refused
    assert refused.endswith("Wait for its end, or stop it.")
    assert code == 1
    first.send_signal(signal.SIGCONT)
    code, said = stop(first)
    saved = saved_step(out)
    assert (code, said) == (
        143,
        [f"xalign: Stopped (SIGTERM): step {saved} of {STEPS} is saved. Rerun the same command to resume."],
    )
    killed = start(world, out)
    wait_for(killed, out, saved + 1, attempt=2)
    killed.kill()
    killed.communicate()
    assert run_here(world, out, monkeypatch) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("xalign: ")] == []
    assert starts(out) == [0, saved, saved]
    check_batches(out, world.hashes)
    assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == []
    assert pretraining.pretrain(load_recipe("tiny/align-mlm", world.settings), out) == out
    assert not ray.is_initialized()


def saved_step(out: Path) -> int:
    """The step that the only checkpoint is of."""
    (folder,) = (out / "checkpoints").glob("*")
    return int(folder.name.removeprefix("step_"))


def losses(run: Path) -> dict[str, list[float]]:
    """The losses of the steps and of the held-out scorings that survive."""
    found: dict[str, list[float]] = {"train/loss": [], "held_out/loss": []}
    for event in read_events(run / EVENT_LOG):
        for name in found.keys() & event.get("metrics", {}).keys():
            found[name].append(event["metrics"][name])
    return found


def test_a_stopped_torchrun_goes_on_and_takes_the_steps_of_one_process(world: World, tmp_path: Path) -> None:
    found = pretraining.find_run(load_recipe("tiny/align-mlm", world.settings))
    assert found
    out = found
    first = start(world, out, TORCHRUN)
    wait_for(first, out, STOPPED_AT, attempt=1)
    _, said = stop(first)
    saved = saved_step(out)
    sentences = [line for line in said if "Traceback" not in line]  # which torchrun prints for itself
    assert sentences == [
        f"xalign: Stopped (SIGTERM): step {saved} of {STEPS} is saved. Rerun the same command to resume."
    ]
    assert saved >= STOPPED_AT
    again = start(world, out, TORCHRUN)
    assert (end(again), again.returncode) == ([], 0)
    assert starts(out) == [0, saved]
    check_batches(out, world.hashes)
    pretraining.pretrain(
        load_recipe("tiny/align-mlm", world.settings), world.alone, local=True
    )  # done by the test above
    one, two = losses(world.alone), losses(out)
    assert [len(values) for values in one.values()] == [STEPS, 2]
    for name, values in one.items():
        assert all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(values, two[name], strict=True)), name
    assert (out / "export" / "model.safetensors").is_file()
    study = tmp_path / "one.yaml"
    encoder = {"recipe": "tiny/align-mlm", "settings": world.settings}
    study.write_text(yaml.safe_dump({"encoders": [encoder], "mlflow": "off"}))
    assert run_study(str(study), out.parent).is_file()  # as the quickstart given again
    assert not ray.is_initialized()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_gpus_that_are_not_there_are_missed_before_anything_is_made(tmp_path: Path) -> None:
    settings = [*write_world(tmp_path, sentences=300, parallel=50), "parallel.workers=2", "parallel.gpus_per_worker=1"]
    with pytest.raises(ConfigError) as refused:
        pretraining.pretrain(load_recipe("tiny/mlm", settings))
    assert str(refused.value) == (
        "parallel.workers 2 x parallel.gpus_per_worker 1 are 2 GPUs; this machine has 0. Set "
        "parallel.gpus_per_worker=0 to train on the CPU, or join a cluster that has them (RAY_ADDRESS)."
    )
    assert not ray.is_initialized()
    assert list((tmp_path / "runs").rglob("*.parquet")) == []


def test_an_output_that_cannot_be_written_is_missed_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = write_world(tmp_path, sentences=300, parallel=50)
    with pytest.raises(LockError, match=r"file cannot be written: it is not a folder. Name another output"):
        pretraining.pretrain(load_recipe("tiny/mlm", settings), tmp_path / "file")
    assert not ray.is_initialized()
    assert list((tmp_path / "runs").rglob("*.parquet")) == []
