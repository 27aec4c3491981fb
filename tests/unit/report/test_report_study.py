"""A study: read and checked before anything runs, planned seed by seed, finished cells left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.report.run_folders import score
from xalign_ray.artifacts import write_manifest
from xalign_ray.errors import ConfigError
from xalign_ray.report.study import Cell, StudyConfig, load_study, plan_cells, run_study
from xalign_ray.tasks.scores import write_scores

STUDY = """
cells:
  - {recipe: tiny/mlm}
  - {recipe: tiny/align-mlm, settings: [objectives.1.shuffled=true], label: shuffled}
seeds: [0, 1]
evaluate:
  - {task: tatoeba, data: [tatoeba]}
  - {task: pos, data: [pos], options: {num_train_epochs: 2}, name: pos-zero-shot}
baseline: tiny/mlm
"""


@pytest.fixture
def study(tmp_path: Path) -> StudyConfig:
    path = tmp_path / "small.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return load_study(str(path))


def finish(folder: Path, *evaluations: str, manifest: bool = True) -> None:
    for name in evaluations:
        write_scores(folder / "evaluation" / name / "scores.json", [score()])
    if manifest:
        write_manifest(folder, {"recipe": "tiny/mlm", "fingerprint": "f", "steps": 4})


class Runner:
    """Finishes a cell in a folder of its own, and remembers which it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, int]] = []

    def find(self, cell: Cell) -> Path:
        return self.folder / f"{cell.label.replace('/', '-')}-{cell.seed}"

    def run(self, cell: Cell) -> Path:
        self.asked.append((cell.label, cell.seed))
        finish(self.find(cell), "tatoeba", "pos-zero-shot")
        return self.find(cell)


def test_a_study_is_planned_seed_by_seed_with_the_seed_as_a_setting(study: StudyConfig) -> None:
    assert study.name == "small"
    assert [(cell.label, cell.recipe, cell.settings) for cell in plan_cells(study)] == [
        ("tiny/mlm", "tiny/mlm", ("seed=0",)),
        ("shuffled", "tiny/align-mlm", ("objectives.1.shuffled=true", "seed=0")),
        ("tiny/mlm", "tiny/mlm", ("seed=1",)),
        ("shuffled", "tiny/align-mlm", ("objectives.1.shuffled=true", "seed=1")),
    ]


def test_every_cell_is_run_once_and_none_the_second_time(study: StudyConfig, tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    folders = run_study(study, runner.run, runner.find)
    assert runner.asked == [("tiny/mlm", 0), ("shuffled", 0), ("tiny/mlm", 1), ("shuffled", 1)]
    assert run_study(study, runner.run, runner.find) == folders
    assert len(runner.asked) == 4


@pytest.mark.parametrize(
    ("evaluations", "manifest"), [(("tatoeba", "pos-zero-shot"), False), (("tatoeba", "pos"), True), ((), True)]
)
def test_a_cell_without_manifest_or_with_a_score_missing_is_run_again(
    study: StudyConfig, tmp_path: Path, evaluations: tuple[str, ...], manifest: bool
) -> None:
    runner = Runner(tmp_path)
    for cell in plan_cells(study)[1:]:
        finish(runner.find(cell), "tatoeba", "pos-zero-shot")
    finish(runner.find(plan_cells(study)[0]), *evaluations, manifest=manifest)
    run_study(study, runner.run, runner.find)
    assert runner.asked == [("tiny/mlm", 0)]


def test_a_cell_whose_folder_is_not_known_yet_is_run(study: StudyConfig, tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    run_study(study, runner.run, lambda _: None)
    assert len(runner.asked) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cels: []", r"unknown key 'cels'. Did you mean 'cells'\?"),
        ("cells: []", r"'cells' is \[\]"),
        ("cells: [{recipe: a, setings: [x=1]}]", r"unknown key 'cells.0.setings'. Did you mean 'cells.0.settings'\?"),
        ("cells: [{recipe: a}, {recipe: a}]", "cells has a twice; remove one or give it a label"),
        ("cells: [{recipe: a}]\nseeds: [1, 1]", "seeds has 1 twice; remove one or give it another seed"),
        ("cells: [{recipe: a}]\nevaluate: [{task: pos}, {task: pos}]", "evaluate has pos twice; .* give it a name"),
        ("cells: [{recipe: abc}]\nbaseline: abd", r"baseline 'abd' is no label of a cell. Did you mean 'abc'\?"),
        ("- a", "must be a mapping of keys to values; it is a list"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_study_that_cannot_be_meant_is_refused_in_words(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"{path}.*{message}"):
        load_study(str(path))


def test_a_study_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="There is no study 'no-such', neither a file nor a name in the package"):
        load_study("no-such")
