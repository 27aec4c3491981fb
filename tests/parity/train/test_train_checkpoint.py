"""A checkpoint is whole or does not exist, belongs to one recipe, and a failed write leaves the older one as it was."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import pytest
import torch

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from xalign_ray.errors import CheckpointError
from xalign_ray.track.events import read_events
from xalign_ray.train.checkpoint import Checkpoints, newest, put_in_place
from xalign_ray.train.checkpoint_files import write_parts
from xalign_ray.train.distributed import Workers
from xalign_ray.work.artifacts import write_manifest

SETTINGS = {"checkpoint__save_steps": 2, "checkpoint__save_total_limit": 2}


def train(workers, folder, settings, fingerprint=synthetic.FINGERPRINT):
    config = synthetic.config(parallel__workers=workers.size, **{**SETTINGS, **settings})
    synthetic.run(config, folder, workers, fingerprint)


def train_until(workers, step, folder):
    synthetic.run_until(step, synthetic.config(parallel__workers=workers.size, **SETTINGS), folder, workers)


def starts(folder: Path) -> list[int]:
    return [e["step"] for e in read_events(folder / "events.jsonl", surviving=False) if e["event"] == "start"]


def whole(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in (folder / "checkpoints").glob("*/manifest.json"))


def test_the_last_two_checkpoints_are_kept_and_the_newest_is_found(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {})
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step_000004", "step_000006"]
    found, notes = newest(tmp_path, synthetic.FINGERPRINT)
    assert found is not None
    assert (found.step, found.zero_stage, notes) == (6, 2, [])
    assert found.manifest["workers"] == 1
    assert found.manifest["tokens"] > 0
    assert set(found.manifest["files"]) == {
        "state/mp_rank_00_model_states.pt",
        "state/zero_pp_rank_0_mp_rank_00_optim_states.pt",
    }


def test_a_folder_without_manifest_is_not_a_checkpoint(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {"train__max_steps": 4})
    (tmp_path / "checkpoints" / "step_000004" / "manifest.json").unlink()
    (tmp_path / "checkpoints" / ".step_000006.writing" / "state").mkdir(parents=True)
    one.call(train, tmp_path, {"train__max_steps": 4})
    assert starts(tmp_path) == [0, 2]
    assert whole(tmp_path) == ["step_000002", "step_000004"]


def test_a_torn_checkpoint_is_passed_over_with_a_note(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {"train__max_steps": 4})
    torn = tmp_path / "checkpoints" / "step_000004" / "state" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    torn.write_bytes(torn.read_bytes()[:-100])
    one.call(train, tmp_path, {"train__max_steps": 4})
    assert starts(tmp_path) == [0, 2]
    (_, again) = [e for e in read_events(tmp_path / "events.jsonl", surviving=False) if e["event"] == "start"]
    (note,) = again["notes"]
    assert note.startswith(f"{torn} is damaged: its SHA-256 is ")
    assert note.endswith("Training goes on from the checkpoint before it, of step 2.")
    assert newest(tmp_path, synthetic.FINGERPRINT)[1] == []


def test_a_manifest_that_is_not_json_is_passed_over_with_a_note(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {"train__max_steps": 4})
    manifest = tmp_path / "checkpoints" / "step_000004" / "manifest.json"
    manifest.write_text('{"step": 4, "fing')
    found, notes = newest(tmp_path, synthetic.FINGERPRINT)
    assert found is not None
    assert found.step == 2
    (note,) = notes
    assert note.startswith(f"{manifest} is damaged: it is not JSON ")
    (manifest.parents[1] / "step_000002" / "manifest.json").write_text("")
    found, notes = newest(tmp_path, synthetic.FINGERPRINT)
    assert found is None
    assert len(notes) == 2
    assert notes[0].startswith(f"{manifest} is damaged: it is not JSON ")


def test_a_log_that_was_removed_is_said_when_training_goes_on_and_begun_anew(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {"train__max_steps": 4})
    log = tmp_path / "events.jsonl"
    log.unlink()
    one.call(train, tmp_path, {"train__max_steps": 4})
    (start, *_) = read_events(log, surviving=False)
    assert (start["event"], start["step"], start["attempt"]) == ("start", 4, 1)
    assert start["notes"] == [
        "events.jsonl ends at step 0, the checkpoint is of step 4: the log was removed or cut, and the numbers between "
        "are lost. Later ones are added to it."
    ]


def test_a_log_that_is_whole_is_not_said_to_be_cut(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {"train__max_steps": 4})
    one.call(train, tmp_path, {"train__max_steps": 4})
    starts = [event for event in read_events(tmp_path / "events.jsonl", surviving=False) if event["event"] == "start"]
    assert [start["notes"] for start in starts] == [[], []]


def test_a_checkpoint_of_another_recipe_is_refused(two: Pool, tmp_path: Path):
    two.call(train, tmp_path, {"train__max_steps": 2})
    with pytest.raises(CheckpointError) as refused:
        two.call(train, tmp_path, {"train__max_steps": 2}, "0123456789")
    assert str(refused.value) == (
        f"{tmp_path}/checkpoints/step_000002 was written by another recipe: its fingerprint is ffffffff, this run's is "
        f"01234567. Give another --out, or remove {tmp_path} to start over."
    )


def test_a_checkpoint_of_another_zero_stage_is_refused(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {"train__max_steps": 2})
    with pytest.raises(
        CheckpointError, match=r"zero_stage 2, this run has 3. Continue with --set parallel.zero_stage=2"
    ):
        one.call(train, tmp_path, {"parallel__zero_stage": 3})


def stop_after(workers, folder, settings, step):
    config = synthetic.config(parallel__workers=workers.size, **{**SETTINGS, **settings})
    try:
        synthetic.run_until(step, config, folder, workers)
    except synthetic.Interrupted:
        return
    raise AssertionError


def train_on_a_full_disk(workers, folder, settings, full_rank):
    """One rank's files can grow no further than 4 KB: the write itself fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if workers.rank == full_rank:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        train(workers, folder, settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_without_disk_space_all_ranks_stop_and_the_older_checkpoint_stays(two: Pool, tmp_path: Path, stage: int):
    settings = {"parallel__zero_stage": stage}
    two.call(train, tmp_path / "calm", settings)
    two.call(stop_after, tmp_path / "full", settings, 2)
    full_rank = 0 if stage == 0 else 1
    with pytest.raises(CheckpointError) as failed:
        two.call(train_on_a_full_disk, tmp_path / "full", settings, full_rank)
    said = str(failed.value)
    folder = tmp_path / "full" / "checkpoints"
    assert said.startswith(f"The checkpoint of step 4 cannot be written to {folder}: ")
    assert "File too large" in said
    assert said.endswith(
        f"{folder}/step_000002 is whole and stays; make room and rerun the same command: the run resumes from "
        "its newest checkpoint."
    )
    assert [path.name for path in folder.iterdir()] == ["step_000002"]
    two.call(train, tmp_path / "full", settings)
    assert synthetic.losses(tmp_path / "full") == synthetic.losses(tmp_path / "calm")


