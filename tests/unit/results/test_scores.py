"""Scores in a report: what counts as chance, how seeds become a mean, how gaps are paired."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.results.run_folders import compare_folders, entries, score, write_run
from xalign_ray.results.compare import Record, guess_variance, is_at_chance
from xalign_ray.results.tables import Entry, Table, percent, score_table
from xalign_ray.tasks.scores import Score


# sqrt(0.5 * 0.5 / 100) = 0.05; sqrt(0.02 * 0.98 / 49) = 0.02; with chance 0 the error is 0.
@pytest.mark.parametrize(
    ("value", "chance", "n", "expected"),
    [
        (0.60, 0.5, 100, True),
        (0.61, 0.5, 100, False),
        (0.59, 0.5, 100, True),
        (0.59, 0.5, 400, False),
        (0.40, 0.5, 100, True),
        (0.06, 0.02, 49, True),
        (0.0601, 0.02, 49, False),
        (0.0, 0.0, 10, True),
        (0.1, 0.0, 10, False),
        (1.0, 1.0, 10, True),
    ],
)
def test_a_score_is_at_chance_up_to_two_binomial_standard_errors_above_it(
    value: float, chance: float, n: int, expected: bool
) -> None:
    assert bool(is_at_chance(value, chance, guess_variance(chance, n))) is expected


def runs_with(tmp_path: Path, values: dict[str, list[float]], **fields: object) -> list[Path]:
    """A run a recipe and value; the seed is the value's place."""
    return [
        write_run(
            tmp_path / f"{recipe.replace('/', '-')}-{seed}",
            recipe,
            seed=seed,
            scores={"tatoeba": [score(value=value, seed=seed, **fields)]},
        )
        for recipe, several in values.items()
        for seed, value in enumerate(several)
    ]


def table_of(runs: list[Path], by: str = "task") -> Table:
    return score_table(compare_folders(runs), by)


def gaps_of(runs: list[Path]) -> list[Record]:
    """What is compared with tiny/mlm."""
    records = compare_folders(runs).records("task")
    return [record for record in records if record["difference"] is not None]


def only_row(runs: list[Path]) -> tuple[Entry, ...]:
    (row,) = table_of(runs).rows
    return row


def test_seeds_of_one_recipe_are_one_column_with_mean_and_sample_deviation(tmp_path: Path) -> None:
    runs = runs_with(tmp_path, {"tiny/mlm": [0.1, 0.2, 0.6]})
    (cell,) = compare_folders(runs).records("task")
    assert cell["values"] == [0.1, 0.2, 0.6]
    assert cell["mean"] == pytest.approx(0.3)
    assert cell["standard_deviation"] == pytest.approx(0.07**0.5)  # (0.04 + 0.01 + 0.09) / 2
    assert only_row(runs)[1:] == entries("30.0 \u00b1 26.5", "0.2", "1,000", "3")


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    assert only_row(runs_with(tmp_path, {"tiny/mlm": [0.25]}))[1] == Entry("25.0")


def test_more_seeds_do_not_make_a_guess_more_than_a_guess(tmp_path: Path) -> None:
    # 0.006 <= 0.002 + 2 * sqrt(0.002 * 0.998 / 1000) = 0.0048 is false, 0.0045 is true, whatever the number of seeds.
    rows = [only_row(runs_with(tmp_path / str(value), {"tiny/mlm": [value] * 9}))[1] for value in (0.006, 0.0045)]
    assert rows == [Entry("0.6 \u00b1 0.0"), Entry("0.4 \u00b1 0.0", "at chance", "quiet")]


def test_a_number_without_chance_is_never_at_chance_and_is_no_percent(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", scores={"alignment": [score("mean_cosine_random", 0.123, chance=None, pooling=None)]}
    )
    assert only_row([run])[1:3] == entries("0.12", "-")


def test_what_rounds_to_zero_has_no_sign() -> None:
    assert [percent("mean_cosine_random", value) for value in (-0.004, 0.004, -0.005001)] == ["0.00", "0.00", "-0.01"]
    assert percent("tatoeba_accuracy", -0.0004) == "0.0"


