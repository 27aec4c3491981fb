"""The event log: what is written is read again, whatever killed the writer."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xalign_ray.errors import DataError, TrainingError
from xalign_ray.track.events import EventLog, EventReader, last_attempt, newest_data, read_events, run_identity


def write_attempt(path: Path, attempt: int, resumed: int, last: int, loss: float = 1.0) -> None:
    with EventLog(path, attempt) as log:
        log.write("start", resumed, fingerprint="f00", steps=10)
        for step in range(resumed + 1, last + 1):
            log.write("step", step, {"train/loss": loss}, batch_hash=step)


def steps(events: list[dict]) -> list[tuple[int, int]]:
    return [(event["attempt"], event["step"]) for event in events if event["event"] == "step"]


def test_an_event_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "events.jsonl"
    with EventLog(path, 1) as log:
        log.write("step", 17, {"train/loss": 6.5, "train/labels": 40}, batch_hash=2**64 - 1)
    (event,) = read_events(path)
    assert event.pop("time") > 0
    assert event == {
        "event": "step",
        "attempt": 1,
        "step": 17,
        "batch_hash": 2**64 - 1,
        "metrics": {"train/loss": 6.5, "train/labels": 40},
    }


def test_the_data_of_a_run_are_those_of_its_newest_start(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for attempt, data in enumerate(["/old/data/f00", "/new/data/f00"], 1):
        with EventLog(path, attempt) as log:
            log.write("start", 2 * (attempt - 1), data=data)
            log.write("step", 2, {"train/loss": 1.0})
    assert newest_data(path) == "/new/data/f00"


def test_an_event_is_on_disk_before_the_log_is_closed(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl", 1)
    log.write("start", 0)
    assert len(read_events(log.path)) == 1
    log.close()


def test_a_metric_outside_the_closed_list_is_our_mistake(tmp_path: Path) -> None:
    with (
        EventLog(tmp_path / "events.jsonl", 1) as log,
        pytest.raises(AssertionError, match=r"metrics \['train/los'\] are not in track/events.py"),
    ):
        log.write("step", 1, {"train/los": 1.0})
    assert read_events(tmp_path / "events.jsonl") == []


def test_an_event_outside_the_closed_list_is_our_mistake(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl", 1) as log, pytest.raises(AssertionError, match="event stop is not in"):
        log.write("stop", 1)


def test_a_number_that_is_not_finite_is_null_so_that_every_line_is_json(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path, 1) as log:
        log.write("step", 1, {"train/loss": float("nan"), "train/gradient_norm": float("inf")})
    metrics = json.loads(path.read_text(), parse_constant=pytest.fail)["metrics"]
    assert metrics == {"train/loss": None, "train/gradient_norm": None}


def test_a_resume_supersedes_the_steps_after_it(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write_attempt(path, 1, resumed=0, last=7)
    write_attempt(path, 2, resumed=5, last=9)
    write_attempt(path, 3, resumed=8, last=10)
    expected = [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (2, 6), (2, 7), (2, 8), (3, 9), (3, 10)]
    assert steps(read_events(path)) == expected
    assert len(read_events(path, surviving=False)) == 7 + 4 + 2 + 3
    assert [event["attempt"] for event in read_events(path) if event["event"] == "start"] == [1, 2, 3]


def test_a_restart_without_a_checkpoint_supersedes_everything(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path, 1) as log:
        log.write("start", 0)
        log.write("held_out", 0, {"held_out/loss": 9.0})
        log.write("step", 1, {"train/loss": 9.0})
    write_attempt(path, 2, resumed=0, last=2)
    assert steps(read_events(path)) == [(2, 1), (2, 2)]
    assert not [event for event in read_events(path) if event["event"] == "held_out"]


def test_what_a_worker_writes_after_it_was_given_up_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    undead = EventLog(path, 1)
    undead.write("start", 0)
    undead.write("step", 1, {"train/loss": 1.0})
    write_attempt(path, 2, resumed=1, last=2)
    undead.write("step", 2, {"train/loss": 1.0})
    undead.close()
    assert steps(read_events(path)) == [(1, 1), (2, 2)]


def test_a_torn_last_line_is_left_out_and_then_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write_attempt(path, 1, resumed=0, last=2)
    with path.open("ab") as file:
        file.write(b'{"event": "step", "attempt": 1, "ti')
    assert steps(read_events(path)) == [(1, 1), (1, 2)]
    write_attempt(path, 2, resumed=2, last=3)
    assert steps(read_events(path)) == [(1, 1), (1, 2), (2, 3)]


def test_a_log_that_is_one_long_torn_line_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"x" * 200_000)
    write_attempt(path, 1, resumed=0, last=1)
    assert steps(read_events(path)) == [(1, 1)]


@pytest.mark.parametrize("damage", [b"{not json}\n", b"[1, 2]\n", b'{"event": "step"}\n'])
def test_a_damaged_line_inside_the_log_is_named(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "events.jsonl"
    write_attempt(path, 1, resumed=0, last=1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + damage + lines[1])
    with pytest.raises(DataError, match=r"events.jsonl line 2 is not an event. The file was changed outside xalign"):
        read_events(path)


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not the folder of a run that has started"):
        read_events(tmp_path / "events.jsonl")


def test_the_last_attempt_is_the_newest_number(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    assert last_attempt(path) == 0
    write_attempt(path, 1, resumed=0, last=3)
    write_attempt(path, 2, resumed=2, last=3)
    assert last_attempt(path) == 2


def test_a_reader_yields_each_whole_line_once_while_the_log_grows(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reader = EventReader(path)
    assert reader.read() == []
    write_attempt(path, 1, resumed=0, last=3)
    assert [event["step"] for event in reader.read(limit=2)] == [0, 1]
    whole, half = path.read_bytes(), b'{"event": "step", "attempt": 1, "time": 1.0, "step": 4}'
    path.write_bytes(whole + half)
    assert [event["step"] for event in reader.read()] == [2, 3]
    path.write_bytes(whole + half + b"\n")
    assert [event["step"] for event in reader.read()] == [4]


def test_a_run_keeps_its_identity_when_it_resumes_and_another_run_of_the_same_recipe_differs(tmp_path: Path) -> None:
    assert run_identity(tmp_path / "a") is None
    write_attempt(tmp_path / "a" / "events.jsonl", 1, resumed=0, last=2)
    before = run_identity(tmp_path / "a")
    write_attempt(tmp_path / "a" / "events.jsonl", 2, resumed=2, last=3)
    write_attempt(tmp_path / "b" / "events.jsonl", 1, resumed=0, last=2)
    (tmp_path / "a").rename(tmp_path / "moved")
    assert before == run_identity(tmp_path / "moved") != run_identity(tmp_path / "b")


def test_a_full_disk_is_said_and_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    code = f"""
import resource
from pathlib import Path
from xalign_ray.errors import TrainingError
from xalign_ray.track.events import EventLog
log = EventLog(Path({str(path)!r}), 1)
log.write("start", 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    for step in range(1, 100):
        log.write("step", step, {{"train/loss": 1.0}})
except TrainingError as error:
    print(error)
"""
    said = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert f"{path} cannot be written" in said
    assert "Make room and rerun the same command: the run resumes from its newest checkpoint." in said
    assert path.read_bytes().endswith(b"\n")
    events = read_events(path)
    assert [event["step"] for event in events] == list(range(len(events)))
    assert len(events) > 3


def test_a_quota_that_is_said_when_the_line_goes_to_the_disk_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with EventLog(tmp_path / "events.jsonl", 1) as log:
        log.write("start", 0)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(TrainingError, match=r"cannot be written .Disk quota exceeded.. Make room"):
            log.write("end", 1)
    assert [event["event"] for event in read_events(tmp_path / "events.jsonl")] == ["start"]


def test_a_killed_writer_loses_no_line_that_it_had_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    code = f"""
from pathlib import Path
from xalign_ray.track.events import EventLog
log = EventLog(Path({str(path)!r}), 1)
log.write("start", 0)
for step in range(1, 10**9):
    log.write("step", step, {{"train/loss": 1.0}})
    print(step, flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    said = [int(writer.stdout.readline()) for _ in range(500)]
    writer.kill()
    said += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
    writer.wait()
    write_attempt(path, 2, resumed=said[-1], last=said[-1])
    found = [step for _, step in steps(read_events(path))]
    assert found == said


def test_checkpoints_and_ends_are_on_the_disk_when_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes().splitlines()[-1]))
    with EventLog(path, 1) as log:
        for event in ("start", "step", "checkpoint", "end"):
            log.write(event, 1)
    assert [json.loads(line)["event"] for line in synced] == ["checkpoint", "end"]