def test_a_damaged_checkpoint_of_the_same_step_is_replaced(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {"train__max_steps": 4})
    shutil.rmtree(tmp_path / "checkpoints" / "step_000004" / "state")
    one.call(train, tmp_path, {"train__max_steps": 4})
    assert whole(tmp_path) == ["step_000002", "step_000004"]
    assert newest(tmp_path, synthetic.FINGERPRINT)[1] == []


def test_after_a_damaged_checkpoint_the_new_ones_are_kept(one: Pool, tmp_path: Path):
    one.call(train, tmp_path, {"train__max_steps": 6})
    for step in (4, 6):
        shutil.rmtree(tmp_path / "checkpoints" / f"step_{step:06d}" / "state")
    # Goes on from the beginning, for the damaged ones were all that was kept, and saves at step 2.
    with pytest.raises(synthetic.Interrupted):
        one.call(train_until, 5, tmp_path)
    assert whole(tmp_path) == ["step_000002", "step_000004"]


def test_a_checkpoint_has_its_manifest_before_its_name_and_every_byte_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    writing = tmp_path / "checkpoints" / "unfinished"
    writing.mkdir(parents=True)
    synced: list[int] = []
    named: list[list[str]] = []
    rename = Path.rename

    def watch(self: Path, to: Path) -> Path:
        named.append(sorted(file.name for file in self.iterdir() if file.stat().st_ino in synced))
        return rename(self, to)

    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_ino))
    monkeypatch.setattr(Path, "rename", watch)
    folder = tmp_path / "checkpoints" / "step_000002"
    write_parts([(writing / "weights", torch.ones(3))])
    put_in_place(writing, folder, {"step": 2, "fingerprint": "f"})
    assert named == [["manifest.json", "weights"]]
    assert sorted(file.name for file in folder.iterdir()) == ["manifest.json", "weights"]


def test_a_checkpoint_that_goes_loses_its_manifest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for step in (2, 4):
        write_manifest(tmp_path / "checkpoints" / f"step_00000{step}", {"step": step, "fingerprint": "f", "files": {}})

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", die)
    config = synthetic.config(checkpoint__save_total_limit=1)
    with pytest.raises(KeyboardInterrupt):
        Checkpoints(tmp_path, "f", config, Workers(0, 1, 0, torch.device("cpu")), trust=False)._prune(4)
    assert whole(tmp_path) == ["step_000004"]
