"""Parameters of an evaluation in MLflow: those of its encoder, but not twice those that a search for runs uses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xalign_ray.track.scored_encoder import scoring_identity


@pytest.mark.parametrize(
    ("is_run", "searched"), [(False, {"objective": "mlm", "recipe": "tiny/mlm"}), (True, {})], ids=["model", "run"]
)
def test_evaluation_of_a_run_leaves_what_a_search_uses_to_the_run(
    tmp_path: Path, is_run: bool, searched: dict[str, str]
) -> None:
    known = {"xalign_objective": "mlm", "xalign_recipe": "tiny/mlm", "xalign_step": 20, "xalign_seed": 3}
    (tmp_path / "config.json").write_text(json.dumps(known), encoding="utf-8")
    found = scoring_identity("f", "t", str(tmp_path), "export", [], {"task": "tatoeba"}, is_run=is_run)["params"]
    assert found == {"step": 20, "encoder": "export", "pretraining_seed": 3, "task": "tatoeba"} | searched