def test_the_headline_leaves_single_layers_and_languages_out(tmp_path: Path) -> None:
    records = [
        score(value=0.3),
        score(value=0.9, layer=2),
        score(value=0.2, language="de", n=500),
        score(value=0.4, language="en", n=500),
    ]
    run = write_run(tmp_path / "run", scores={"tatoeba": records})
    row = only_row([run])
    assert row[0] == Entry("Sentence retrieval (Tatoeba)", "tatoeba_accuracy")
    assert row[1:] == entries("30.0", "0.2", Entry("1,000", "2 languages, with en"), "1")
    assert table_of([run], "language").rows == (
        (row[0],),
        entries("de", "20.0", "0.2", "500", "1"),
        entries("en", "40.0", "0.2", "500", "1"),
    )


def test_one_metric_on_two_splits_is_two_rows_that_name_the_split(tmp_path: Path) -> None:
    records = [score(value=0.3, split="pud"), score(value=0.4, split="dev")]
    table = table_of([write_run(tmp_path / "run", scores={"tatoeba": records})])
    assert [(row[0], row[1]) for row in table.rows] == [
        (Entry("Sentence retrieval (dev)", "tatoeba_accuracy"), Entry("40.0")),
        (Entry("Sentence retrieval (pud)", "tatoeba_accuracy"), Entry("30.0")),
    ]


def test_of_several_steps_the_newest_counts(tmp_path: Path) -> None:
    records = [score(value=0.9, step=100), score(value=0.3, step=200)]
    assert only_row([write_run(tmp_path / "run", scores={"tatoeba": records})])[1] == Entry("30.0")


def pos(seed: int, value: float) -> Score:
    return score("pos_accuracy", value, task="pos", layer=None, pooling=None, seed=seed)


def test_fine_tuning_seeds_are_seeds_where_one_pretraining_was_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", scores={"pos": [pos(0, 0.5)], "pos-1": [pos(1, 0.7)]})
    row = only_row([run])
    assert (row[1], row[-1]) == entries("60.0 \u00b1 14.1", "2")


def test_fine_tuning_seeds_are_averaged_before_pretraining_seeds_are(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", seed=0, scores={"pos": [pos(0, 0.5)], "pos-1": [pos(1, 0.7)]})
    second = write_run(tmp_path / "b", seed=1, scores={"pos": [pos(0, 0.8)]})
    row = only_row([first, second])
    assert (row[1], row[-1]) == entries("70.0 \u00b1 14.1", "2")


def test_gaps_compare_a_seed_with_the_same_seed_of_the_baseline(tmp_path: Path) -> None:
    runs = runs_with(tmp_path, {"tiny/mlm": [0.1, 0.3], "tiny/align-mlm": [0.2, 0.25, 0.9]})
    (gap,) = gaps_of(runs)
    assert (gap["difference"], gap["difference_seeds"]) == (pytest.approx(0.025), 2)


def test_seeds_are_paired_by_their_number_not_by_their_place(tmp_path: Path) -> None:
    values = {"tiny/mlm": {0: 0.1, 1: 0.3, 2: 0.35}, "tiny/align-mlm": {2: 0.4, 1: 0.9, 5: 0.8}}
    runs = [
        write_run(tmp_path / f"{recipe[5:]}-{seed}", recipe, seed=seed, scores={"tatoeba": [score(value=value)]})
        for recipe, by_seed in values.items()
        for seed, value in by_seed.items()
    ]
    (gap,) = gaps_of(runs)
    assert (gap["difference"], gap["difference_seeds"]) == (pytest.approx(0.325), 2)


def test_without_a_seed_in_common_the_gap_is_that_of_the_means(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"{recipe[5:]}-{seed}", recipe, seed=seed, scores={"tatoeba": [score(value=value)]})
        for recipe, seed, value in (("tiny/mlm", 0, 0.1), ("tiny/mlm", 1, 0.3), ("tiny/align-mlm", 7, 0.5))
    ]
    (gap,) = gaps_of(runs)
    assert (gap["difference"], gap["difference_seeds"]) == (pytest.approx(0.3), 0)


def test_gaps_are_not_made_of_numbers_without_chance(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, recipe, scores={"alignment": [score("mean_cosine_random", 0.1, chance=None)]})
        for name, recipe in (("a", "tiny/mlm"), ("b", "tiny/align-mlm"))
    ]
    assert gaps_of(runs) == []
