"""A grid of fine-tunings on a real local Ray cluster: a killed trial is tried again, a bad one is reported."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ray.tagging_world import write_encoder, write_tags
from xalign_ray.artifacts import hash_file
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.grid import STOP_MARK, TRIALS, Ended, Halving, Trial, trial_folder, tune_grid
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.track.events import EVENT_LOG, read_events

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    return write_encoder(tmp_path / "encoder")


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_tags(tmp_path / "pos", "en")


def settings(seed: int, epochs: int = 3) -> FineTuning:
    return FineTuning(learning_rate=1e-2, num_train_epochs=epochs, train_batch_size=8, seed=seed)


def parent_of(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def trials_at_work() -> list[int]:
    """Processes in which Tune runs a function now; of this cluster: children of a raylet that is our child."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes().startswith(b"ray::ImplicitFunc.train"):
                raylet = Path("/proc") / str(parent_of(process))
                found += [int(process.name)] if parent_of(raylet) == os.getpid() else []
    return found


def kill_one_trial(killed: list[int]) -> None:
    """Waits until a trial is at work, then kills it as the kernel would when memory ends."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not killed:
        for process in trials_at_work()[:1]:
            os.kill(process, signal.SIGKILL)
            killed.append(process)
        time.sleep(0.05)


def test_a_grid_yields_the_scores_of_each_trial_reports_one_that_cannot_run_and_repeats_none(
    tmp_path: Path, encoder: str, data: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    far = [Trial("pos", encoder, (data,), settings(seed)) for seed in (1, 2)]
    near = Trial("pos", str(Path(encoder).relative_to(tmp_path)), (str(Path(data).relative_to(tmp_path)),), settings(1))
    bad = Trial("pos", encoder, (data,), settings(1), languages=("sw",))
    trials = [*far, near]
    outcome = tune_grid([bad, *trials], Path("grid"), max_concurrent_trials=2, retries=0)
    assert list(outcome.scores) == [trial.name for trial in trials]
    assert list(outcome.failures) == [bad.name]
    assert outcome.failures[bad.name].endswith(f"DataError: {data} has no sw; it has en.")
    assert outcome.scores[near.name] == outcome.scores[far[0].name]
    seeds = {trial.name: {score.seed for score in outcome.scores[trial.name]} for trial in far}
    assert seeds == {far[0].name: {1}, far[1].name: {2}}
    assert {score.value for scores in outcome.scores.values() for score in scores} == {1.0}
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "grid" / TRIALS).rglob("manifest.json")}
    assert len(times) == 2
    again = tune_grid(trials, tmp_path / "grid", max_concurrent_trials=2)
    assert (again.scores, again.failures) == (outcome.scores, {})
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_a_trial_killed_at_work_is_tried_again_with_the_same_scores(tmp_path: Path, encoder: str, data: str):
    trial = Trial("pos", encoder, (data,), settings(3, epochs=30))
    calm = tune_task(TUNED_TASKS["pos"], encoder, [Path(data)], tmp_path / "calm", settings=trial.settings)
    killed: list[int] = []
    killer = threading.Thread(target=kill_one_trial, args=(killed,))
    killer.start()
    outcome = tune_grid([trial], tmp_path / "hit", max_concurrent_trials=1)
    killer.join()
    assert len(killed) == 1
    assert outcome.scores == {trial.name: calm}
    folders = (tmp_path / "calm", trial_folder(tmp_path / "hit", trial))
    for file in ("choice.json", "predictions/en.jsonl"):
        assert hash_file(folders[0] / file) == hash_file(folders[1] / file)


def test_halving_stops_a_poor_trial_for_good_and_looks_at_each_encoder_for_itself(
    tmp_path: Path, encoder: str, data: str
):
    alone = Trial(
        "pos", write_encoder(tmp_path / "other"), (data,), FineTuning(1e-9, num_train_epochs=4, train_batch_size=8)
    )
    good, poor = (
        Trial("pos", encoder, (data,), FineTuning(rate, num_train_epochs=4, train_batch_size=8))
        for rate in (1e-2, 1e-9)
    )
    told: list[Ended] = []
    halving = Halving(grace_epochs=1, factor=2, max_epochs=4)
    outcome = tune_grid([good, poor, alone], tmp_path / "grid", 1, halving=halving, told=told.append)
    assert set(outcome.scores) == {good.name, alone.name}
    assert (outcome.failures, list(outcome.stopped)) == ({}, [poor.name])
    assert [(one.trial, one.state) for one in told] == [(good, "finished"), (poor, "stopped"), (alone, "finished")]
    folder = tmp_path / "grid" / TRIALS / poor.name
    events = read_events(folder / EVENT_LOG)
    assert [(event["event"], event["step"]) for event in events] == [("start", 0), ("held_out", 1), ("end", 1)]
    assert events[-1]["state"] == "stopped"
    before = (folder / STOP_MARK).stat().st_mtime_ns
    assert tune_grid([good, poor, alone], tmp_path / "grid", 1, halving=halving) == outcome
    assert (folder / STOP_MARK).stat().st_mtime_ns == before
