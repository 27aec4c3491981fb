"""A study on real Ray and a real MLflow database: cells side by side, a killed driver, trials that fail or are poor."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.pages import command, write_files
from tests.parity.cells_here import run_cells_here
from tests.ray.small import batches, recipe
from tests.ray.tagging_world import write_encoder, write_tags
from tests.unit.conftest import prepare_here
from tests.unit.studies import test_command as commands
from xalign_ray import cli
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.private.ray import memory_of_node
from xalign_ray.studies.cells import CELLS
from xalign_ray.studies.study import run_study
from xalign_ray.studies.workers import STOP_MARK
from xalign_ray.tasks.scores import SCORES, read_scores
from xalign_ray.track.events import EVENT_LOG, EventLog, read_events
from xalign_ray.track.follower import replay
from xalign_ray.verbs.scores import tune
from xalign_ray.work.artifacts import read_manifest

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

POS = {"task": "pos", "data": "pos"}
RATES = [1e-2, 1e-9]
SHORT = {"num_train_epochs": 5, "train_batch_size": 8}


@dataclass(frozen=True)
class Killed:
    """What is left of a study whose driver was killed in the middle, and what its continuation said."""

    output: Path
    finished: dict[Path, int]  # manifests of cells that were there at the kill, by when they were written
    said: str

    @property
    def folder(self) -> Path:
        return self.output / "studies" / "small"


def write_study(folder: Path, **changes: object) -> Path:
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
        "finetunings": [POS | {"settings": {"learning_rate": RATES, **SHORT}}],
        "resources": {"cpus": 2},  # of the three that the cluster has: a cell at a time
    }
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(tree | changes))
    return path


def one_encoder(folder: Path, settings: dict[str, Any], **changes: object) -> Path:
    """A study of one encoder that tries these settings, a cell at a time: one process runs them all."""
    encoders = [{"model": str(folder / "plain"), "label": "mlm"}]
    changes = {"encoders": encoders, "mlflow": "off"} | changes
    return write_study(folder, finetunings=[POS | {"settings": SHORT | settings}], **changes)


def start(file: Path, output: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "xalign_ray", "study", str(file), "--out", str(output)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def manifests(output: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (output / "studies/small" / CELLS).glob("*/manifest.json")}


def parent_of(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def trials_at_work() -> list[int]:
    """Processes that run a cell now; of this cluster: children of a raylet that is our child."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cmdline").read_bytes().startswith(b"ray::run_cell"):
                raylet = Path("/proc") / str(parent_of(process))
                found += [int(process.name)] if parent_of(raylet) == os.getpid() else []
    return found


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
        return b"ray::run_cell" in command or b"raylet/raylet" in command
    return False


