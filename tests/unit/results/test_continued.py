"""The table at the end of `xalign continue`, from a hand-written comparison.json."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.continuing.comparison_file import row, write_comparison_file
from tests.unit.results.run_folders import report_on, score, write_run
from xalign_ray.errors import DataError
from xalign_ray.results.continued import (
    comparison_text,
    kept_sentence,
    read_continued,
    sentence,
    sparkline,
)
from xalign_ray.results.paired import paired_table
from xalign_ray.results.run import Run, read_run
from xalign_ray.tasks.scores import Score, write_scores
from xalign_ray.tasks.task import write_rows
from xalign_ray.work.run_folder import RunFolder


def shown(folder: Path, width: int = 80) -> str:
    write_comparison_file(folder)
    found = read_continued(folder)
    assert found is not None
    return comparison_text(found, width)


def test_each_language_has_both_values_interval_and_verdict(tmp_path: Path) -> None:
    text = shown(tmp_path)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "ja 500 90.0 92.5 +2.5 (+1.5 to +3.5) gained" in lines
    assert "hi 500 98.4 98.5 +0.1 (-0.9 to +1.1) kept" in lines
    assert "fr 500 95.0 92.0 -3.0 (-4.0 to -2.0) lost" in lines
    assert "mean - 94.2 95.5 +1.3 -" in lines
    ends = [line for line in text.splitlines() if line.endswith((" gained", " kept"))]
    assert len({line.rindex(" ") for line in ends[:2]}) == 1  # words stand left
    assert "corrected for the number of languages (Holm); kept: a loss of 1 point is excluded." in " ".join(lines)
    assert "intfloat/multilingual-e5-small -> mine: contrast, 200 steps, 12m 30s of training, 0.21 device hours." in (
        " ".join(lines)
    )
    assert "Translations found over 2 languages: 94.2 % before, 95.5 % after (1 gained, 1 kept)." in " ".join(lines)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    assert max(map(len, shown(tmp_path, width).splitlines())) <= width


def test_kept_sets_stand_apart_from_trained_ones(tmp_path: Path) -> None:
    text = shown(tmp_path)
    trained, kept = (text.index(f"Translations found: {kind}") for kind in ("trained languages", "what must not get"))
    assert trained < text.index("ja ") < kept < text.index("fr ") < text.index("Similarity of scored pairs")
    assert "by CSLS" not in text  # it stands on the page


def test_no_comparison_and_a_damaged_one(tmp_path: Path) -> None:
    assert read_continued(tmp_path) is None
    (tmp_path / "comparison.json").write_text('{"rows": [')
    with pytest.raises(DataError, match="give the same `xalign continue` again"):
        read_continued(tmp_path)


def test_sentences_of_a_comparison(tmp_path: Path) -> None:
    """Cost with and without a price, what was forgotten, no test pairs, and a language of two test files."""
    write_comparison_file(tmp_path)
    found = read_continued(tmp_path)
    assert found is not None
    assert found.cost == "200 steps, 12m 30s of training, 0.21 device hours"
    assert replace(found, price=2.4).cost.endswith("0.21 device hours at 2.4: 0.50")
    assert kept_sentence(found) == (
        "Of what must not get worse: lost in fr (translations found). Translations found in fr: 95.0 % before, "
        "92.0 % after (1 lost); Similarity of scored pairs (Spearman) in en: 80.0 before, 79.5 after (1 unclear)."
    )
    assert kept_sentence(found) in " ".join(comparison_text(found, 80).split())
    assert not kept_sentence(replace(found, rows=found.of("retrieval", kept=False)))
    assert "no test pairs were scored" in sentence(replace(found, rows=[]))
    again = row("retrieval", "ja", True, 0.70, 0.725, "gained")
    twice = sentence(replace(found, rows=[*found.rows, again]))
    assert twice.startswith("Translations found over 2 languages: 89.2 % before, 90.5 % after")
    nothing = [{**one, "difference": -0.0004, "yours": one["base"] - 0.0004} for one in found.rows]
    text = comparison_text(replace(found, rows=nothing), 80)
    assert "+0.0" in text
    assert "-0.0 " not in text
    assert [sparkline(values) for values in ([0.1, 0.2, 0.45], [0.5], [])] == ["\u2581\u2583\u2588", "\u2581", ""]


def test_a_page_opens_with_what_a_run_gained_unless_it_compares_others(tmp_path: Path) -> None:
    recipes = {"a": "tiny/mlm", "b": "tiny/align-mlm", "c": "tiny/dict-mlm-50"}
    runs = [write_run(tmp_path / name, recipe, scores={"t": [score(run=name)]}) for name, recipe in recipes.items()]
    write_comparison_file(runs[0])
    pages = [report_on(runs[:number], tmp_path / f"page{number}").read_text() for number in (1, 3)]
    assert ["Continued from intfloat/multilingual-e5-small" in page for page in pages] == [True, False]


def write_test(folder: Path, found: dict[str, str]) -> Run:
    """A run with scores of its test: of each language a digit a pair, how many of its sentences find each other."""
    evaluation = RunFolder(folder).evaluation("test")
    scores = []
    for language, digits in found.items():
        value = sum(map(int, digits)) / 2 / len(digits)
        where = {"split": "test", "language": language, "layer": "last", "test_set": f"hash of {language}"}
        what = {"metric": "retrieval_accuracy", "value": value, "chance": 0.1, "n": len(digits)}
        scores.append(Score(run=None, encoder="e", objective=None, task="retrieval", seed=0, step=1, **where, **what))
        write_rows(evaluation / "predictions" / f"{language}.jsonl", {"retrieval_accuracy last": digits})
    write_scores(evaluation / "scores.json", scores)
    return replace(read_run(folder), label=folder.name)


def test_two_runs_are_compared_pair_by_pair(tmp_path: Path) -> None:
    """64 finds 30 of 100 more in German and loses none; in French both find the same half."""
    runs = [
        write_test(tmp_path / "32", {"de": "2" * 50 + "0" * 50, "fr": "2" * 50 + "0" * 50}),
        write_test(tmp_path / "64", {"de": "2" * 80 + "0" * 20, "fr": "2" * 50 + "0" * 50}),
    ]
    table = paired_table(runs, "32")
    assert table is not None
    assert table.header == ("language", "n", "32", "64")
    gaps = [np.r_[np.repeat([1.0, 0.0], [gained, 100 - gained]), 1.0, -1.0] for gained in (30, 0)]
    errors = [gap.std() / np.sqrt(102) for gap in gaps]
    means = [gap.mean() for gap in gaps]
    centre, error = sum(means) / 2, np.hypot(*errors) / 2
    low, high = (100 * (centre + sign * 1.959964 * error) for sign in (-1, 1))
    german, french, mean = ([*map(str, row)] for row in table.rows)
    assert mean == ["mean", "-", "50.0", f"65.0 (+15.0, {low:+.1f} to {high:+.1f})"]
    assert german[:3] == ["de", "100", "50.0"]
    assert german[3].startswith("80.0 (+30.0, ")
    assert french[3].startswith("50.0 (+0.0, -")
    assert paired_table([runs[0], write_test(tmp_path / "other", {"es": "20"})], "32") is None
