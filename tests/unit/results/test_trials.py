"""Fine-tuned trials in a report: their scores belong to the run that their encoder came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.results.run_folders import (
    compare_folders,
    open_folders,
    report_on,
    score,
    write_run,
    write_study,
)
from xalign_ray.errors import DataError
from xalign_ray.results.compare import score_frame
from xalign_ray.results.run import columns_of
from xalign_ray.tasks.scores import Score, write_scores


def pos(seed: int, value: float, **fields: Any) -> Score:
    return score("pos_accuracy", value, task="pos", layer=None, pooling=None, seed=seed, **fields)


def trial(folder: Path, *scores: Score) -> Path:
    """What a fine-tuning leaves: scores, without a recipe."""
    write_scores(folder / "scores.json", scores)
    return folder


def test_trials_of_a_run_that_is_there_are_its_seeds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny-mlm-1", scores={"tatoeba": [score(run="tiny-mlm-1")]})
    trials = [trial(tmp_path / f"t{seed}", pos(seed, 0.5 + seed / 10, run="tiny-mlm-1")) for seed in (0, 1)]
    records = compare_folders([*trials, run]).records("task")
    found = {(record["label"], record["metric"]): record["values"] for record in records}
    assert found == {("tiny/mlm", "tatoeba_accuracy"): [0.5], ("tiny/mlm", "pos_accuracy"): [0.5, 0.6]}


def test_a_score_that_is_found_twice_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny-mlm-1", scores={"pos": [pos(0, 0.5, run="tiny-mlm-1")]})
    (one,) = open_folders([run, trial(tmp_path / "t0", pos(0, 0.5, run="tiny-mlm-1"))])
    assert len(score_frame([one])) == 1


def test_trials_whose_runs_were_not_given_take_their_recipe_from_beside_the_encoder(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"tiny-mlm-{seed}", seed=seed) for seed in (3, 4)]
    trials = [
        trial(tmp_path / f"t{number}", pos(0, 0.5, run=run.name, encoder=str(run / "export")))
        for number, run in enumerate(runs)
    ]
    assert [(run.label, run.seed) for run in open_folders(trials)] == [("tiny/mlm", 3), ("tiny/mlm", 4)]


def test_another_step_of_the_run_is_another_encoder(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny-mlm-1", scores={"tatoeba": [score(run="tiny-mlm-1", step=4)]})
    untrained = trial(tmp_path / "control", score(value=0.1, run="tiny-mlm-1", step=0))
    assert [one.label for one in open_folders([run, untrained])] == ["tiny/mlm", "tiny-mlm-1 at step 0"]


@pytest.mark.parametrize(
    ("encoder", "label"), [("org/other-encoder", "other-encoder"), ("/models/mine/export", "mine"), ("mine/", "mine")]
)
def test_trials_of_a_strangers_encoder_are_one_column_named_after_it(tmp_path: Path, encoder: str, label: str) -> None:
    trials = [
        trial(tmp_path / f"t{seed}", pos(seed, seed / 10, run=None, encoder=encoder, step=None)) for seed in (0, 1, 2)
    ]
    (record,) = compare_folders(trials).records("task")
    assert (record["label"], record["values"]) == (label, [0.0, 0.1, 0.2])


def means(folders: Sequence[Path]) -> dict[str, dict[str, float]]:
    """The mean of each metric over languages and seeds, by label."""
    comparison = compare_folders(folders)
    found: dict[str, dict[str, float]] = {label: {} for label in comparison.labels}
    for record in comparison.records("task"):
        found[record["label"]][record["metric"]] = record["mean"]
    return found


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two encoders of two seeds each, tuned with two settings on English and, mlm, on sentences; one of each counts."""
    cells: list[dict[str, Any]] = []
    for label, gain in (("mlm", 0.0), ("align", 0.2)):
        for seed in (0, 1):
            name = f"tiny-{label}-{seed}"
            run = write_run(tmp_path / name, seed=seed, scores={"of another study": [pos(0, 0.99, run=name)]})
            cells.append({"kind": "pretraining", "label": label, "folder": str(run)})
            found = [score(value=0.3 + gain + seed / 10, run=name)]
            cells.append({"kind": "evaluation", "label": label, "task": "tatoeba", "scores": found})
            for number, value in enumerate((0.5, 0.8)):
                tuned = [pos(0, value + gain, run=name, encoder=str(run / "export"))]
                own = {"name": f"{label}{seed}{number}", "scores": tuned, "chosen": number == (label == "align")}
                cells.append({"kind": "finetuning", "label": label, **own})
    sentences = [pos(0, 0.7, run="tiny-mlm-1", encoder="moved/export")]
    cells.append({"kind": "finetuning", "label": "mlm sentences", "name": "only", "scores": sentences})
    cells.append({"kind": "finetuning", "label": "align", "state": "failed", "reason": "out of memory"})
    return write_study(tmp_path / "studies/s", cells)


