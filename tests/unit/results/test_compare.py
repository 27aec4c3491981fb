"""A comparison as a pure function of scores: means over languages and seeds, differences, and their files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.unit.results.run_folders import compare_folders, entries, score, write_run
from xalign_ray.errors import ConfigError
from xalign_ray.results.compare import (
    Comparison,
    Record,
    compare_scores,
    compare_with_beginning,
    known_groupings,
    score_frame,
)
from xalign_ray.results.difference import differences_from
from xalign_ray.results.page import write_tables
from xalign_ray.results.run import Log, Run
from xalign_ray.results.tables import Entry, decided_table, forgetting_table, plain_grid, score_table, terminal_table
from xalign_ray.tasks.scores import Score

Values = Mapping[str, float]


def scores(values: Values, run: str = "a", seed: int = 0, **fields: Any) -> list[Score]:
    """A score a language, chance 0.1 on 100 things each."""
    known: dict[str, Any] = {"run": run, "seed": seed, "chance": 0.1, "n": 100} | fields
    return [score(value=value, language=language, **known) for language, value in values.items()]


def compare(
    by_label: Mapping[str, Sequence[Score]],
    baseline: str | None,
    by: Sequence[str],
    seeds: Mapping[str, int] | None = None,
) -> Comparison:
    """Scores by label; `seeds` are those of pretraining by a run's name, where they are known."""
    runs = [
        Run(
            Path(name),
            {"seed": (seeds or {}).get(name)},
            Log(),
            tuple(one for one in own if one.run == name),
            label=label,
        )
        for label, own in by_label.items()
        for name in dict.fromkeys(str(one.run) for one in own)
    ]
    known = known_groupings(runs, {})
    return compare_scores(score_frame(runs), list(by_label), baseline, {name: known[name] for name in by})


def cells(comparison: Comparison, by: str, label: str) -> dict[str, Record]:
    return {record["group"]: record for record in comparison.records(by) if record["label"] == label}


