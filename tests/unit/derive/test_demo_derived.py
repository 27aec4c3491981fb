"""The languages derived from the embedded world: the files that the tiny recipes and the study of ALIGN-MLM name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ray.small import write_world
from xalign_ray.config.load import list_recipes, load_recipe
from xalign_ray.derive.corpus import write_demo_derived
from xalign_ray.sources.inputs import check_inputs
from xalign_ray.studies.declared import load_study
from xalign_ray.studies.plan import check_task_files, plan_study
from xalign_ray.work.artifacts import read_manifest


def test_all_that_the_tiny_study_of_align_mlm_reads_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_world(tmp_path, sentences=200, parallel=10)
    write_demo_derived(tmp_path / "demo", tmp_path / "derived")
    monkeypatch.chdir(tmp_path)
    recipes = [name for name in list_recipes() if name.startswith("derived/tiny-")]
    assert len(recipes) == 4 * 3
    for name in recipes:
        config = load_recipe(name).config
        check_inputs(config)
        assert (tmp_path / config.data.tokenizer.path / "tokenizer.json").is_file()  # pyright: ignore
    assert check_task_files(plan_study(load_study("align-mlm/tiny"), tmp_path / "runs", str)) == []
    dropped = {code: (read_manifest(Path("derived", code)) or {})["sentences_dropped"]
               for code in ("en-x-trans", "en-x-inv", "en-x-syn")}  # fmt: skip
    assert set(dropped.values()) == {0}
