"""The table at the end of `xalign continue`, from a hand-written comparison.json."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.continuing.comparison_file import write_comparison_file
from xalign_ray.errors import DataError
from xalign_ray.results.continued import comparison_text, read_continued, sentence, sparkline


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
    assert "corrected for the number of languages (Holm); kept: a loss of 1 point is excluded." in " ".join(lines)
    assert "intfloat/multilingual-e5-small -> mine: contrast, 200 steps, 12m 30s of training, 0.21 device hours." in (
        " ".join(lines)
    )
    assert "Translations found over 2 languages: 94.2 % before, 95.5 % after (1 gained, 1 kept)." in " ".join(lines)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, width: int) -> None:
    assert max(map(len, shown(tmp_path, width).splitlines())) <= width


def test_forgotten_languages_stand_apart_from_trained_ones(tmp_path: Path) -> None:
    text = shown(tmp_path)
    trained, untrained = (text.index(f"Translations found: {kind}") for kind in ("trained", "languages that were not"))
    assert trained < text.index("ja ") < untrained < text.index("fr ")


def test_sparkline_runs_from_the_least_to_the_greatest() -> None:
    assert sparkline([0.1, 0.2, 0.45]) == "\u2581\u2583\u2588"
    assert sparkline([0.5]) == "\u2581"
    assert sparkline([]) == ""


def test_cost_is_in_money_where_a_price_was_given(tmp_path: Path) -> None:
    write_comparison_file(tmp_path)
    found = read_continued(tmp_path)
    assert found is not None
    assert found.cost == "200 steps, 12m 30s of training, 0.21 device hours"
    assert type(found)(**{**vars(found), "price": 2.4}).cost.endswith("0.21 device hours at 2.4: 0.50")


def test_no_comparison_and_a_damaged_one(tmp_path: Path) -> None:
    assert read_continued(tmp_path) is None
    (tmp_path / "comparison.json").write_text('{"rows": [')
    with pytest.raises(DataError, match="give the same `xalign continue` again"):
        read_continued(tmp_path)


def test_a_difference_that_rounds_to_zero_has_no_minus(tmp_path: Path) -> None:
    write_comparison_file(tmp_path)
    found = read_continued(tmp_path)
    assert found is not None
    rows = [{**row, "difference": -0.0004, "yours": row["base"] - 0.0004} for row in found.rows]
    text = comparison_text(type(found)(**{**vars(found), "rows": rows}), 80)
    assert "+0.0" in text
    assert "-0.0 " not in text


def test_sentence_without_test_pairs(tmp_path: Path) -> None:
    write_comparison_file(tmp_path)
    found = read_continued(tmp_path)
    assert found is not None
    assert "no test pairs were scored" in sentence(type(found)(**{**vars(found), "rows": []}))
