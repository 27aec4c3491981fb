"""MLflow's headline of a run equals the number in the run's report: both average by one rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.results.run_folders import compare_folders, score, write_run
from xalign_ray.results.aggregate import KEY
from xalign_ray.tasks.scores import Score, average_languages
from xalign_ray.track.headlines import headline_scores
from xalign_ray.work.artifacts import read_records
from xalign_ray.work.run_folder import RunFolder


def seed_scores(seed: int, values: dict[str, float], **fields: Any) -> list[Score]:
    """What one fine-tuning writes: a score a language and their mean."""
    known: dict[str, Any] = {"layer": None, "pooling": None, "seed": seed} | fields
    scores = [score("pos_accuracy", value, language=code, **known) for code, value in values.items()]
    return scores + average_languages(scores)


CASES: dict[str, list[Score]] = {
    "one seed": seed_scores(0, {"de": 0.5, "fr": 0.7}),
    "a seed lacks a language": [*seed_scores(0, {"de": 0.6, "fr": 0.7}), *seed_scores(1, {"de": 0.8})],
    "seeds of other languages": [*seed_scores(0, {"de": 0.6, "fr": 0.7}), *seed_scores(1, {"hi": 0.2, "fr": 0.3})],
    "two steps": [*seed_scores(0, {"de": 0.1, "fr": 0.3}, step=2), *seed_scores(0, {"de": 0.5, "fr": 0.7}, step=4)],
    "newest step first": [*seed_scores(0, {"de": 0.5}, step=4), *seed_scores(0, {"de": 0.1}, step=2)],
    "a development set first": [*seed_scores(0, {"de": 0.9}, split="dev"), *seed_scores(0, {"de": 0.5}, split="test")],
    "two poolings": [*seed_scores(0, {"de": 0.5}, pooling="mean"), *seed_scores(0, {"de": 0.9}, pooling="cls")],
    "sizes that differ": [*seed_scores(0, {"de": 0.5, "fr": 0.2}, n=9), *seed_scores(1, {"de": 0.7, "fr": 0.2}, n=8)],
    "means alone": [score("pos_accuracy", value, seed=seed) for seed, value in enumerate((0.2, 0.5))],
}


@pytest.mark.parametrize("case", CASES)
def test_headline_of_mlflow_is_the_number_of_the_report(case: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", scores={"pos": CASES[case]})
    records = [record for path in RunFolder(folder).score_files for record in read_records(path)]
    shown = {key: value for key, (value, _) in headline_scores(records, 100).items()}
    comparison = compare_folders([folder])
    mean, *_ = comparison.records("task")
    assert shown["pos_accuracy"] == mean["mean"]
    first = [one for one in comparison.records("language") if all(one[part] == mean[part] for part in KEY)]
    assert {key for key in shown if key != "pos_accuracy"} == {f"pos_accuracy_{record['group']}" for record in first}
    assert all(shown[f"pos_accuracy_{record['group']}"] == record["mean"] for record in first)


def test_a_mean_is_over_the_languages_that_all_seeds_have(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", scores={"pos": CASES["a seed lacks a language"]})
    records = [record for path in RunFolder(folder).score_files for record in read_records(path)]
    # Not 72.5, the mean of 65 over two languages and 80 over one.
    assert headline_scores(records, 100)["pos_accuracy"] == (pytest.approx(0.7), 4)
