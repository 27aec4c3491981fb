"""A checkpoint that is written while training goes on is the one that standing still would have written, or none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_checkpoint import starts, train, train_on_a_full_disk, whole
from xalign_ray.errors import CheckpointError, TrainingError
from xalign_ray.track.events import read_events
from xalign_ray.train import checkpoint, loop
from xalign_ray.train.checkpoint import newest
from xalign_ray.train.checkpoint_files import copy_to_host, write_parts
from xalign_ray.train.loop import build_model
from xalign_ray.work.artifacts import read_manifest

STEPS = {"train__max_steps": 4, "checkpoint__save_steps": 1, "checkpoint__save_total_limit": 1}


def saved(folder: Path) -> list[int]:
    """The steps of checkpoints that were reported, in order."""
    events = read_events(folder / "events.jsonl", surviving=False)
    return [event["step"] for event in events if event["event"] == "checkpoint"]


def train_with_a_slow_disk(workers, folder: Path, settings: dict[str, object], seconds: float) -> list[float]:
    """Each write takes so long; the times at which this rank's writes began and ended, one after the other."""
    moments: list[float] = []

    def write_slowly(parts: list[tuple[Path, object]]) -> dict[Path, str]:
        moments.append(time.monotonic())
        time.sleep(seconds)
        files = write_parts(parts)
        moments.append(time.monotonic())
        return files

    checkpoint.write_parts = write_slowly
    try:
        train(workers, folder, settings)
    finally:
        checkpoint.write_parts = write_parts
    return moments


@pytest.mark.parametrize(("stage", "bf16"), [(0, False), (1, False), (2, True), (3, False)])
def test_it_holds_the_bits_that_standing_still_would_have_written(two: Pool, tmp_path: Path, stage: int, bf16: bool):
    # The disk is so slow that the steps that follow are taken, and the weights changed, before anything is written.
    settings = {"parallel__zero_stage": stage, "train__bf16": bf16, "train__max_steps": 6}
    two.call(train, tmp_path / "still", {**settings, "checkpoint__async_save": False})
    two.call(train_with_a_slow_disk, tmp_path / "async", settings, 0.3)
    assert whole(tmp_path / "async") == whole(tmp_path / "still") == ["step_000004", "step_000006"]
    for name in whole(tmp_path / "still"):
        still, behind = (tmp_path / way / "checkpoints" / name for way in ("still", "async"))
        files = read_manifest(behind)["files"]
        assert files.keys() == read_manifest(still)["files"].keys()
        for file in files:
            expected, given = (torch.load(folder / file, weights_only=False) for folder in (still, behind))
            assert_equal(expected, given)


def assert_equal(expected: object, given: object) -> None:
    """The same values all the way down, tensors to the last bit."""
    assert type(expected) is type(given)
    if isinstance(expected, torch.Tensor):
        assert torch.equal(expected, given)
    elif isinstance(expected, dict):
        assert list(expected) == list(given)
        for key in expected:
            assert_equal(expected[key], given[key])
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(given)
        for one, other in zip(expected, given, strict=True):
            assert_equal(one, other)
    elif hasattr(expected, "__dict__"):
        assert_equal(vars(expected), vars(given))
    else:
        assert expected == given


def train_while_the_disk_waits(workers, folder: Path) -> list[float]:
    """The first checkpoint, of step 3, is not written before the rows of step 6 are asked for; times as above."""
    asked, moments = threading.Event(), []
    config = synthetic.config(parallel__workers=workers.size, checkpoint__save_steps=3, train__max_steps=9)

    def write_when_asked(parts: list[tuple[Path, object]]) -> dict[Path, str]:
        moments.append(time.monotonic())
        assert asked.wait(60)
        files = write_parts(parts)
        moments.append(time.monotonic())
        return files

    def open_batches(*at: int):
        for number, batch in enumerate(synthetic.stream(config, *at), 1):
            if number == 6:
                asked.set()
            yield batch

    checkpoint.write_parts = write_when_asked
    try:
        synthetic.run(config, folder, workers, open_batches=open_batches)
    finally:
        checkpoint.write_parts = write_parts
    return moments


def test_steps_are_taken_meanwhile_and_one_is_on_its_way_at_most(two: Pool, tmp_path: Path):
    moments = two.call(train_while_the_disk_waits, tmp_path)
    for of_rank in moments:
        assert len(of_rank) == 6
        assert of_rank == sorted(of_rank)  # a write begins when the one before has ended
    events = [event for event in read_events(tmp_path / "events.jsonl") if event["event"] in ("step", "checkpoint")]
    order = [(event["event"][0], event["step"]) for event in events]
    # The disk waits for the rows of step 6: the checkpoint of step 3 is named when that step is over.
    assert order.index(("c", 3)) == order.index(("s", 6)) + 1
    assert saved(tmp_path) == [3, 6, 9]
    costs = [event["metrics"] for event in events if event["event"] == "checkpoint"]
    assert costs[0]["checkpoint/save_s"] < costs[0]["checkpoint/write_s"]


