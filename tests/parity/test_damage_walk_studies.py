"""Damages every file of a finished study, of its cells, of a replayed run and of a report; calls what reads it.

Cells run one after the other in this process, and Ray is not started.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from mlflow import MlflowClient

from tests.parity.cells_here import run_cells_here
from tests.parity.damage import DAMAGES, Walk, damaged, each_damaged, files_of
from tests.ray.tagging_world import write_encoder, write_tags
from tests.unit.results.run_folders import score, write_run
from xalign_ray.finetune.tune import MODEL
from xalign_ray.results.report import report
from xalign_ray.studies.cells import CELLS
from xalign_ray.studies.study import run_study
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.track.follower import replay
from xalign_ray.verbs.scores import evaluate
from xalign_ray.work.artifacts import hash_files

EXPERIMENTS = count()
ABSENT = {("scores.json", "deleted")}  # an evaluation that was never made


@dataclass(frozen=True)
class World:
    """A finished study of one encoder with two settings and an evaluation."""

    file: Path
    output: Path
    data: Path
    ran: list[str]  # cells that were run, by name
    connected: list[str]  # a word each time that a cluster was asked for

    @property
    def folder(self) -> Path:
        return self.output / "studies" / "small"

    @property
    def kept(self) -> Path:
        """A copy of the study as it was when it had finished."""
        return self.output / "kept"

    @property
    def tuned(self) -> list[str]:
        """The fine-tunings, that of the chosen setting first."""
        return sorted((path.name for path in (self.kept / CELLS).glob("pos-*")), key=self._is_not_chosen)

    def _is_not_chosen(self, name: str) -> bool:
        return not (self.kept / CELLS / name / MODEL).is_dir()


def write_pairs(folder: Path) -> None:
    lines = ["the cat sees", "the dog .", "cat dog", "sees the ."]
    folder.mkdir(parents=True)
    for side in ("de", "en"):
        (folder / f"tatoeba.de-en.{side}").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("studies")
    encoder = write_encoder(folder / "plain", xalign_objective="mlm")
    write_tags(folder / "data" / "pos", "en", "de")
    write_pairs(folder / "data" / "tatoeba")
    settings = {"num_train_epochs": 1, "train_batch_size": 8, "learning_rate": [1e-2, 1e-9]}
    tree = {
        "root": str(folder / "data"),
        "encoders": [{"model": encoder, "label": "mlm"}],
        "finetunings": [{"task": "pos", "data": "pos", "settings": settings}],
        "evaluations": [{"task": "tatoeba", "data": "tatoeba"}],
        "keep_models": True,
        "mlflow": "off",
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(tree))
    one = World(folder / "small.yaml", folder / "runs", folder / "data" / "pos", [], [])
    with pytest.MonkeyPatch.context() as patch:
        run_cells_here(patch, one.ran, one.connected)
        run_study(str(one.file), one.output)
        shutil.copytree(one.folder, one.kept)
        yield one
    assert not ray.is_initialized()


def restore(world: World) -> None:
    shutil.rmtree(world.folder)
    shutil.copytree(world.kept, world.folder)


def reported(world: World) -> dict[str, str]:
    out = world.output / "report"
    report([str(world.folder)], out)
    return {name: (out / name).read_text() for name in ("scores.csv", "comparison.csv")}


def replayed(world: World, folder: Path | None = None) -> Any:
    """What MLflow holds of a folder in an experiment of its own: parameters and numbers by run."""
    uri, name = f"sqlite:///{world.output / 'mlflow.db'}", f"walk {next(EXPERIMENTS)}"
    ids = replay(folder or world.folder, uri, name)
    runs = [MlflowClient(uri).get_run(run).data for run in ids]
    return [(run.params, run.metrics) for run in runs]


def studied(world: World) -> dict[str, Any]:
    """Everything that a reader of the study goes by; two runs of a cell differ in their times only."""
    run_study(str(world.file), world.output)
    files = hash_files(world.folder)
    cells = [cell | {"seconds": 0} for cell in json.loads((world.folder / "study.json").read_text())["cells"]]
    shown = {name: files[name] for name in files if name == "choices.json" or name.endswith(("scores.json", ".csv"))}
    manifests = {name: (world.folder / CELLS / name / "manifest.json").read_bytes() for name in world.tuned}
    return shown | {"cells": cells} | manifests


def evaluated(world: World) -> list[Score]:
    model = world.folder / CELLS / world.tuned[0] / MODEL
    evaluate(model, "pos", world.data, world.output / "scores")
    return read_scores(world.output / "scores" / "scores.json")


READ_BY_ALL: Mapping[str, Callable[[World], Any]] = {"report": reported, "track replay": replayed, "study": studied}


def test_a_finished_study_given_again_asks_for_no_cluster(world: World) -> None:
    first = (len(world.ran), len(world.connected))
    assert first == (3, 1)
    assert studied(world) == studied(world)
    assert (len(world.ran), len(world.connected)) == first


def test_every_file_of_a_finished_study_and_of_its_cells(world: World, walk: Walk) -> None:
    right = {verb: do(world) for verb, do in READ_BY_ALL.items()}
    other, report = world.kept / CELLS / world.tuned[1], world.kept / "report"
    files = [
        file
        for file in files_of(world.kept)
        if not {other, report}.intersection(file.parents) and MODEL not in file.parts and file.name != "choice.json"
    ]
    verbs = [*READ_BY_ALL]
    states = each_damaged(world.folder / file.relative_to(world.kept) for file in files)
    for number, (file, damage) in enumerate(states):  # by two of three verbs in turn
        for verb in (one for one in verbs if one != verbs[number % 3]):
            walk.call(file, damage, verb, partial(READ_BY_ALL[verb], world), right[verb])
        restore(world)
    assert len(files) >= 9
    assert walk.counted["right"] >= 30
    assert walk.counted["told"] >= 45


def test_every_file_of_the_model_of_a_fine_tuning(world: World, walk: Walk) -> None:
    right, folder = evaluated(world), world.folder / CELLS / world.tuned[0] / MODEL
    files = [file for file in files_of(folder) if file.name != "manifest.json"]
    for file in files:
        for damage in damaged(file):
            walk.call(file, damage, "evaluate", partial(evaluated, world), right)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in files}
    assert walk.counted == {"told": 5 * len(files)}


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
    report([str(run)])
    whole = hash_files(run / "report")
    assert len(whole) == 9
    for damage in ("deleted", "halved"):
        for file in files_of(run / "report"):
            content = file.read_bytes()
            file.unlink()
            if (left := DAMAGES[damage](content)) is not None:
                file.write_bytes(left)
        report([str(run)])
        assert hash_files(run / "report") == whole, damage


def test_changed_file_adds_cells_and_repeats_none(world: World, tmp_path: Path) -> None:
    output, file = tmp_path / "runs", tmp_path / "small.yaml"
    folder = shutil.copytree(world.kept, output / "studies" / "small")
    tree = yaml.safe_load(world.file.read_text())
    tree["finetunings"][0]["settings"]["learning_rate"] = [1e-2, 1e-3]
    file.write_text(yaml.safe_dump(tree))
    before = {path: path.stat().st_mtime_ns for path in folder.glob(f"{CELLS}/*/manifest.json")}
    already = len(world.ran)
    run_study(str(file), output)
    after = {path: path.stat().st_mtime_ns for path in folder.glob(f"{CELLS}/*/manifest.json")}
    assert {path: after[path] for path in before} == before
    assert len(after) == len(before) + 1 == 4
    assert len(world.ran) == already + 1
    cells = json.loads((folder / "study.json").read_text())["cells"]
    assert [cell["setting"]["learning_rate"] for cell in cells if cell["kind"] == "finetuning"] == [1e-2, 1e-3]
