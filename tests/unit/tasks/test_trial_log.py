"""The log of a trial: what it begins and ends with, and what a killed process leaves to be written."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from xalign_ray.finetune.settings import FineTuning
from xalign_ray.tasks.grid import Trial
from xalign_ray.tasks.trial_log import TrialNotes, close_log, log_epoch, pretraining_of, seconds_of, trial_logged
from xalign_ray.track.events import EVENT_LOG, EventLog, read_events


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-mlm-00c0ffee" / "export"
    folder.mkdir(parents=True)
    facts = {"xalign_objective": "mlm", "xalign_recipe": "tiny/mlm", "xalign_step": 9, "xalign_seed": 3}
    (folder / "config.json").write_text(json.dumps(facts))
    return folder


def test_a_trial_starts_with_the_parameters_that_a_search_needs(tmp_path: Path, encoder: Path):
    trial = Trial("pos", str(encoder), ("/pos",), FineTuning(learning_rate=1e-4, num_train_epochs=2, seed=5))
    with trial_logged(tmp_path, trial, TrialNotes("mlm pos", "mlm", pretraining={"run": "tiny-mlm-00c0ffee"})) as log:
        log_epoch(log, 1, 0.5)
    start, epoch, end = read_events(tmp_path / EVENT_LOG)
    assert start["params"] == {
        "encoder": "mlm",
        "objective": "mlm",
        "recipe": "tiny/mlm",
        "step": 9,
        "pretraining_seed": 3,
        "pretraining_run": "tiny-mlm-00c0ffee",
        "task": "pos",
        "training": "english",
        "train_language": "en",
        "learning_rate": 1e-4,
        "num_train_epochs": 2,
        "train_batch_size": 32,
        "seed": 5,
    }
    assert (epoch["step"], epoch["metrics"]) == (1, {"fine_tune/dev_score": 0.5})
    assert (end["event"], end["step"], end["state"]) == ("end", 2, "finished")
    assert seconds_of(tmp_path) == end["time"] - start["time"]


def test_an_encoder_that_says_nothing_of_itself_is_named_by_its_path(tmp_path: Path):
    with trial_logged(tmp_path, Trial("pos", "bert-base-cased", ("/pos",)), TrialNotes()):
        pass
    params = read_events(tmp_path / EVENT_LOG)[0]["params"]
    assert params["encoder"] == "bert-base-cased"
    assert not {"objective", "recipe", "pretraining_run"} & params.keys()


def test_a_log_without_an_end_is_closed_once(tmp_path: Path):
    with suppress(KeyboardInterrupt), trial_logged(tmp_path, Trial("pos", "x", ("/pos",)), TrialNotes()) as log:
        log_epoch(log, 1, 0.5)
        raise KeyboardInterrupt
    assert seconds_of(tmp_path) is None
    close_log(tmp_path, "stopped")
    close_log(tmp_path, "finished")
    events = read_events(tmp_path / EVENT_LOG)
    assert [(event["event"], event["step"]) for event in events] == [("start", 0), ("held_out", 1), ("end", 1)]
    assert events[-1]["state"] == "stopped"


def test_the_run_that_made_an_encoder_is_found_beside_it(encoder: Path):
    assert pretraining_of(str(encoder)) == {}
    with EventLog(encoder.parent / EVENT_LOG, 1) as log:
        log.write("start", 0, fingerprint="00c0ffee")
    found = pretraining_of(str(encoder))
    assert (found["run"], found["fingerprint"]) == ("tiny-mlm-00c0ffee", "00c0ffee")
    assert pretraining_of("bert-base-cased") == {}
