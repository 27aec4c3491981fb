"""Columns of a comparison: which runs belong together, what they are called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.unit.results.run_folders import open_folders, score, write_run
from xalign_ray.results.run import Run, columns_of, label_runs, read_run
from xalign_ray.results.tables import data_tables
from xalign_ray.tasks.scores import write_scores


def sizes(runs: Sequence[Run]) -> dict[str, int]:
    """How many runs each label has."""
    return {label: len(own) for label, own in columns_of(runs).items()}


def test_a_setting_of_ones_own_makes_a_column_that_names_it(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "plain", "tiny/align-mlm")
    control = write_run(tmp_path / "control", "tiny/align-mlm", ["objectives.1.shuffled=true"], seed=1)
    assert list(columns_of(open_folders([control, plain]))) == [
        "tiny/align-mlm (shuffled=True)",
        "tiny/align-mlm",
    ]


def test_workers_zero_stage_and_paths_make_no_column(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", seed=0)
    other = write_run(
        tmp_path / "other",
        seed=1,
        settings=["parallel.workers=4", "parallel.zero_stage=3", "output=elsewhere", "train.per_device_batch_size=8"],
    )
    assert [(run.label, run.seed) for run in open_folders([one, other])] == [("tiny/mlm", 0), ("tiny/mlm", 1)]


def test_a_repetition_of_one_seed_is_not_a_second_seed(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, seed=7) for name in ("first", "again")]
    assert [run.label for run in open_folders(runs)] == ["tiny/mlm (first)", "tiny/mlm (again)"]


def test_given_labels_group_runs_and_name_columns(tmp_path: Path) -> None:
    runs = [
        replace(read_run(write_run(tmp_path / name, seed=seed)), label=label)
        for seed, (name, label) in enumerate(zip("abc", "xyx", strict=True))
    ]
    assert sizes(label_runs(runs)) == {"x": 2, "y": 1}


def test_a_strangers_encoder_is_a_column_named_after_it(tmp_path: Path) -> None:
    write_scores(tmp_path / "scores.json", [score(run=None, encoder="org/other-encoder", seed=None)])
    (run,) = open_folders([tmp_path])
    assert (run.label, run.finished) == ("other-encoder", True)


def continued(folder: Path, base: str, seed: int, recipe: str = "tiny/ppa") -> Path:
    """A run that began from another run's export, as `pretrain` resolves its recipe: paths in place of run:NAME."""
    start = f"{folder.parent}/{base}/export"
    settings = [f"model.init_from={start}", f"data.tokenizer={{kind: folder, path: {start}}}"]
    given = [] if base.startswith("tiny-mlm") else ["model.init_from=run:tiny/align-mlm"]
    return write_run(folder, recipe, settings, seed, given=given)


def test_seeds_that_continue_one_recipes_runs_are_one_column(tmp_path: Path) -> None:
    runs = [continued(tmp_path / f"ppa{seed}", f"tiny-mlm-6f107dc{seed}", seed) for seed in (0, 1)]
    other = continued(tmp_path / "other", "tiny-align-mlm-6f107dc2", 0)
    assert sizes(open_folders([*runs, other])) == {"tiny/ppa": 2, "tiny/ppa (init_from=run:tiny/align-mlm)": 1}


def test_data_without_dictionaries_have_no_column_of_what_dictionaries_know(tmp_path: Path) -> None:
    (run,) = open_folders([write_run(tmp_path / "run")])
    (known,) = data_tables([run])
    assert known.header[-1] == "words in the dictionaries"
    (bare,) = data_tables([replace(run, data={**(run.data or {}), "dictionary": {}})])
    assert bare.header[-1] == "tokens"
    assert [row[:-1] for row in known.rows] == [*bare.rows]