def test_of_a_study_only_its_own_cells_and_the_chosen_settings_count(study: Path) -> None:
    assert means([study]) == {
        "mlm": {"tatoeba_accuracy": pytest.approx(0.35), "pos_accuracy": pytest.approx(0.5)},
        "align": {"tatoeba_accuracy": pytest.approx(0.55), "pos_accuracy": pytest.approx(1.0)},
        "mlm sentences": {"pos_accuracy": pytest.approx(0.7)},
    }
    columns = columns_of(open_folders([study])).values()
    assert [[run.seed for run in runs] for runs in columns] == [[0, 1], [0, 1], [1]]
    seeds = {one["label"]: one["difference_seeds"] for one in compare_folders([study]).records("task")}
    assert seeds == {"mlm": None, "align": 2, "mlm sentences": 1}  # paired, in a column of its own too


def test_an_encoder_that_a_study_was_given_stands_where_it_lists_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny-mlm-0", seed=0)
    given = score(value=0.2, run=None, encoder="org/base", seed=None, step=None)
    cells: list[dict[str, Any]] = [
        {"kind": "evaluation", "label": "base", "scores": [given]},
        {"kind": "pretraining", "label": "mlm", "folder": str(run)},
        {"kind": "evaluation", "label": "mlm", "scores": [score(value=0.9, run=run.name)]},
    ]
    comparison = compare_folders([write_study(tmp_path / "studies/s", cells)])
    assert (comparison.labels, comparison.baseline) == (("base", "mlm"), "base")


def test_the_page_of_a_study_names_it_and_what_has_not_ended(study: Path, tmp_path: Path) -> None:
    page = report_on([study], tmp_path / "report").read_text(encoding="utf-8")
    for said in ("<h1>s</h1>", "Why.", "1 of 18 cells of s have not ended: ", "(out of memory)."):
        assert said in page


def test_two_studies_stand_beside_each_other(study: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "other", seed=5)
    cells: list[dict[str, Any]] = [{"kind": "pretraining", "label": "mlm", "folder": str(run)}]
    cells.append({"kind": "evaluation", "label": "mlm", "scores": [score(value=0.9, run="other")]})
    other = write_study(tmp_path / "studies/t", cells)
    comparison = compare_folders([study, other, run])
    assert comparison.labels == ("mlm (s)", "align", "mlm sentences", "mlm (t)", "tiny/mlm")
    assert comparison.baseline == "mlm (s)"
    assert compare_folders([run, study, other]).baseline == "mlm (s)"


def test_of_a_study_that_is_going_on_settings_count_once_one_is_chosen(study: Path, tmp_path: Path) -> None:
    told = json.loads((study / "study.json").read_text())
    for cell in told["cells"]:
        if cell["kind"] == "finetuning" and cell["label"] == "mlm":
            cell["chosen"] = None
    (study / "study.json").write_text(json.dumps(told))
    seeds = {label: {s.seed for s in runs} for label, runs in columns_of(open_folders([study])).items()}
    assert seeds["mlm"] == {0, 1}
    assert means([study]) == {
        "mlm": {"tatoeba_accuracy": pytest.approx(0.35)},
        "align": {"tatoeba_accuracy": pytest.approx(0.55), "pos_accuracy": pytest.approx(1.0)},
        "mlm sentences": {"pos_accuracy": pytest.approx(0.7)},
    }
    page = report_on([study], tmp_path / "report").read_text(encoding="utf-8")
    assert "Without 4 fine-tunings of s: no setting has been chosen yet." in page


OLD = {"name": "x", "kind": "finetuning", "label": "a", "folder": "cells/x", "state": "finished"}  # not chosen, perhaps


@pytest.mark.parametrize("text", ["{", "{}", json.dumps({"name": "s", "baseline": "", "labels": [], "cells": [OLD]})])
def test_a_damaged_study_is_refused(study: Path, text: str) -> None:
    (study / "study.json").write_text(text, encoding="utf-8")
    with pytest.raises(
        DataError, match=f"{study / 'study.json'} is damaged: .* Give the `xalign study` or `xalign tune` that"
    ):
        open_folders([study])
