"""comparison.json as metrics of MLflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.continuing.comparison_file import row, write_comparison_file
from xalign_ray.results.continued import read_continued, sentence
from xalign_ray.track.headlines import comparison_metrics


def test_means_come_first_and_languages_that_were_not_trained_stand_apart(tmp_path: Path) -> None:
    write_comparison_file(tmp_path)
    found = comparison_metrics(tmp_path / "comparison.json")
    assert list(found)[:3] == [f"compare/retrieval_{key}" for key in ("base", "yours", "difference")]
    assert found["compare/retrieval_base"] == pytest.approx(0.942)
    assert found["compare/retrieval_yours"] == pytest.approx(0.955)
    assert found["compare/retrieval_difference_ja"] == pytest.approx(0.025)
    assert found["compare/kept_retrieval_difference"] == pytest.approx(-0.03)
    assert not [key for key in found if "drift" in key]


def test_a_language_of_two_test_files_weighs_as_one_on_page_and_in_mlflow(tmp_path: Path) -> None:
    write_comparison_file(tmp_path)
    path = tmp_path / "comparison.json"
    found = json.loads(path.read_text())
    again = row("retrieval", "ja", True, 0.70, 0.725, "gained") | {"split": "second.csv"}
    path.write_text(json.dumps(found | {"rows": [*found["rows"], again]}))
    metrics = comparison_metrics(path)
    assert metrics["compare/retrieval_base"] == pytest.approx((0.80 + 0.984) / 2)
    assert metrics["compare/retrieval_difference_ja"] == pytest.approx(0.025)
    continued = read_continued(tmp_path)
    assert continued is not None
    assert sentence(continued).startswith("Translations found over 2 languages: 89.2 % before, 90.5 % after")
