"""A checkpoint of somebody else runs nothing: pickles that would are refused in a sentence, at every ZeRO stage."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from xalign_ray.errors import CheckpointError
from xalign_ray.train import checkpoint
from xalign_ray.train.checkpoint import Checkpoint, consolidate, newest
from xalign_ray.train.checkpoint_files import FORCED, only_data
from xalign_ray.train.engine import STATE
from xalign_ray.train.loop import train
from xalign_ray.work.artifacts import hash_file, read_manifest
from xalign_ray.work.job import Job

KINDS = {0: ["model"], 1: ["model", "optim"], 2: ["model", "optim"], 3: ["model", "optim"]}
CASES = [(stage, kind) for stage, kinds in KINDS.items() for kind in kinds]
REFUSED = r"_states\.pt is refused: it names posix\.system\. The files of a checkpoint are pickles.*say --trust\."
REFUSED_LATE = r"A file of the checkpoint is refused: it names posix\.system\. The.*say --trust\."


class Attack:
    """What a pickle runs when it is read."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._marker}",)


def start(workers: Any, folder: Path, stage: int, steps: int, trust: bool = False, looked_into: bool = True) -> None:
    """Trains to a step on synthetic rows, with checkpoints on the way."""
    more = {"parallel__zero_stage": stage, "checkpoint__save_steps": 2, "train__max_steps": steps}
    config = synthetic.config(parallel__workers=workers.size, **more)
    facts = {"recipe": "synthetic", "fingerprint": synthetic.FINGERPRINT}
    look, checkpoint.check_pickles = checkpoint.check_pickles, checkpoint.check_pickles if looked_into else list
    try:
        rows = synthetic.SyntheticRows()
        job = Job(folder, facts, trust=trust)
        train(job, config, rows, lambda *at: synthetic.stream(config, *at), workers)
    finally:
        checkpoint.check_pickles = look


def plant(run: Path, kind: str) -> Path:
    """Puts an attack beside the state in each file of a kind, with the hash that the manifest then needs."""
    (folder,) = (run / "checkpoints").glob("step_000002")
    manifest = read_manifest(folder)
    assert manifest
    files = sorted((folder / STATE).glob(f"*{kind}_states.pt"))
    assert files
    for file in files:
        state = torch.load(file, weights_only=False)
        torch.save(state | {"more": Attack(run / "attacked")}, file)
        manifest["files"][f"{STATE}/{file.name}"] = hash_file(file)
    synthetic.write_changed(folder, manifest)
    return folder


@pytest.mark.parametrize(("stage", "kind"), CASES)
def test_a_run_does_not_go_on_from_a_pickle_that_runs_code(one: Pool, tmp_path: Path, stage: int, kind: str) -> None:
    one.call(start, tmp_path, stage, 2)
    folder = plant(tmp_path, kind)
    with pytest.raises(CheckpointError, match=REFUSED):
        one.call(start, tmp_path, stage, 4)
    with pytest.raises(CheckpointError, match=REFUSED):
        newest(tmp_path, synthetic.FINGERPRINT)  # what export asks
    # Nor if nobody had looked into the files before they are read.
    with pytest.raises(CheckpointError, match=REFUSED_LATE):
        one.call(start, tmp_path, stage, 4, False, False)
    if stage > 0 or kind == "model":
        with pytest.raises(CheckpointError, match=REFUSED_LATE):
            consolidate(Checkpoint(folder, {"zero_stage": stage}))
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_the_converter_reads_no_pickle_that_runs_code(
    one: Pool,
    two: Pool,
    tmp_path: Path,
    stage: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    two.call(start, tmp_path, stage, 2)
    folder = plant(tmp_path, "optim")
    with pytest.raises(CheckpointError, match=REFUSED):
        one.call(start, tmp_path, stage, 4)
    with pytest.raises(CheckpointError, match=r"written by 2 workers and cannot be converted for 1: " + REFUSED_LATE):
        one.call(start, tmp_path, stage, 4, False, False)
    monkeypatch.setattr(sys, "argv", ["", str(folder / STATE), str(tmp_path / "out" / STATE)])
    assert checkpoint.main() == 1
    assert re.fullmatch(f"{REFUSED_LATE}\n", capsys.readouterr().err)
    assert not (tmp_path / "attacked").exists()


def test_trust_by_name_reads_it_all_the_same(one: Pool, tmp_path: Path) -> None:
    """So that the tests above would see an attack that works."""
    one.call(start, tmp_path, 0, 2)
    plant(tmp_path, "model")
    one.call(start, tmp_path, 0, 4, True)
    assert (tmp_path / "attacked").exists()
    (tmp_path / "attacked").unlink()
    found, _ = newest(tmp_path, synthetic.FINGERPRINT, 2, trust=True)
    assert found
    consolidate(found)
    assert (tmp_path / "attacked").exists()


def test_two_threads_read_one_after_the_other_and_nothing_stays_forced() -> None:
    """Pretrainings of a study that end at the same moment are exported in threads of one process."""
    inside, leave, order = threading.Event(), threading.Event(), list[str]()

    def read(name: str) -> None:
        with only_data(trusted=name == "trusting", allowed=()):
            inside.set()
            leave.wait()
            order.append(name)

    first, second = (threading.Thread(target=read, args=(name,), daemon=True) for name in ("first", "trusting"))
    first.start()
    inside.wait()
    inside.clear()
    second.start()
    assert not inside.wait(0.2)
    leave.set()
    first.join()
    second.join()
    assert order == ["first", "trusting"]
    assert FORCED not in os.environ


def test_weights_are_gathered_without_a_word_on_the_screen_of_the_process(
    one: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one.call(start, tmp_path, 2, 2)
    (folder,) = (tmp_path / "checkpoints").glob("step_000002")
    screen = sys.stdout
    reading = threading.Thread(target=lambda: consolidate(Checkpoint(folder, {"zero_stage": 2})))
    reading.start()
    seen = {id(screen)}
    while reading.is_alive():
        seen.add(id(sys.stdout))  # which other threads write to
    assert (seen, capsys.readouterr()) == ({id(screen)}, ("", ""))


def test_a_file_that_torch_did_not_write_is_refused(one: Pool, tmp_path: Path) -> None:
    one.call(start, tmp_path, 0, 2)
    folder = plant(tmp_path, "model")
    (folder / STATE / "mp_rank_00_model_states.pt").write_bytes(b"cposix\nsystem\n(S'true'\ntR.")
    manifest = read_manifest(folder)
    assert manifest
    manifest["files"] = {name: hash_file(folder / name) for name in manifest["files"]}
    synthetic.write_changed(folder, manifest)
    with pytest.raises(CheckpointError, match=r"mp_rank_00_model_states\.pt cannot be read: "):
        newest(tmp_path, synthetic.FINGERPRINT)
