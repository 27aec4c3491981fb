"""comparison.json as metrics of MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.continuing.comparison_file import write_comparison_file
from xalign_ray.results.compared import comparison_metrics


def test_means_come_first_and_languages_that_were_not_trained_stand_apart(tmp_path: Path) -> None:
    write_comparison_file(tmp_path)
    found = comparison_metrics(tmp_path / "comparison.json")
    assert list(found)[:3] == [f"compare/retrieval_{key}" for key in ("base", "yours", "difference")]
    assert found["compare/retrieval_base"] == pytest.approx(0.942)
    assert found["compare/retrieval_yours"] == pytest.approx(0.955)
    assert found["compare/retrieval_difference_ja"] == pytest.approx(0.025)
    assert found["compare/kept_retrieval_difference"] == pytest.approx(-0.03)
    assert not [key for key in found if "drift" in key]
