"""Damages every file of a finished sweep, of its trials, of a replayed run and of a report; calls what reads it.

Trials run one after the other in this process: what Ray Tune calls on a worker is called here, and Ray is not started.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from mlflow import MlflowClient

from tests.parity.damage import DAMAGES, Walk, damaged, files_of
from tests.ray.tagging_world import write_encoder, write_tags
from tests.unit.report.run_folders import score, write_run
from xalign_ray import studies, sweeps
from xalign_ray.artifacts import hash_files
from xalign_ray.tasks import grid, sweep_run
from xalign_ray.track.follower import replay

EXPERIMENTS = count()
ABSENT = {("scores.json", "deleted")}  # an evaluation that was never made


@dataclass(frozen=True)
class World:
    """A finished sweep of one encoder with two settings and an evaluation beside."""

    file: Path
    output: Path
    data: Path
    ran: list[str]  # trials that were run, by name
    connected: list[str]  # a word each time that a cluster was asked for

    @property
    def folder(self) -> Path:
        return self.output / "tuning" / "small"

    @property
    def kept(self) -> Path:
        """A copy of the sweep as it was when it had finished."""
        return self.output / "kept"

    @property
    def trials(self) -> list[str]:
        return sorted(path.name for path in (self.kept / grid.TRIALS).iterdir())


def write_pairs(folder: Path) -> None:
    lines = ["the cat sees", "the dog .", "cat dog", "sees the ."]
    folder.mkdir(parents=True)
    for side in ("de", "en"):
        (folder / f"tatoeba.de-en.{side}").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("sweeps")
    encoder = write_encoder(folder / "plain", xalign_objective="mlm")
    write_tags(folder / "data" / "pos", "en", "de")
    write_pairs(folder / "data" / "tatoeba")
    tree = {
        "root": str(folder / "data"),
        "encoders": [{"model": encoder, "label": "mlm"}],
        "tasks": [{"task": "pos", "data": ["pos"], "options": {"num_train_epochs": 1, "train_batch_size": 8}}],
        "search": {"kind": "grid", "learning_rate": [1e-2, 1e-9]},
        "evaluate": [{"task": "tatoeba", "data": "tatoeba"}],
        "mlflow": "off",
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(tree))
    one = World(folder / "small.yaml", folder / "runs", folder / "data" / "pos", [], [])

    def run_here(trials: Mapping[grid.Trial, Any], storage: Path, *others: Any) -> dict[str, str]:
        for trial, notes in trials.items():
            one.ran.append(trial.name)
            grid._run_trial({"storage": str(storage), "what": {"trial": asdict(trial), "notes": asdict(notes)}})
            others[-1](grid.Ended(trial, "finished"))
        return {}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "_run", run_here)
        patch.setattr(grid.tune, "report", lambda _: None)
        patch.setattr(sweep_run, "fitting_trials", lambda *_: 1)
        patch.setattr(sweeps, "_connect", lambda sweep: one.connected.append(sweep.name))
        sweeps.run(str(one.file), one.output)
        shutil.copytree(one.folder, one.kept)
        yield one
    assert not ray.is_initialized()


def restore(world: World) -> None:
    shutil.rmtree(world.folder)
    shutil.copytree(world.kept, world.folder)


def reported(world: World) -> dict[str, str]:
    out = world.output / "report"
    studies.report([str(world.folder)], out)
    return {name: (out / name).read_text() for name in ("scores.csv", "comparison.csv")}


def replayed(world: World, folder: Path | None = None) -> Any:
    """What MLflow holds of a folder in an experiment of its own: parameters and numbers by run."""
    uri, name = f"sqlite:///{world.output / 'mlflow.db'}", f"walk {next(EXPERIMENTS)}"
    ids = replay(folder or world.folder, uri, name)
    runs = [MlflowClient(uri).get_run(run).data for run in ids]
    return [(run.params, run.metrics) for run in runs]


def tuned(world: World, resume: bool = False) -> dict[str, Any]:
    """Everything that a reader of the sweep goes by; two runs of a trial differ in their times only."""
    sweeps.run(str(world.file), world.output, resume=resume)
    files = hash_files(world.folder)
    shown = ("choices.json", "config.yaml", "sweep.json")
    return (
        {name: files[name] for name in files if name in shown or name.startswith("comparison") or "scores" in name}
        | {"states": [state | {"seconds": 0} for state in json.loads((world.folder / "trials.json").read_text())]}
        | {name: (world.folder / grid.TRIALS / name / "manifest.json").read_bytes() for name in world.trials}
    )


READ_BY_ALL: Mapping[str, Callable[[World], Any]] = {"report": reported, "track replay": replayed, "tune": tuned}


def test_a_finished_sweep_given_again_asks_for_no_cluster(world: World) -> None:
    first = (len(world.ran), len(world.connected))
    assert first == (2, 1)
    assert tuned(world) == tuned(world, resume=True)
    assert (len(world.ran), len(world.connected)) == first


def test_every_file_of_a_finished_sweep_and_of_a_trial(world: World, walk: Walk) -> None:
    right = {verb: do(world) for verb, do in READ_BY_ALL.items()}
    other = world.kept / grid.TRIALS / world.trials[1]
    alike = {
        "choice.json",
        "de.jsonl",
        "en.jsonl",
        "comparison.md",
        "comparison.html",
    }
    files = [file for file in files_of(world.kept) if other not in file.parents and file.name not in alike]
    for file in (file.relative_to(world.kept) for file in files):
        for damage in damaged(world.folder / file):
            for verb, do in READ_BY_ALL.items():
                walk.call(world.folder / file, damage, verb, partial(do, world), right[verb])
            restore(world)
    assert len(files) >= 11
    assert walk.counted["right"] >= 50
    assert walk.counted["told"] >= 60


def test_a_damaged_plan_is_not_resumed(world: World, walk: Walk) -> None:
    right = tuned(world, resume=True)
    for name in ("sweep.json", "config.yaml", "manifest.json", "choices.json"):
        for damage in damaged(world.folder / name):
            walk.call(world.folder / name, damage, "tune --resume", partial(tuned, world, resume=True), right)
            restore(world)
    assert walk.counted == {"right": 15, "told": 5}


def test_every_file_of_a_run_that_is_replayed(world: World, walk: Walk, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "one", scores={"tatoeba": [score()]})
    do = partial(replayed, world, run)
    right = do()
    for file in files_of(tmp_path):
        for damage in damaged(file):
            if (file.name, damage) not in ABSENT:
                walk.call(file, damage, "track replay", do, right)
    assert walk.counted == {"right": 4, "told": 20}


def test_a_report_given_again_writes_its_files_as_they_were(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", scores={"tatoeba": [score()]})
    studies.report([str(run)])
    whole = hash_files(run / "report")
    assert len(whole) == 6
    for damage in ("deleted", "halved"):
        for file in files_of(run / "report"):
            content = file.read_bytes()
            file.unlink()
            if (left := DAMAGES[damage](content)) is not None:
                file.write_bytes(left)
        studies.report([str(run)])
        assert hash_files(run / "report") == whole, damage
