"""What a study finds done before it begins: no training happens here."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.ray.small import recipe, write_world
from tests.unit.data.conftest import prepare_here
from xalign_ray import pipeline, studies


def test_a_cell_whose_data_are_there_and_whose_run_is_not_is_pretrained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AskedToPretrain(Exception):  # noqa: N818
        pass

    def pretrain(_: object) -> Path:
        raise AskedToPretrain

    settings = write_world(tmp_path, sentences=100, parallel=10)
    prepare_here(recipe(settings, name="tiny/mlm"))
    study = tmp_path / "one.yaml"
    study.write_text(yaml.safe_dump({"cells": [{"recipe": "tiny/mlm", "settings": settings}]}))
    monkeypatch.setattr(pipeline, "pretrain", pretrain)
    with pytest.raises(AskedToPretrain):
        studies.run(str(study), tmp_path / "runs")
