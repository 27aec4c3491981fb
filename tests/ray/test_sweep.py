"""A sweep on real Ray and a real MLflow database: its driver is killed and it goes on; a trial fails and it goes on."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.ray.tagging_world import write_encoder, write_tags
from xalign_ray import sweeps
from xalign_ray.artifacts import read_manifest
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.tasks.grid import TRIALS
from xalign_ray.track.events import EVENT_LOG, EventLog
from xalign_ray.track.follower import replay

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

RATES = (1e-2, 1e-9)


@dataclass(frozen=True)
class Killed:
    """What is left of a sweep whose driver was killed in the middle, and what its continuation said."""

    output: Path
    file: Path
    finished: dict[Path, int]  # manifests of trials that were there at the kill, by when they were written
    said: str

    @property
    def folder(self) -> Path:
        return self.output / "tuning" / "small"


def write_sweep(folder: Path, **changes: object) -> Path:
    """Two encoders, one with a pretraining run around it, on tagging at two learning rates."""
    run = folder / "runs" / "tiny-align-mlm-00c0ffee"
    facts = {"xalign_objective": "align-mlm", "xalign_recipe": "tiny/align-mlm", "xalign_fingerprint": "00c0ffee" * 8}
    aligned = write_encoder(run / "export", **facts)
    plain = write_encoder(folder / "plain", xalign_objective="mlm")
    with EventLog(run / EVENT_LOG, 1) as log:
        log.write("start", 0, fingerprint=facts["xalign_fingerprint"], recipe="tiny/align-mlm")
        log.write("end", 0)
    write_tags(folder / "data" / "pos", "en", "de")
    tree = {
        "name": "small",
        "root": str(folder / "data"),
        "encoders": [{"model": plain, "label": "mlm"}, {"model": aligned, "label": "align-mlm"}],
        "tasks": [{"task": "pos", "data": ["pos"], "options": {"num_train_epochs": 3, "train_batch_size": 8}}],
        "search": {"kind": "grid", "learning_rate": list(RATES)},
        "resources": {"cpus_per_trial": os.cpu_count()},
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(tree | changes))
    return path


def start(file: Path, output: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "xalign_ray", "tune", str(file), "--out", str(output)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def manifests(output: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (output / "tuning/small" / TRIALS).glob("*/manifest.json")}


def session_of(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[3])


def processes_in(session: int) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if session_of(process) == session:
                found.append(int(process.name))
    return found


def is_at_work(process: int) -> bool:
    """Whether it can still run a trial, or start one."""
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        return b"ray::ImplicitFunc" in command or b"raylet/raylet" in command
    return False


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A sweep whose driver gets SIGKILL after its first trial, and is then resumed with another file."""
    folder = tmp_path_factory.mktemp("killed")
    file, output = write_sweep(folder), folder / "runs"
    replay(output / "tiny-align-mlm-00c0ffee", f"sqlite:///{output / 'mlflow.db'}", "xalign")
    driver = start(file, output)
    until = time.monotonic() + 300
    while not manifests(output):
        assert driver.poll() is None, driver.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    while any(is_at_work(process) for process in processes_in(driver.pid)):  # they end with their driver
        assert time.monotonic() < until
        time.sleep(0.1)
    for process in processes_in(driver.pid):  # Ray's agents, which do not, and do nothing
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    finished = manifests(output)
    file.write_text(file.read_text().replace("num_train_epochs: 3", "num_train_epochs: 4"))
    with redirect_stderr(io.StringIO()) as said:
        sweeps.run(str(file), output, resume=True)
    return Killed(output, file, finished, said.getvalue())


def runs_of(output: Path, query: str = "", experiment: str = "small") -> Sequence[Run]:
    client = MlflowClient(f"sqlite:///{output / 'mlflow.db'}")
    found = client.get_experiment_by_name(experiment)
    assert found
    return client.search_runs([found.experiment_id], query)


def test_a_sweep_whose_driver_was_killed_is_finished_without_a_trial_repeated_or_lost(killed: Killed):
    planned = [trial["name"] for trial in json.loads((killed.folder / "sweep.json").read_text())["trials"]]
    now = manifests(killed.output)
    assert 1 <= len(killed.finished) < len(planned) == 4
    assert {path.parent.name for path in now} == set(planned)
    assert {path: now[path] for path in killed.finished} == killed.finished
    manifest = read_manifest(killed.folder) or {}
    assert {key: manifest[key] for key in manifest if key != "files"} == {"kind": "sweep", "name": "small", "trials": 4}
    states = json.loads((killed.folder / "trials.json").read_text())
    assert [state["state"] for state in states] == ["finished"] * 4
    epochs = {state["setting"]["num_train_epochs"] for state in states}
    assert epochs == {3}  # of the plan, not of the file as it is now


