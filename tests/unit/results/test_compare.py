"""A comparison as a pure function of scores: means over languages and seeds, differences, and their files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from tests.unit.results.run_folders import compare_folders, entries, score, write_run
from xalign_ray.errors import ConfigError
from xalign_ray.results.aggregate import as_csv
from xalign_ray.results.compare import Comparison, Record, compare_runs, score_frame
from xalign_ray.results.difference import differences_from, guess_variance, is_at_chance
from xalign_ray.results.report_tables import decided_table, terminal_table
from xalign_ray.results.run import Log, Run, frame_scores
from xalign_ray.results.tables import Entry, as_markdown, percent, plain_grid, score_table
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
            frame_scores(one for one in own if one.run == name),
            label=label,
        )
        for label, own in by_label.items()
        for name in dict.fromkeys(str(one.run) for one in own)
    ]
    return compare_runs(runs, score_frame(runs), by, baseline)


def cells(comparison: Comparison, by: str, label: str) -> dict[str, Record]:
    return {record["group"]: record for record in comparison.records(by) if record["label"] == label}


def records_of(comparison: Comparison) -> list[dict[str, str]]:
    """The records of comparison.csv."""
    return list(csv.DictReader(io.StringIO(as_csv(comparison.shown))))


THREE = ("de", "fr", "hi")


def tuned(run: str, values: Sequence[float], metric: str = "pos_accuracy", first: int = 0) -> list[Score]:
    """Fine-tunings of one encoder, a seed a value."""
    return [one for seed, value in enumerate(values, first) for one in scores({"de": value}, run, seed, metric=metric)]


# Scores, the pretraining seeds of runs that have a known one, and parts of each label's row over all languages.
MEANS: dict[str, tuple[Mapping[str, Sequence[Score]], Mapping[str, int], Mapping[str, Mapping[str, Any]]]] = {
    "the difference is over common languages": (
        {
            "base": scores({"de": 0.2, "nl": 0.4, "fr": 0.6, "hi": 0.3}),
            "new": scores({"de": 0.5, "nl": 0.5, "fr": 0.7}),
        },
        {},
        {
            "base": {"mean": 0.375, "difference": None},
            "new": {"mean": 1.7 / 3, "languages": "de fr nl", "n": 300, "chance": 0.1, "difference": 0.5 / 3}
            | {"difference_languages": 3, "difference_seeds": 1, "undecided": "one training run"},
        },
    ),
    "sample deviation over seeds": (
        {"base": [one for seed, value in enumerate((0.1, 0.2, 0.6)) for one in scores({"de": value}, f"r{seed}")]},
        {"r0": 0, "r1": 1, "r2": 2},
        {"base": {"mean": 0.3, "standard_deviation": 0.07**0.5, "values": [0.1, 0.2, 0.6], "seeds": 3}},
    ),
    "fine-tuning seeds of one encoder are replicates": (
        {"base": tuned("a", (0.2, 0.4))},
        {},
        {"base": {"values": [0.2, 0.4], "seeds": 2}},
    ),
    "fine-tuning seeds of several encoders are averaged first": (
        {"base": [*tuned("a", (0.2, 0.4)), *tuned("b", (0.9,))], "new": tuned("c", (0.6,))},
        {"a": 8, "b": 7, "c": 8},
        {"base": {"values": [0.9, 0.3]}, "new": {"difference": 0.3, "difference_seeds": 1}},
    ),
    "pretraining seeds are paired by number": (
        {
            "base": [*scores({"de": 0.1}, "m0"), *scores({"de": 0.3}, "m1"), *scores({"de": 0.35}, "m2")],
            "new": [*scores({"de": 0.4}, "a2"), *scores({"de": 0.9}, "a1"), *scores({"de": 0.8}, "a5")],
        },
        {"m0": 0, "m1": 1, "m2": 2, "a2": 2, "a1": 1, "a5": 5},
        {"new": {"difference": 0.325, "difference_seeds": 2}},
    ),
    "pretraining seeds are paired where runs do not tell them": (
        {
            "base": [*scores({"de": 0.1}, "m0", 0), *scores({"de": 0.3}, "m1", 1)],
            "new": [*scores({"de": 0.6}, "a1", 1), *scores({"de": 0.9}, "a2", 2)],
        },
        {},
        {"new": {"difference": 0.3, "difference_seeds": 1}},
    ),
    "without a common seed the means are compared": (
        {"base": [*scores({"de": 0.1}, "m0"), *scores({"de": 0.3}, "m1")], "new": scores({"de": 0.5}, "a7")},
        {"m0": 0, "m1": 1, "a7": 7},
        {"new": {"difference": 0.3, "difference_seeds": 0}},
    ),
    "a pretraining seed is no fine-tuning seed": (
        {
            "base": tuned("hub", (0.2, 0.3, 0.4)),
            "new": [one for seed in range(3) for one in tuned(f"r{seed}", (0.3 + seed / 10,))],
        },
        {f"r{seed}": seed for seed in range(3)},
        {"new": {"difference": 0.1, "difference_seeds": 0}},
    ),
    "fine-tuning seeds of two encoders are paired": (
        {"base": tuned("hub", (0.2, 0.3, 0.4)), "new": tuned("r0", (0.5, 0.5, 0.5))},
        {"r0": 0},
        {"new": {"difference_seeds": 3}},
    ),
    "seeds stand in the order of their numbers": (
        {"base": [one for seed in (10, 9, 2) for one in scores({"de": seed / 100}, f"r{seed}")]},
        {f"r{seed}": seed for seed in (10, 9, 2)},
        {"base": {"values": [0.02, 0.09, 0.1]}},
    ),
    "the newest step counts": (
        {"base": [*scores({"de": 0.9}, step=100), *scores({"de": 0.3}, step=200)]},
        {},
        {"base": {"mean": 0.3}},
    ),
    "single layers are left out, and given means where languages are": (
        {"base": [score(value=0.4), score(value=0.9, layer=3), *scores({"de": 0.2, "en": 0.4}, n=500)]},
        {},
        {"base": {"mean": 0.3, "n": 1000, "languages": "de en"}},
    ),
    "a given mean stands alone": ({"base": [score(value=0.4)]}, {}, {"base": {"mean": 0.4, "languages": "all"}}),
    "an unknown test set is compared by size": (
        {"base": scores({"de": 0.2}), "new": scores({"de": 0.5}, test_set="a" * 64)},
        {},
        {"new": {"difference": 0.3}},
    ),
    "chance is the mean over seeds and languages": (
        {
            "base": [
                *scores({"de": 0.9, "fr": 0.9}, "m0", 0, chance=0.1),
                *scores({"de": 0.9}, "m1", 1, chance=0.3),
                *scores({"fr": 0.9}, "m1", 1, chance=0.5),
            ]
        },
        {},
        {"base": {"chance": 0.25}},
    ),
    # Two standard errors of guessing 1,000 questions at 0.002 are 0.0028: more seeds do not change that.
    "guesses of many seeds are guesses": (
        {
            label: [
                one for seed in range(9) for one in scores({"de": value}, f"{label}{seed}", seed, chance=0.002, n=1000)
            ]
            for label, value in (("base", 0.0045), ("new", 0.006))
        },
        {},
        {"base": {"at_chance": True}, "new": {"at_chance": False}},
    ),
    "as many values: more seeds": (
        {"base": [*scores({"de": 0.1, "fr": 0.9}, "m0"), *scores({"de": 0.3}, "m1")]},
        {"m0": 0, "m1": 1},
        {"base": {"languages": "de", "values": [0.1, 0.3], "left_out": 1}},
    ),
    "more values: fewer seeds": (
        {"base": [*scores({"de": 0.1, "fr": 0.9, "hi": 0.2}, "m0"), *scores({"de": 0.3}, "m1")]},
        {"m0": 0, "m1": 1},
        {"base": {"languages": "de fr hi", "values": [0.4], "left_out": 1}},
    ),
    "the largest whole block": (
        {
            "base": [
                *scores({"de": 0.1, "fr": 0.3}, "m0"),
                *scores({"de": 0.3, "fr": 0.5}, "m1"),
                *scores({"fr": 0.9, "hi": 0.2}, "m2"),
            ]
        },
        {"m0": 0, "m1": 1, "m2": 2},
        {"base": {"languages": "de fr", "values": [0.2, 0.4], "left_out": 2}},
    ),
}


@pytest.mark.parametrize("case", MEANS)
def test_a_row_has_the_mean_over_languages_and_seeds_and_its_difference(case: str) -> None:
    given, seeds, expected = MEANS[case]
    found = compare(given, None, ["task"], seeds)
    for label, fields in expected.items():
        row = cells(found, "task", label)["all languages"]
        for name, value in fields.items():
            assert row[name] == (value if isinstance(value, str | bool | None) else pytest.approx(value)), name


def test_a_family_is_compared_within_its_languages() -> None:
    found = compare(MEANS["the difference is over common languages"][0], None, ["task", "family"])
    new, families = cells(found, "task", "new")["all languages"], cells(found, "family", "new")
    # Two families, Germanic and Romance: one degree of freedom.
    assert (new["high_95"] - new["low_95"]) / 2 / 12.7062 > 1 / 15 * 0.7
    assert families["Germanic"]["difference"] == pytest.approx(0.2)
    assert (families["Germanic"]["low_95"], families["Germanic"]["high_95"]) == (None, None)
    assert "Indo-Aryan" not in families
    note = score_table(found, "task").note
    assert "Not every score of a row is a mean over the same languages; differences are over common ones." in note
    alone = compare(MEANS["a given mean stands alone"][0], None, ["language", "family"])
    assert (alone.records("language"), alone.records("family")) == ([], [])


# sqrt(0.5 * 0.5 / 100) = 0.05; sqrt(0.02 * 0.98 / 49) = 0.02; with chance 0 the error is 0.
@pytest.mark.parametrize(
    ("value", "chance", "n", "expected"),
    [
        *((0.60, 0.5, 100, True), (0.61, 0.5, 100, False), (0.59, 0.5, 400, False), (0.40, 0.5, 100, True)),
        *((0.06, 0.02, 49, True), (0.0601, 0.02, 49, False), (0.0, 0.0, 10, True), (0.1, 0.0, 10, False)),
        (1.0, 1.0, 10, True),
    ],
)
def test_a_score_is_at_chance_up_to_two_binomial_standard_errors_above_it(
    value: float, chance: float, n: int, expected: bool
) -> None:
    assert bool(is_at_chance(value, chance, guess_variance(chance, n))) is expected


def test_what_rounds_to_zero_has_no_sign() -> None:
    assert [percent("mean_cosine_random", value) for value in (-0.004, 0.004, -0.005001)] == ["0.00", "0.00", "-0.01"]
    assert percent("tatoeba_accuracy", -0.0004) == "0.0"


def test_a_table_names_metrics_splits_and_languages_and_compares_no_cosines() -> None:
    given = {
        label: [
            *scores({"de": value, "en": value}, n=500, split="pud"),
            *scores({"de": value}, split="dev"),
            *scores({"de": value}, metric="pos_accuracy", layer=None),
            *scores({"de": value / 3}, metric="mean_cosine_random", chance=None, pooling=None),
        ]
        for label, value in (("base", 0.5), ("new", 0.75))
    }
    found = compare(given, "base", ["task", "language"])
    rows = {str(row[0]): [str(cell) for cell in row[1:]] for row in score_table(found, "task").rows}
    assert rows == {
        "Parts of speech (pos_accuracy)": ["50.0", "75.0 (+25.0)", "10", "100 (1 language)", "1"],
        "Sentence retrieval (dev) (tatoeba_accuracy)": ["50.0", "75.0 (+25.0)", "10", "100 (1 language)", "1"],
        "Sentence retrieval (pud) (tatoeba_accuracy)": [
            *("50.0", "75.0 (+25.0)", "10", "1,000 (2 languages, with en)", "1")
        ],
        "Mean cosine of random words (mean_cosine_random)": ["0.17", "0.25", "-", "100 (1 language)", "1"],
    }
    assert [str(row[0]) for row in score_table(found, "language").rows] == [
        *("Sentence retrieval (dev) (tatoeba_accuracy)", "de"),
        *("Sentence retrieval (pud) (tatoeba_accuracy)", "de", "en"),
        *("Mean cosine of random words (mean_cosine_random)", "de", "Parts of speech (pos_accuracy)", "de"),
    ]


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


def test_what_is_at_chance_says_so_and_a_fall_to_it_stays_in_the_csv() -> None:
    given = {"base": scores({"de": 0.5}), "new": scores({"de": 0.12})}
    found = compare(given, "base", ["language"])
    _, row = score_table(found, "language").rows
    assert row[:4] == entries("de", Entry("50.0", mark="best"), Entry("12.0", "at chance", "quiet"), "10")
    records = records_of(found)
    assert [(row["label"], row["mean"], row["at_chance"], row["difference"]) for row in records] == [
        ("base", "0.5", "False", ""),
        ("new", "0.12", "True", "-0.38"),
    ]


def test_csv_and_markdown_hold_every_grouping() -> None:
    given = {
        "base": scores({"de": 0.2, "nl": 0.4, "fr": 0.6}),
        "new": scores({"de": 0.5, "nl": 0.5, "fr": 0.7}),
    }
    found = compare(given, "base", ["family", "task"])
    text = "\n".join(as_markdown(score_table(found, by)) for by in found.by)
    assert "| Germanic (de, nl) | 30.0 | 50.0 (+20.0) | 10 | 200 | 1 |" in text
    assert "| 40.0 | 56.7 (+16.7 [-45.1, 78.4]) | 10 | 300 (3 languages) | 1 |" in text
    records = records_of(found)
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


def test_an_unknown_baseline_gets_the_nearest_label() -> None:
    with pytest.raises(ConfigError, match=r"'bass' is none of the compared recipes\. Did you mean 'base'\?"):
        compare({"base": scores({"de": 0.2})}, "bass", ["task"])


def groupings(folders: Sequence[Path], **chosen: Any) -> list[str]:
    return list(compare_folders(folders, **chosen).by)


def test_a_report_has_the_groupings_that_say_more_than_the_mean(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", "tiny/align-mlm", scores={"tatoeba": scores({"qgr": 0.1, "qdv": 0.2})})
    two = write_run(tmp_path / "two", "tiny/align-mlm", scores={"tatoeba": scores({"qgr": 0.1, "de": 0.2})})
    assert groupings([one]) == ["task", "language"]
    assert groupings([two]) == ["task", "language", "family", "dictionary", "training"]
    assert groupings([one], by=["dictionary"]) == ["dictionary"]
