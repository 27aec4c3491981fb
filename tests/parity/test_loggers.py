"""TensorBoard, W&B and trackio as followers of the event log: what their own readers find in what was written."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from tests.unit.results.run_folders import score
from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError
from xalign_ray.tasks.scores import write_scores
from xalign_ray.track import destinations
from xalign_ray.track.destinations import LOGGERS, check_uri, tracks_of
from xalign_ray.track.events import EVENT_LOG, EventLog
from xalign_ray.track.follower import Follower, replay

Series = Mapping[str, Mapping[int, float]]  # of each metric the value at each step


def read_tensorboard(folder: Path) -> Series:
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {key: {one.step: one.value for one in events.Scalars(key)} for key in events.Tags()["scalars"]}


def wandb_records(content: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: a head of 7 bytes, then LevelDB's log format in blocks of 32 KiB."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left  # padding
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        parts += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def read_wandb(folder: Path) -> Series:
    """The newest offline run: its history, and its summary as step -1; wandb's own process may still be writing it."""
    (*_, path) = sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))
    until = time.monotonic() + 60
    records: list[Any] = []
    while not any(record.HasField("exit") for record in records):
        assert time.monotonic() < until, f"{path} never ended"
        time.sleep(0.1)
        records = parse_wandb(path)
    series = dict[str, dict[int, float]]()
    for record in records:
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for key, value in row.items():
            series.setdefault(key, {})[int(row["_step"])] = value
        for item in record.summary.update:
            series.setdefault(item.key or "/".join(item.nested_key), {})[-1] = json.loads(item.value_json)
    return series


def parse_wandb(path: Path) -> list[Any]:
    return [wandb_internal_pb2.Record.FromString(data) for data in wandb_records(path.read_bytes())]


def read_trackio(folder: Path) -> Series:
    """The rows of its database."""
    with sqlite3.connect(Path(os.environ["TRACKIO_DIR"]) / "mine.db") as database:
        rows = database.execute("select step, metrics from metrics where run_name = ? order by id", [folder.name])
        series = dict[str, dict[int, float]]()
        for step, metrics in rows:
            for key, value in json.loads(metrics).items():
                assert step not in series.setdefault(key, {})  # each point once
                series[key][step] = value
    return series


READERS: Mapping[str, Callable[[Path], Series]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "trackio": read_trackio,
}


@pytest.fixture(autouse=True, scope="module")
def _trackio_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """trackio reads the variable once, when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio")))
        yield


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))


def write_log(folder: Path, attempt: int, first: int, last: int, total: int, ends: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"seed": 0, "train": {"max_steps": total}}))
    with EventLog(folder / EVENT_LOG, attempt) as log:
        log.write("start", first - 1, recipe="tiny/mlm", fingerprint="f00d", steps=total)
        for step in range(first, last + 1):
            log.write("step", step, {"train/loss": 1 / step}, batch_hash=step)
        log.write("held_out", last, {"held_out/loss": 5.0})
        if ends:
            log.write("end", last, {"run/seconds": 3.5})


@pytest.mark.parametrize("tracker", READERS)
def test_a_followed_run_has_every_point_and_its_scores(tracker: str, tmp_path: Path) -> None:
    folder = tmp_path / "tiny-mlm-f00d"
    write_log(folder, 1, 1, 5, 10, ends=False)
    follower = Follower(folder, tracker, "mine", every_s=0.1)
    write_log(folder, 2, 5, 10, 10, ends=True)  # step 5 is done again after a crash
    write_scores(
        folder / "evaluation/tatoeba/scores.json",
        [score(value=0.25, step=10, language="de"), score(value=0.25, step=10)],
    )
    assert follower.close(60) is None
    found = READERS[tracker](folder)
    assert {step: value for step, value in found["train/loss"].items() if step > 0} == pytest.approx(
        {step: 1 / step for step in range(1, 11)}
    )
    assert found["held_out/loss"][10] == 5.0
    assert found["run/seconds"][10] == 3.5
    scores = {key: [*values.values()][-1] for key, values in found.items() if key.startswith("scores/")}
    assert scores == pytest.approx({"scores/tatoeba_accuracy": 0.25, "scores/tatoeba_accuracy_de": 0.25})


@pytest.mark.parametrize("tracker", READERS)
def test_replay_writes_the_same_points_again(tracker: str, tmp_path: Path) -> None:
    folder = tmp_path / "tiny-mlm-f00d"
    write_log(folder, 1, 1, 10, 10, ends=True)
    assert replay(folder, tracker, "mine") == replay(folder, tracker, "mine") == [folder.name]
    found = READERS[tracker](folder)["train/loss"]
    assert sorted(step for step in found if step > 0) == list(range(1, 11))
    assert len([*folder.glob("tensorboard/*")]) == (tracker == "tensorboard")


def test_a_space_is_not_followed_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKIO_SPACE_ID", "me/space")
    write_log(tmp_path / "run", 1, 1, 3, 3, ends=True)
    replay(tmp_path / "run", "trackio", "mine")
    said = capsys.readouterr()
    assert f"trackio: TRACKIO_SPACE_ID is not followed; the run is in {os.environ['TRACKIO_DIR']}, for" in said.err
    assert said.out == ""
    assert sorted(read_trackio(tmp_path / "run")["train/loss"]) == [1, 2, 3]


def test_the_recipe_names_trackers_beside_mlflow() -> None:
    config = load_recipe("tiny/mlm", ["track.report_to=[tensorboard, wandb, trackio]", "output=/runs"]).config
    named = [track.uri for track in tracks_of(config.track.model_dump(), config.output)]
    assert named == ["sqlite:////runs/mlflow.db", "tensorboard", "wandb", "trackio"]
    assert [one.uri for one in tracks_of({"mlflow": "off", "experiment": "x"}, "/runs")] == []  # of an older version
    with pytest.raises(ConfigError, match=r"'track\.report_to\.0'"):
        load_recipe("tiny/mlm", ["track.report_to=[aim]"])


@pytest.mark.parametrize("found", [None, ModuleSpec("wandb", None, is_package=True)])  # a folder of that name
def test_a_missing_package_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, found: ModuleSpec | None
) -> None:
    monkeypatch.setattr(destinations, "find_spec", lambda _name: found)
    for name in LOGGERS:
        with pytest.raises(ConfigError, match=rf"{name} needs the package .*: pip install 'xalign-ray\[{name}\]', or "):
            check_uri(name)


def test_a_tracker_that_fails_holds_nothing_up(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_log(folder, 1, 1, 3, 3, ends=True)
    (folder / "tensorboard").write_text("a file where a folder should be")
    said: Any = Follower(folder, "tensorboard", "mine", every_s=0.1).close(2)
    assert said.startswith(f"tensorboard does not hold all of {folder} (")
    assert said.endswith(f"`xalign track replay {folder} --to tensorboard` brings it up to date.")