def test_a_resumed_sweep_says_what_was_done_and_what_is_left(killed: Killed):
    done = len(killed.finished)
    assert "small has changed since it was begun; the 4 trials planned then are finished." in killed.said
    assert f"{done} of 4 trials had ended before." in killed.said
    lines = [line for line in killed.said.splitlines() if line.startswith("[")]
    assert [line.partition("]")[0] for line in lines] == [f"[{number}/4" for number in range(done + 1, 5)]
    assert lines[-1].startswith("[4/4] align-mlm pos, lr 1e-09, 3 epochs, batch 8, seed 0: development 0.")
    assert lines[-1].endswith(" s; 0 left")


def test_the_search_of_mlflow_finds_trials_by_score_and_parameter(killed: Killed):
    found = runs_of(killed.output, "metrics.pos_accuracy_de > 0.6 and params.objective = 'align-mlm'")
    assert [(run.data.params["learning_rate"], run.data.params["task"]) for run in found] == [("0.01", "pos")]
    (run,) = found
    shown = ("encoder", "recipe", "num_train_epochs", "seed", "training")
    assert [run.data.params[name] for name in shown] == ["align-mlm", "tiny/align-mlm", "3", "0", "english"]
    assert run.data.metrics["fine_tune/dev_score"] == 1.0
    assert run.info.status == "FINISHED"


def test_trials_are_children_of_their_sweep_and_name_the_run_of_their_encoder(killed: Killed):
    runs = runs_of(killed.output)
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert len(children) == 4
    assert parent.info.status == "FINISHED"
    artifacts = {
        item.path for item in MlflowClient(f"sqlite:///{killed.output}/mlflow.db").list_artifacts(parent.info.run_id)
    }
    assert artifacts >= {"comparison.md", "comparison.csv", "index.html", "choices.json", "trials.json"}
    (pretraining,) = runs_of(killed.output, experiment="xalign")
    linked = [run for run in children if run.data.params["encoder"] == "align-mlm"]
    assert {run.data.tags["xalign.pretraining_run_id"] for run in linked} == {pretraining.info.run_id}
    assert {run.data.tags["xalign.pretraining_run_name"] for run in linked} == {"tiny-align-mlm-00c0ffee"}


def test_a_replay_adds_no_run(killed: Killed):
    before = {run.info.run_id for run in runs_of(killed.output)}
    replay(killed.folder, f"sqlite:///{killed.output / 'mlflow.db'}", "small")
    assert {run.info.run_id for run in runs_of(killed.output)} == before


def test_no_test_score_changes_what_is_chosen(killed: Killed, tmp_path: Path):
    output = shutil.copytree(killed.output, tmp_path / "runs")  # the other tests find theirs as it was
    folder = output / "tuning" / "small"
    choices = (folder / "choices.json").read_bytes()
    chosen = {choice["encoder"]: choice["chosen"]["setting"]["learning_rate"] for choice in json.loads(choices)}
    assert chosen == {"mlm": 1e-2, "align-mlm": 1e-2}
    for path in (folder / TRIALS).glob("*/scores.json"):
        tree = json.loads(path.read_text())
        for score in tree["scores"]:
            score["value"] = 1 - score["value"]
        path.write_text(json.dumps(tree))
    sweeps.run(str(killed.file), output, resume=True)
    assert (folder / "choices.json").read_bytes() == choices


def test_a_changed_file_is_another_sweep(killed: Killed):
    with pytest.raises(ConfigError, match=r"holds a sweep of 4 trials that are not those of this file\. --resume"):
        sweeps.run(str(killed.file), killed.output)


def test_what_was_never_begun_cannot_be_resumed(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"tuning/small holds no sweep to resume; leave out --resume to begin one\."):
        sweeps.run(str(write_sweep(tmp_path)), tmp_path / "runs", resume=True)


def test_a_trial_whose_loss_is_not_finite_is_reported_and_the_sweep_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    search = {"kind": "grid", "learning_rate": [1e30, 1e-2]}
    encoders = [{"model": str(tmp_path / "plain"), "label": "mlm"}]
    file = write_sweep(tmp_path, search=search, encoders=encoders, mlflow="off", resources={"cpus_per_trial": 1})
    with pytest.raises(
        TrainingError, match=r"1 of 2 trials of small failed.*\n  mlm pos, lr 1e\+30.*loss became nan; lower"
    ):
        sweeps.run(str(file), tmp_path / "runs")
    folder = tmp_path / "runs" / "tuning" / "small"
    states = json.loads((folder / "trials.json").read_text())
    assert [state["state"] for state in states] == ["failed", "finished"]
    (choice,) = json.loads((folder / "choices.json").read_text())
    assert choice["chosen"]["setting"]["learning_rate"] == 1e-2
    assert "pos_accuracy" in (folder / "comparison.csv").read_text()
    assert read_manifest(folder) is None
    said = capfd.readouterr().err
    assert "failed TrainingError: The fine-tuning loss became nan" in said
