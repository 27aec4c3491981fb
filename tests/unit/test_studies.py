"""What a study finds done before it begins: no training happens here."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.parity.cells_here import run_cells_here
from tests.ray.small import recipe, write_world
from tests.unit.conftest import prepare_here
from xalign_ray import pretraining
from xalign_ray.errors import TrainingError
from xalign_ray.studies.study import run_study


def test_a_cell_whose_data_are_there_and_whose_run_is_not_is_pretrained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretrain(_: object, title: str) -> Path:
        raise TrainingError(f"asked to pretrain {title}")

    settings = write_world(tmp_path, sentences=300, parallel=50)
    prepare_here(recipe(settings, name="tiny/mlm"))
    study = tmp_path / "one.yaml"
    study.write_text(yaml.safe_dump({"encoders": [{"recipe": "tiny/mlm", "settings": settings}], "mlflow": "off"}))
    run_cells_here(monkeypatch, [], [])
    monkeypatch.setattr(pretraining, "pretrain", pretrain)
    with pytest.raises(TrainingError, match=r"1 cells? of one failed.*\n  tiny/mlm .*: asked to pretrain tiny/mlm"):
        run_study(str(study), tmp_path / "runs")