def written(comparison: Comparison, folder: Path) -> tuple[list[dict[str, str]], str]:
    """The records of comparison.csv and the text of comparison.md."""
    write_tables(comparison, folder)
    with (folder / "comparison.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file)), (folder / "comparison.md").read_text(encoding="utf-8")


def test_a_group_is_the_mean_of_its_languages_and_the_difference_that_of_the_same_ones() -> None:
    given = {
        "base": scores({"de": 0.2, "nl": 0.4, "fr": 0.6, "hi": 0.3}),
        "new": scores({"de": 0.5, "nl": 0.5, "fr": 0.7}),
    }
    found = compare(given, None, ["task", "family"])
    assert cells(found, "task", "base")["all languages"]["mean"] == pytest.approx(0.375)
    new = cells(found, "task", "new")["all languages"]
    assert new["mean"] == pytest.approx(1.7 / 3)
    assert (new["languages"], new["n"], new["chance"]) == ("de fr nl", 300, pytest.approx(0.1))
    assert new["difference"] == pytest.approx((0.3 + 0.1 + 0.1) / 3)  # not 1.7 / 3 - 0.375: hi is left out
    assert (new["difference_languages"], new["difference_seeds"]) == (3, 1)
    # Two families, Germanic and Romance: one degree of freedom.
    error = (new["high_95"] - new["low_95"]) / 2 / 12.7062
    assert error > 1 / 15 * 0.7
    assert new["undecided"] == "one training run"
    germanic = cells(found, "family", "new")["Germanic"]
    assert germanic["difference"] == pytest.approx(0.2)
    assert (germanic["low_95"], germanic["high_95"]) == (None, None)
    assert "Indo-Aryan" not in cells(found, "family", "new")
    note = score_table(found, "task").note
    assert "Not every score of a row is a mean over the same languages; differences are over common ones." in note


def test_every_metric_is_compared_whatever_its_name_and_cosines_are_not() -> None:
    given = {
        label: [*scores({"de": value}, metric="pos_accuracy", layer=None), *scores({"de": value}, metric="pair_cosine")]
        for label, value in (("base", 0.5), ("new", 0.75))
    }
    records = compare(given, "base", ["task"]).records("task")
    found = {record["metric"]: record["difference"] for record in records if record["label"] == "new"}
    assert found == {"pair_cosine": None, "pos_accuracy": pytest.approx(0.25)}


def test_fine_tuning_seeds_of_one_encoder_are_replicates_and_of_several_encoders_averaged() -> None:
    one = {"base": [row for seed, value in enumerate((0.2, 0.4)) for row in scores({"de": value}, "a", seed)]}
    assert cells(compare(one, None, ["task"]), "task", "base")["all languages"]["values"] == [0.2, 0.4]
    several = {"base": [*one["base"], *scores({"de": 0.9}, "b", 0)]}
    found = cells(compare(several, None, ["task"]), "task", "base")["all languages"]
    assert found["values"] == pytest.approx([0.3, 0.9])
    given = several | {"new": scores({"de": 0.6}, "c", 0)}
    known = cells(compare(given, None, ["task"], {"a": 8, "b": 7, "c": 8}), "task", "new")["all languages"]
    assert (known["difference"], known["difference_seeds"]) == (pytest.approx(0.3), 1)


def test_pretraining_seeds_are_paired_though_nobody_tells_them() -> None:
    given = {
        "base": [*scores({"de": 0.1}, "m0", 0), *scores({"de": 0.3}, "m1", 1)],
        "new": [*scores({"de": 0.6}, "a1", 1), *scores({"de": 0.9}, "a2", 2)],
    }
    difference = cells(compare(given, None, ["task"]), "task", "new")["all languages"]
    assert (difference["difference"], difference["difference_seeds"]) == (pytest.approx(0.3), 1)


def test_a_pretraining_seed_is_no_fine_tuning_seed_of_the_same_number() -> None:
    tuned = [row for seed in (0, 1, 2) for row in scores({"de": 0.2 + seed / 10}, "hub", seed, metric="pos_accuracy")]
    own = [row for seed in (0, 1, 2) for row in scores({"de": 0.3 + seed / 10}, f"r{seed}", 0, metric="pos_accuracy")]
    found = compare({"base": tuned, "new": own}, None, ["task"], {f"r{seed}": seed for seed in (0, 1, 2)})
    cell = cells(found, "task", "new")["all languages"]
    assert (cell["difference"], cell["difference_seeds"]) == (pytest.approx(0.1), 0)
    assert cell["low_95"] < 0 < cell["high_95"]  # paired by number it would be [10.0, 10.0]
    several = [row for seed in (0, 1, 2) for row in scores({"de": 0.5}, "r0", seed, metric="pos_accuracy")]
    found = compare({"base": own, "new": several}, None, ["task"], {f"r{seed}": seed for seed in (0, 1, 2)})
    assert cells(found, "task", "new")["all languages"]["difference_seeds"] == 0
    found = compare({"base": tuned, "new": several}, None, ["task"], {"r0": 0})
    assert cells(found, "task", "new")["all languages"]["difference_seeds"] == 3  # both are fine-tuning seeds


def test_seeds_are_in_the_order_of_their_numbers() -> None:
    given = {"base": [row for seed in (10, 9, 2) for row in scores({"de": seed / 100}, f"r{seed}")]}
    known = {f"r{seed}": seed for seed in (10, 9, 2)}
    assert cells(compare(given, None, ["task"], known), "task", "base")["all languages"]["values"] == [0.02, 0.09, 0.1]


@pytest.mark.parametrize("other", [{"n": 90}, {"test_set": "b" * 64}])
def test_test_sets_of_one_name_but_another_size_or_content_are_not_compared(other: Mapping[str, Any]) -> None:
    given = {
        "base": scores({"de": 0.2, "fr": 0.4}, test_set="a" * 64),
        "new": [*scores({"de": 0.5}, **{"test_set": "a" * 64} | other), *scores({"fr": 0.5}, test_set="a" * 64)],
    }
    found = compare(given, None, ["task", "language"])
    new = {record["split"]: record for record in found.records("task") if record["label"] == "new"}
    assert new["test"]["languages"] == "fr"
    assert new["test"]["difference"] == pytest.approx(0.1)
    (apart,) = new.keys() - {"test"}
    assert (new[apart]["languages"], new[apart]["difference"]) == ("de", None)
    assert apart == ("test, n 90" if "n" in other else "test, content bbbbbb")
    assert "test sets that differ; they are not compared" in score_table(found, "task").note


def test_what_is_decided_against_the_baseline_is_told_by_encoder() -> None:
    """The noisy one makes no other interval wider."""
    languages, noise = {"de": 0.02, "fr": 0.0, "hi": -0.02, "ru": 0.01}, {"de": 0.2, "fr": -0.2, "hi": 0.1, "ru": -0.1}

    def around(mean: float, run: str, by: Values) -> list[Score]:
        return scores({code: mean + shift + by.get(code, 0) for code, shift in languages.items()}, run)

    means = {"base": 0.5, "better": 0.6, "worse": 0.3, "alike": 0.5}
    given = {
        label: [one for seed in "01" for one in around(mean, label + seed, {"de": 0.002} if label == "alike" else {})]
        for label, mean in means.items()
    }
    given["noisy"] = [one for seed in "01" for one in around(0.54, "noisy" + seed, noise)]
    table = decided_table(
        compare(given, "base", ["task"], {label + seed: int(seed) for label in given for seed in "01"})
    )
    ((title, *cells),) = table.rows
    assert title == Entry("Sentence retrieval (Tatoeba)", "tatoeba_accuracy")
    assert [str(cell) for cell in cells] == ["better\u00a0+10.0", "noisy\u00a0+4.0", "worse\u00a0-20.0", "alike"]
    assert table.header == ("", "above base", "not decided", "below base", "within 1 point")
    assert decided_table(compare({"base": given["base"], "new": given["better"]}, None, ["task"])).rows == ()


def test_languages_whose_test_sets_the_same_encoders_took_are_one_row() -> None:
    """Of words that a dictionary leaves out each language has a number of its own, and an untrained encoder has all."""

    def sized(value: float, **sizes: int) -> list[Any]:
        return [one for code, n in sizes.items() for one in scores({code: value}, n=n)]

    given = {
        "base": sized(0.2, de=900, fr=800, hi=700, ru=60),
        "mlm": sized(0.3, de=90, fr=80, hi=70),
        "new": sized(0.5, de=90, fr=80, hi=70),
    }
    found = compare(given, "mlm", ["task", "language"])
    rows = {(one["split"], one["label"]): one for one in found.records("task")}
    assert {key: one["languages"] for key, one in rows.items()} == {
        ("test, n 60 to 900", "base"): "de fr hi ru",
        ("test, n 70 to 90", "mlm"): "de fr hi",
        ("test, n 70 to 90", "new"): "de fr hi",
    }
    assert rows["test, n 70 to 90", "new"]["difference"] == pytest.approx(0.2)
    # One that took two sets of a language is not averaged over both.
    given["mlm"] += sized(0.7, de=95)
    rows = {(one["split"], one["label"]) for one in compare(given, "mlm", ["task"]).records("task")}
    assert rows == {
        *(("test, n 60 to 900", "base"), ("test, n 70 to 90", "mlm"), ("test, n 70 to 90", "new")),
        ("test, n 95", "mlm"),
    }
    # Sizes that are the same in other languages tell nothing apart.
    crossed = {"base": sized(0.2, de=100, fr=90), "new": sized(0.5, de=90, fr=100)}
    rows = {(one["split"], one["label"], one["difference"]) for one in compare(crossed, None, ["task"]).records("task")}
    assert rows == {("test, n 90 to 100", "new", None), ("test, n 90 to 100 (2)", "base", None)}


def test_scores_of_an_unknown_test_set_are_compared_by_size() -> None:
    given = {"base": scores({"de": 0.2}), "new": scores({"de": 0.5}, test_set="a" * 64)}
    assert cells(compare(given, None, ["task"]), "task", "new")["all languages"]["difference"] == pytest.approx(0.3)


def test_chance_is_the_mean_over_seeds_and_languages() -> None:
    given = {
        "base": [
            *scores({"de": 0.9, "fr": 0.9}, "m0", 0, chance=0.1),
            *scores({"de": 0.9}, "m1", 1, chance=0.3),
            *scores({"fr": 0.9}, "m1", 1, chance=0.5),
        ]
    }
    found = compare(given, None, ["task", "language"])
    assert [record["chance"] for record in found.records("language")] == pytest.approx([0.2, 0.3])
    assert cells(found, "task", "base")["all languages"]["chance"] == pytest.approx(0.25)


def test_intervals_of_a_row_allow_for_all_its_arms() -> None:
    values = np.random.default_rng(0).random((4, 3, 3))  # arms, languages, seeds
    given = {
        f"arm{arm}": [
            row
            for seed in range(3)
            for row in scores(dict(zip(("de", "fr", "hi"), values[arm, :, seed], strict=True)), f"r{arm}{seed}")
        ]
        for arm in range(4)
    }
    known = {f"r{arm}{seed}": seed for arm in range(4) for seed in range(3)}
    tables = [pd.DataFrame(arm, ["de", "fr", "hi"], ["0", "1", "2"]) for arm in values]
    expected = differences_from({f"arm{number}": tables[number] for number in (1, 2, 3)}, tables[0])
    for label, gap in expected.items():
        cell = cells(compare(given, None, ["task"], known), "task", label)["all languages"]
        assert gap.interval is not None
        assert [cell["low_95"], cell["high_95"]] == pytest.approx(gap.interval)
        assert cell["comparisons"] == 3


def test_test_sets_come_before_development_sets_and_stand_as_they_were_written() -> None:
    given = {"base": [*scores({"de": 0.1}, split="dev"), *scores({"de": 0.2}, split="pud"), *scores({"de": 0.3})]}
    assert [record["split"] for record in compare(given, None, ["task"]).records("task")] == ["test", "dev", "pud"]


@pytest.mark.parametrize(
    ("seeds", "languages", "values", "left_out"),
    [
        ([{"de": 0.1, "fr": 0.9}, {"de": 0.3}], "de", [0.1, 0.3], 1),  # as many values: more seeds
        ([{"de": 0.1, "fr": 0.9, "hi": 0.2}, {"de": 0.3}], "de fr hi", [0.4], 1),
        ([{"de": 0.1, "fr": 0.3}, {"de": 0.3, "fr": 0.5}, {"fr": 0.9, "hi": 0.2}], "de fr", [0.2, 0.4], 2),
    ],
)
def test_a_mean_is_over_the_largest_block_of_languages_and_seeds_and_says_how_many_values_are_in_none(
    seeds: Sequence[Mapping[str, float]], languages: str, values: Sequence[float], left_out: int
) -> None:
    given = {"base": [one for seed, values in enumerate(seeds) for one in scores(values, f"m{seed}", seed)]}
    found = cells(compare(given, None, ["task", "language"]), "task", "base")["all languages"]
    assert (found["languages"], found["left_out"]) == (languages, left_out)
    assert found["values"] == pytest.approx(values)


def test_without_single_languages_the_given_mean_stands_and_single_layers_never_do() -> None:
    given = {"base": [score(value=0.4), score(value=0.9, layer=3)]}
    found = compare(given, None, ["task", "language", "family"])
    assert cells(found, "task", "base")["all languages"]["mean"] == 0.4
    assert (found.records("language"), found.records("family")) == ([], [])


def test_what_is_at_chance_says_so_and_a_fall_to_it_stays_in_the_csv(tmp_path: Path) -> None:
    given = {"base": scores({"de": 0.5}), "new": scores({"de": 0.12})}
    found = compare(given, "base", ["language"])
    _, row = score_table(found, "language").rows
    assert row[:4] == entries("de", Entry("50.0", mark="best"), Entry("12.0", "at chance", "quiet"), "10")
    records, _ = written(found, tmp_path)
    assert [(row["label"], row["mean"], row["at_chance"], row["difference"]) for row in records] == [
        ("base", "0.5", "False", ""),
        ("new", "0.12", "True", "-0.38"),
    ]


def test_the_files_hold_every_grouping(tmp_path: Path) -> None:
    given = {
        "base": scores({"de": 0.2, "nl": 0.4, "fr": 0.6}),
        "new": scores({"de": 0.5, "nl": 0.5, "fr": 0.7}),
    }
    records, text = written(compare(given, "base", ["family", "task"]), tmp_path)
    assert [line for line in text.splitlines() if line.startswith("###")] == [
        "### Scores by language family",
        "### Scores, mean over languages",
    ]
    assert "| Germanic (de, nl) | 30.0 | 50.0 (+20.0) | 10 | 200 | 1 |" in text
    assert "| 40.0 | 56.7 (+16.7 [-45.1, 78.4]) | 10 | 300 (3 languages) | 1 |" in text
    last = records[-1]
    assert [(row["by"], row["group"], row["label"]) for row in records][:2] == [
        ("family", "Germanic", "base"),
        ("family", "Germanic", "new"),
    ]
    assert (last["by"], last["languages"], last["baseline"], last["difference_languages"]) == (
        "task",
        "de fr nl",
        "base",
        "3",
    )
    assert float(last["low_95"]) == pytest.approx(-0.4507, abs=1e-4)
    assert (last["comparisons"], last["undecided"]) == ("1", "one training run")


def test_the_terminal_shows_the_first_grouping_and_fits_eighty_columns() -> None:
    given = {
        "tiny/mlm": scores({"de": 0.2, "nl": 0.4, "fr": 0.6, "hi": 0.1}),
        "tiny/dict-mlm-unconditioned": scores({"de": 0.5, "nl": 0.5, "fr": 0.7, "hi": 0.2}),
    }
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(plain_grid(terminal_table(compare(given, None, ["task", "language"]), "task")))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["tiny/dict-mlm-unconditioned", "47.5", "+15.0", "[-3.0,", "33.0]", "1"] in lines
    assert not any("nl" in line for line in lines)


@pytest.mark.parametrize(
    ("baseline", "message"), [("bass", r"'bass' is none of the compared recipes\. Did you mean 'base'\?")]
)
def test_an_unknown_baseline_gets_the_nearest_label(baseline: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compare({"base": scores({"de": 0.2})}, baseline, ["task"])


def groupings(folders: Sequence[Path], **chosen: Any) -> list[str]:
    return list(compare_folders(folders, **chosen).by)


def test_a_report_has_the_groupings_that_say_more_than_the_mean(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", "tiny/align-mlm", scores={"tatoeba": scores({"qgr": 0.1, "qdv": 0.2})})
    two = write_run(tmp_path / "two", "tiny/align-mlm", scores={"tatoeba": scores({"qgr": 0.1, "de": 0.2})})
    assert groupings([one]) == ["task", "language"]
    assert groupings([two]) == ["task", "language", "family", "dictionary", "training"]
    assert groupings([two], sizes={"de": 9000.0}) == ["task", "language", "family", "size", "dictionary", "training"]
    assert groupings([one], by=["dictionary"]) == ["dictionary"]


def test_forgetting_is_seen_in_english_and_in_languages_of_no_data_from_the_encoder_that_was_continued() -> None:
    """Whatever the baseline is; without that encoder, data that are known or a study of one, there is no such table."""
    study = {
        "name": "s",
        "baseline": "mlm",
        "labels": ["base", "mlm"],
        "study": {"encoder": "e5", "encoders": [{"model": "e5", "label": "base"}]},
    }
    pools = {"text/en": {"tokens": 9}, "pairs/de-en": {"tokens": 9}}
    values = {"base": (0.9, 0.8, 0.5), "mlm": (0.8, 0.7, 0.6), "align": (0.85, 0.8, 0.7)}
    runs = [
        Run(
            Path(label),
            {"seed": 0} if label != "base" else {},
            Log(),
            (
                *scores(dict(zip(("en", "ru", "de"), own, strict=True)), run=label),
                score("pair_cosine", 0.1, language="ru"),
            ),
            data=None if label == "base" else {"pools": pools},
            label=label,
            study=study,
        )
        for label, own in values.items()
    ]
    found = compare_with_beginning(runs, score_frame(runs))
    assert found is not None
    shown = forgetting_table(found)
    assert shown.title == "What became of base"
    assert [*shown.header] == ["", "base", "mlm", "align"]
    assert [[cell.text for cell in row] for row in shown.rows] == [
        ["Sentence retrieval (Tatoeba)", "80.0", "-10.0", "+0.0"],
        ["Sentence retrieval (Tatoeba)", "90.0", "-10.0", "-5.0"],
    ]
    assert [row[0].note for row in shown.rows] == ["ru", "en"]  # type: ignore[union-attr]
    assert compare_with_beginning([one for one in runs if one.label != "base"], score_frame(runs)) is None
    assert compare_with_beginning([replace(one, data=None) for one in runs], score_frame(runs)) is None
    for declared in (
        {"encoder": None, "encoders": [{"model": None, "label": "base"}]},
        {"encoders": [{"model": "e5"}]},
    ):
        others = [replace(one, study={**study, "study": declared}) for one in runs]
        assert compare_with_beginning(others, score_frame(runs)) is None