@pytest.mark.parametrize("full_rank", [0, 1])
def test_a_write_that_fails_is_said_by_all_ranks_while_training_goes_on(two: Pool, tmp_path: Path, full_rank: int):
    with pytest.raises(CheckpointError, match=r"^The checkpoint of step 1 cannot be written to .*File too large"):
        two.call(train_on_a_full_disk, tmp_path, {**STEPS, "train__max_steps": 50}, full_rank)
    assert 1 <= len(synthetic.steps(tmp_path)) < 10  # it does not take the next checkpoint, or the end, to see it
    assert list((tmp_path / "checkpoints").iterdir()) == []
    two.call(train, tmp_path, STEPS)
    assert starts(tmp_path) == [0, 0]


def train_to_no_loss(workers, folder: Path, settings: dict[str, object]) -> None:
    """Weights become NaN before the fourth step, while the third step's checkpoint is on its way."""
    config = synthetic.config(parallel__workers=workers.size, **settings)
    built: list[torch.nn.Module] = []

    def build(*given: object) -> torch.nn.Module:
        built.append(build_model(*given))
        return built[0]

    def open_batches(*at: int):
        for number, batch in enumerate(synthetic.stream(config, *at), 1):
            if number == 4:
                for parameter in built[0].parameters():
                    parameter.data.fill_(float("nan"))
            yield batch

    loop.build_model = build
    try:
        synthetic.run(config, folder, workers, open_batches=open_batches)
    finally:
        loop.build_model = build_model


def test_a_run_that_ends_early_still_names_what_is_on_its_way(two: Pool, tmp_path: Path):
    with pytest.raises(TrainingError, match="not finite"):
        two.call(train_to_no_loss, tmp_path, {"checkpoint__save_steps": 3, "train__max_steps": 9})
    assert saved(tmp_path) == [3]
    assert whole(tmp_path) == ["step_000003"]


# Copies $2 to $3 while process $1 stands still, as if it had been killed.
COPY = 'kill -STOP $1; until grep -q "^State:.T" /proc/$1/status; do :; done; cp -r "$2" "$3"; kill -CONT $1'


def train_and_copy(workers, folder: Path, settings: dict[str, object], every: int) -> None:
    """Trains; at the first of each so many touches of files under `checkpoints` the folder is copied beside it, under
    the touch's number, as a kill at that moment would leave it."""
    count, us = 0, os.getpid()
    kinds = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir", "shutil.rmtree"}

    def copy(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event in kinds and "/checkpoints" in str(arguments[0]) and os.getpid() == us:
            count += 1
            if count % every == 1:
                subprocess.run(["sh", "-c", COPY, "sh", str(us), folder, folder.parent / str(count)], check=True)

    sys.addaudithook(copy)
    train(workers, folder, settings)


def test_killed_at_any_moment_the_old_checkpoint_is_whole_or_the_new_one(one: Pool, tmp_path: Path):
    calm, after = tmp_path / "calm", []
    alone = Pool(1)  # which keeps the hook
    alone.call(train_and_copy, calm, STEPS, 4)
    alone.close()
    copies = sorted((path for path in tmp_path.iterdir() if path != calm), key=lambda path: int(path.name))
    assert len(copies) > 10
    for folder in copies:
        reported = saved(folder) if (folder / "events.jsonl").exists() else []
        found, notes = newest(folder, synthetic.FINGERPRINT)
        assert notes == []
        assert (found.step if found else 0) >= max(reported, default=0)
        after.append(found.step if found else 0)
        one.call(train, folder, STEPS)
        assert synthetic.losses(folder) == synthetic.losses(calm)
        if after[-1] < 4:  # the next save removes what a killed removal left
            assert [path.name for path in (folder / "checkpoints").glob("step_*")] == ["step_000004"]
    assert after == sorted(after)
    assert set(after) == {0, 1, 2, 3, 4}


def test_the_copy_is_the_hosts_own_and_shares_what_was_shared():
    given = torch.arange(6.0).reshape(2, 3)
    state = {"tied": given, "to": given, "row": given[1], "size": given.shape, "step": 3, "in": [{"a": (given, None)}]}
    copied = copy_to_host(state)
    given.zero_()
    assert copied["tied"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert copied["tied"] is copied["to"] is copied["in"][0]["a"][0]
    assert copied["row"].tolist() == [3, 4, 5]
    assert copied["row"].untyped_storage().nbytes() == 12  # not all of what it was a part of
    assert type(copied["size"]) is torch.Size
    assert (copied["step"], copied["in"][0]["a"][1]) == (3, None)