def wait_until(is_so: Callable[[], object]) -> None:
    until = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A study whose driver gets SIGKILL after its first cell, and which is then given again."""
    folder = tmp_path_factory.mktemp("killed")
    file, output = write_study(folder), folder / "runs"
    replay(output / "tiny-align-mlm-00c0ffee", f"sqlite:///{output / 'mlflow.db'}", "xalign")
    driver = start(file, output)
    wait_until(lambda: manifests(output) or driver.poll() is not None)
    assert driver.poll() is None, driver.communicate()[1]
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not any(is_at_work(process) for process in processes_in(driver.pid)))  # they end with it
    for process in processes_in(driver.pid):  # Ray's agents, which do not, and do nothing
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    finished = manifests(output)
    with redirect_stderr(io.StringIO()) as said:
        run_study(str(file), output)
    return Killed(output, finished, said.getvalue())


def cells_of(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "study.json").read_text())["cells"]


def runs_of(output: Path, query: str = "", experiment: str = "small") -> Sequence[Run]:
    client = MlflowClient(f"sqlite:///{output / 'mlflow.db'}")
    found = client.get_experiment_by_name(experiment)
    assert found
    return client.search_runs([found.experiment_id], query)


def test_a_study_whose_driver_was_killed_is_finished_without_a_cell_repeated_or_lost(killed: Killed):
    cells, now = cells_of(killed.folder), manifests(killed.output)
    assert 1 <= len(killed.finished) < len(cells) == 4
    assert {path.parent.name for path in now} == {cell["name"] for cell in cells}
    assert {path: now[path] for path in killed.finished} == killed.finished
    manifest = read_manifest(killed.folder) or {}
    assert {key: manifest[key] for key in manifest if key != "files"} == {"kind": "study", "name": "small"}
    assert [cell["state"] for cell in cells] == ["finished"] * 4


def test_a_study_given_again_says_what_was_done_and_numbers_what_is_left(killed: Killed):
    done = len(killed.finished)
    assert f"{done} of 4 cells had ended before." in killed.said
    lines = [line for line in killed.said.splitlines() if line.startswith("[")]
    assert [line.partition("]")[0] for line in lines] == [f"[{number}/4" for number in range(done + 1, 5)]
    assert lines[-1].startswith("[4/4] align-mlm: pos, lr 1e-09, 5 epochs, batch 8, seed 0: development 0.")
    assert lines[-1].endswith(" s")


def test_the_search_of_mlflow_finds_fine_tunings_by_score_and_parameter(killed: Killed):
    found = runs_of(killed.output, "metrics.pos_accuracy_de > 0.6 and params.objective = 'align-mlm'")
    assert [(run.data.params["learning_rate"], run.data.params["task"]) for run in found] == [("0.01", "pos")]
    (run,) = found
    shown = ("encoder", "recipe", "num_train_epochs", "seed", "training")
    assert [run.data.params[name] for name in shown] == ["align-mlm", "tiny/align-mlm", "5", "0", "english"]
    assert run.data.metrics["fine_tune/dev_score"] == 1.0
    assert run.info.status == "FINISHED"


def test_fine_tunings_are_children_of_their_study_and_name_the_run_of_their_encoder(killed: Killed):
    runs = runs_of(killed.output)
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert len(children) == 4
    assert parent.info.status == "FINISHED"
    assert "scale" not in parent.data.params  # a study's own is that of its name, such as weam/tiny
    artifacts = {
        item.path for item in MlflowClient(f"sqlite:///{killed.output}/mlflow.db").list_artifacts(parent.info.run_id)
    }
    assert artifacts >= {"study.json", "choices.json", "report"}
    (pretraining,) = runs_of(killed.output, experiment="xalign")
    linked = [run for run in children if run.data.params["encoder"] == "align-mlm"]
    assert {run.data.tags["xalign.pretraining_run_id"] for run in linked} == {pretraining.info.run_id}
    assert {run.data.tags["xalign.pretraining_run_name"] for run in linked} == {"tiny-align-mlm-00c0ffee"}


def test_a_replay_adds_no_run(killed: Killed):
    before = {run.info.run_id for run in runs_of(killed.output)}
    replay(killed.folder, f"sqlite:///{killed.output / 'mlflow.db'}", "small")
    assert {run.info.run_id for run in runs_of(killed.output)} == before


def test_a_fine_tuning_whose_loss_is_not_finite_is_reported_and_the_study_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    file = one_encoder(tmp_path, {"learning_rate": [1e30, 1e-2]})
    with pytest.raises(
        TrainingError, match=r"1 cells? of small failed.*\n  mlm: pos, lr 1e\+30.*loss became nan; lower"
    ):
        run_study(str(file), tmp_path / "runs")
    folder = tmp_path / "runs" / "studies" / "small"
    assert [cell["state"] for cell in cells_of(folder)] == ["failed", "finished"]
    (choice,) = json.loads((folder / "choices.json").read_text())
    assert choice["candidates"][choice["chosen"]]["setting"]["learning_rate"] == 1e-2
    assert read_manifest(folder) is None
    said = capfd.readouterr().err
    assert "failed: TrainingError: The fine-tuning loss became nan" in said


def test_a_fine_tuning_killed_at_work_is_retried_with_the_same_scores(tmp_path: Path):
    file = one_encoder(tmp_path, {"learning_rate": 3e-4})  # at which another seed has other scores
    hit: list[int] = []

    def kill_one() -> None:
        wait_until(trials_at_work)
        hit.extend(trials_at_work()[:1])
        os.kill(hit[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    run_study(str(file), tmp_path / "runs")
    killer.join()
    with pytest.MonkeyPatch.context() as patch:
        run_cells_here(patch, [], [])
        run_study(str(file), tmp_path / "calm")
    scores = [read_scores(next((tmp_path / out).glob(f"studies/small/{CELLS}/*/{SCORES}"))) for out in ("runs", "calm")]
    assert scores[0] == scores[1]


def test_a_command_whose_task_is_killed_leaves_no_process_and_is_run_again_with_a_cluster_of_its_own(tmp_path: Path):
    pids = tmp_path / "pids"
    start = "import ray; from xalign_ray.config.schema import ParallelConfig; from xalign_ray.train import cluster; "
    start += "cluster.connect(ParallelConfig(), 1); print(ray.cluster_resources())"
    again = f"cp -r {tmp_path}/plain {{out}} && exec env HOME={tmp_path} {sys.executable} -c '{start}'"
    first = f"setsid sleep 200 & echo $! >> {pids}; wait"
    tool = f"echo $$ >> {pids}; if [ $(wc -l < {pids}) = 2 ]; then {again}; fi; {first}"
    write_encoder(tmp_path / "plain")
    file = commands.write_study(tmp_path, {"label": "tool", "command": tool, "seeds": [0]})

    def kill_one() -> None:
        wait_until(lambda: pids.is_file() and len(pids.read_text().split()) == 2)
        worker, left = map(int, pids.read_text().split())
        for _ in ("who measures", "who waits for it", "the task"):
            worker = parent_of(Path("/proc", str(worker)))
        os.kill(worker, signal.SIGKILL)
        pids.write_text(f"{left}\n")

    killer = threading.Thread(target=kill_one)
    killer.start()
    run_study(file, tmp_path / "runs")
    killer.join()
    left, _ = pids.read_text().split()
    wait_until(lambda: not Path("/proc", left).exists())
    (printed,) = tmp_path.glob("runs/studies/tools/cells/command-*/printed.txt")
    assert "'CPU': 1.0" in printed.read_text()


def test_commands_have_gpus_of_their_own_and_end_with_their_study(tmp_path: Path):
    tools = [tmp_path / name for name in "ab"]
    encoders = [
        {"label": tool.name, "command": f"env > {tool}; setsid sleep 600 & echo LEFT=$! >> {tool}; wait # {{out}}"}
        for tool in tools
    ]
    write_encoder(tmp_path / "plain")
    for tool in tools:
        tool.touch()
    resources = {"cpus": 0.5, "gpus": 1}
    file = commands.write_study(tmp_path, *encoders, seeds=[0], evaluations=[], resources=resources)
    start = "import ray, sys; from xalign_ray.private.ray import few_processes; from xalign_ray.cli import main"
    start += "\nwith few_processes(): ray.init(address='local', num_cpus=2, num_gpus=2, include_dashboard=False)"
    words = [sys.executable, "-c", f"{start}\nmain()", "study", file, "--out", str(tmp_path / "runs")]
    study = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until(lambda: study.poll() is not None or all("LEFT=" in tool.read_text() for tool in tools))
    assert study.poll() is None, study.communicate()[1]
    lines = [tool.read_text().splitlines() for tool in tools]
    environments = [dict(line.split("=", 1) for line in of_tool if "=" in line) for of_tool in lines]
    study.send_signal(signal.SIGTERM)
    assert study.wait(300) == 143
    assert {environment["CUDA_VISIBLE_DEVICES"] for environment in environments} == {"0", "1"}
    assert not [name for environment in environments for name in environment if name.startswith("RAY_")]
    wait_until(lambda: not any(Path("/proc", environment["LEFT"]).exists() for environment in environments))


def test_halving_stops_a_poor_trial_for_good_and_repeats_the_chosen_setting_under_the_other_seeds(tmp_path: Path):
    search = {"num_samples": 8, "asha": {"reduction_factor": 2}}
    file = one_encoder(tmp_path, {"learning_rate": RATES}, search=search)
    tree = yaml.safe_load(file.read_text())
    tree["finetunings"][0]["seeds"] = [0, 1]
    file.write_text(yaml.safe_dump(tree))
    run_study(str(file), tmp_path / "runs")
    folder = tmp_path / "runs" / "studies" / "small"
    states = {(cell["setting"]["learning_rate"], cell["seed"]): cell["state"] for cell in cells_of(folder)}
    good, poor = RATES
    assert {(good, 0): "finished", (good, 1): "finished", (poor, 1): "not chosen"}.items() <= states.items()
    if states[poor, 0] == "stopped":  # where it came after the good one
        (mark,) = folder.glob(f"{CELLS}/*/{STOP_MARK}")
        events = read_events(mark.parent / EVENT_LOG)
        assert [(event["event"], event["step"]) for event in events] == [("start", 0), ("held_out", 1), ("end", 1)]
        assert events[-1]["state"] == "stopped"


@pytest.fixture(scope="module")
def own_languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page on one's own languages, with its data, prepared without Ray."""
    folder = tmp_path_factory.mktemp("languages")
    write_files("your_languages.md", folder)
    subprocess.run([sys.executable, "make_files.py"], cwd=folder, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare_here(recipe([], name="mlm.yaml"))
    return folder


def xalign(*words: str) -> None:
    """A command line in this process, and so on its cluster."""
    with pytest.raises(SystemExit) as ended:
        cli.app([*words], prog_name="xalign")
    assert not ended.value.code


def test_cells_of_the_page_run_side_by_side_are_not_repeated_and_are_reported(
    own_languages: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """The cluster has three CPUs: for two workers with half of one, and their feeds; or for two fine-tunings."""
    monkeypatch.chdir(own_languages)
    # Some seconds of steps: on a busy machine processes that are started at once begin seconds apart.
    settings = [*batches(rows=8, micro=4, steps=150, saved_every=150), "parallel.workers=1", "track.mlflow=off"]
    settings += ["resources.cpus=1.5"]
    words = command("your_languages.md", "xalign study study.yaml")[1:]
    words += [word for one in settings for word in ("--set", one)]
    xalign(*words)
    folder = Path("runs", "studies", "study")
    cells = cells_of(folder)
    kinds = [cell["kind"] for cell in cells]
    assert [kinds.count(kind) for kind in ("pretraining", "evaluation", "finetuning")] == [2, 2, 4]
    assert {cell["state"] for cell in cells} == {"finished"}
    spans = {cell["name"]: span_of(folder / cell["folder"] / EVENT_LOG) for cell in cells}
    pretrained = [spans[cell["name"]] for cell in cells if cell["kind"] == "pretraining"]
    tuned = [spans[cell["name"]] for cell in cells if cell["kind"] == "finetuning"]
    assert overlap(*pretrained)
    assert any(overlap(one, other) for place, one in enumerate(tuned) for other in tuned[:place])
    for cell in (cell for cell in cells if cell["kind"] == "pretraining"):
        shown = read_scores(folder / cell["folder"] / "evaluation" / "study" / SCORES)
        assert {"tatoeba_accuracy", "pos_accuracy"} <= {score.metric for score in shown}
    assert "mlm (seed 0): step 150/150" in capfd.readouterr().err
    own = [path for path in Path("runs").rglob("manifest.json") if path.parent != folder]
    before = {path: path.stat().st_mtime_ns for path in own}
    xalign(*words)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    xalign(*command("your_languages.md", "xalign report")[1:])
    assert {"de", "en", "es"} <= set(pd.read_csv("report/scores.csv")["language"])


def span_of(log: Path) -> tuple[float, float]:
    events = read_events(log)
    return events[0]["time"], events[-1]["time"]


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"cpus": 1000}, r"needs 1000 CPU; its largest node has \d+ CPU"),
        ({"memory": 9000}, rf"needs 9000 GB; its largest node has {memory_of_node() / 1e9:g} GB"),
    ],
)
def test_a_study_that_the_cluster_cannot_hold_is_refused_before_anything_runs(
    tmp_path: Path, resources: dict[str, float], said: str
):
    file = one_encoder(tmp_path, {}, resources=resources)
    with pytest.raises(ConfigError, match=rf"mlm: pos, .* {said}\. Lower its r"):
        run_study(str(file), tmp_path / "runs")


def test_tune_is_a_study_of_one_cell_that_keeps_its_model(tmp_path: Path):
    write_study(tmp_path)
    run = tmp_path / "runs" / "tiny-align-mlm-00c0ffee"
    scores = tune(run, "pos", tmp_path / "data" / "pos", None, SHORT | {"learning_rate": RATES, "seed": 3})
    assert set(scores.value[scores.metric == "pos_accuracy"]) == {1.0}
    assert set(scores.seed) == {3}
    target = run / "evaluation" / "pos"
    assert [score.value for score in read_scores(target / SCORES)] == scores.value.to_list()
    assert len(list(target.glob(f"{CELLS}/*/manifest.json"))) == 2
    assert len(list(target.glob(f"{CELLS}/*/model/config.json"))) == 1
