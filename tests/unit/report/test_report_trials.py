"""Fine-tuned trials in a report: their scores belong to the run that their encoder came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.report.run_folders import open_folders, score, write_run
from xalign_ray.artifacts import write_json
from xalign_ray.errors import DataError
from xalign_ray.report.build import open_columns
from xalign_ray.report.numbers import measure
from xalign_ray.report.sources import find_runs
from xalign_ray.tasks.scores import Score, write_scores


def pos(seed: int, value: float, **fields: Any) -> Score:
    return score("pos_accuracy", value, task="pos", layer=None, pooling=None, seed=seed, **fields)


def trial(folder: Path, *scores: Score) -> Path:
    """What a sweep leaves: scores, without a recipe."""
    write_scores(folder / "scores.json", scores)
    return folder


def test_trials_of_a_run_that_is_there_are_its_seeds(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny-mlm-1", scores={"tatoeba": [score(run="tiny-mlm-1")]})
    trials = [trial(tmp_path / f"t{seed}", pos(seed, 0.5 + seed / 10, run="tiny-mlm-1")) for seed in (0, 1)]
    (column,) = open_folders([*trials, run])
    found = {key.metric: cell.values for key, cell in measure(column).items()}
    assert column.label == "tiny/mlm"
    assert found == {"tatoeba_accuracy": {0: 0.5}, "pos_accuracy": {0: 0.5, 1: 0.6}}


def test_a_score_that_is_found_twice_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny-mlm-1", scores={"pos": [pos(0, 0.5, run="tiny-mlm-1")]})
    (column,) = open_folders([run, trial(tmp_path / "t0", pos(0, 0.5, run="tiny-mlm-1"))])
    assert len(column.runs[0].scores) == 1


def test_trials_whose_runs_were_not_given_take_their_recipe_from_beside_the_encoder(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"tiny-mlm-{seed}", seed=seed) for seed in (3, 4)]
    trials = [
        trial(tmp_path / f"t{number}", pos(0, 0.5, run=run.name, encoder=str(run / "export")))
        for number, run in enumerate(runs)
    ]
    (column,) = open_folders(trials)
    assert (column.label, [run.seed for run in column.runs]) == ("tiny/mlm", [3, 4])


def test_another_step_of_the_run_is_another_encoder(tmp_path: Path) -> None:
    run = write_run(tmp_path / "tiny-mlm-1", scores={"tatoeba": [score(run="tiny-mlm-1", step=4)]})
    untrained = trial(tmp_path / "control", score(value=0.1, run="tiny-mlm-1", step=0))
    assert [column.label for column in open_folders([run, untrained])] == ["tiny/mlm", "tiny-mlm-1 at step 0"]


@pytest.mark.parametrize(
    ("encoder", "label"), [("org/other-encoder", "other-encoder"), ("/models/mine/export", "mine"), ("mine/", "mine")]
)
def test_trials_of_a_strangers_encoder_are_one_column_named_after_it(tmp_path: Path, encoder: str, label: str) -> None:
    trials = [
        trial(tmp_path / f"t{seed}", pos(seed, seed / 10, run=None, encoder=encoder, step=None)) for seed in (0, 1, 2)
    ]
    (column,) = open_folders(trials)
    (cell,) = measure(column).values()
    assert (column.label, cell.values) == (label, {0: 0.0, 1: 0.1, 2: 0.2})


def sweep(folder: Path, values: dict[str, tuple[str, float, bool]]) -> Path:
    """A sweep's folder: trials by name with their kind of training, score, and whether they were chosen."""
    choices = []
    for name, (training, value, chosen) in values.items():
        trial(folder / "trials" / name, pos(0, value, run="tiny-mlm-1"))
        one = {"setting": {}, "development": {"0": 0.5}, "trials": {"0": name}}
        choices.append({"training": training, "candidates": [one], "chosen": one if chosen else None})
    write_json(folder / "choices.json", choices)
    write_scores(
        folder / "beside" / "mlm" / "evaluation" / "tatoeba" / "scores.json", [score(run="tiny-mlm-1", seed=0)]
    )
    (folder / "beside" / "mlm" / "events.jsonl").write_text("")
    return folder


def test_of_a_sweep_only_the_chosen_trials_count_and_each_training_stands_for_itself(tmp_path: Path) -> None:
    values = {"a": ("english", 0.5, True), "b": ("english", 0.9, False), "c": ("sentences", 0.7, True)}
    columns = open_columns(find_runs([str(sweep(tmp_path / "sweep", values))], "sqlite"))
    found = {column.label: {key.metric: cell.mean for key, cell in measure(column).items()} for column in columns}
    assert found == {
        "tiny-mlm-1 at step 4": {"pos_accuracy": 0.5, "tatoeba_accuracy": 0.5},
        "tiny-mlm-1, sentences at step 4": {"pos_accuracy": 0.7},
    }


@pytest.mark.parametrize("text", ["{", "[{}]", '{"a": 1}'])
def test_damaged_choices_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "choices.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"{path} holds no choices of a sweep .*; resume the sweep to write it"):
        find_runs([str(tmp_path)], "sqlite")
