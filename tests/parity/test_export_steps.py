"""Exporting a run at other steps than its last: the kept ones, and the untrained control at step 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.ray.small import batches, write_world
from tests.unit.conftest import prepare_here
from xalign_ray import exports, pretraining
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.studies.queue import export_step
from xalign_ray.tokens.find import find_prepared
from xalign_ray.train.loop import build_model
from xalign_ray.work.run_folder import RunFolder

WORDS = "bert.embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    """A run of four steps that kept its checkpoints of steps 2 and 4."""
    folder = tmp_path_factory.mktemp("steps")
    settings = [*write_world(folder, 300, 50), *batches(8, 8, 4, saved_every=2), "checkpoint.save_total_limit=2"]
    recipe = load_recipe("tiny/align-mlm", settings)
    prepare_here(recipe.config)
    return recipe, pretraining.pretrain(recipe, local=True)


def words(folder: Path) -> torch.Tensor:
    return load_file(folder / "model.safetensors")[WORDS]


def step_of(folder: Path) -> int:
    return json.loads((folder / "config.json").read_text())["xalign_step"]


def test_step_0_is_the_encoder_as_the_seed_made_it(finished: tuple[Recipe, Path], tmp_path: Path) -> None:
    recipe, run = finished
    folder = exports.export(run, step=0, out=tmp_path / "untrained")
    prepared = find_prepared(recipe.config)
    assert prepared is not None
    first = build_model(recipe.config, prepared).state_dict()[f"encoder.hf.{WORDS}"]
    assert folder == tmp_path / "untrained"
    assert torch.equal(words(folder), first)
    assert step_of(folder) == 0


def test_a_kept_step_is_exported_beside_the_last_one(finished: tuple[Recipe, Path]) -> None:
    _, run = finished
    folder = exports.export(run, step=2)
    assert (folder, step_of(folder), step_of(run / "export")) == (run / "export_step_000002", 2, 4)
    assert not torch.equal(words(folder), words(run / "export"))
    again = exports.export(run, step=4)
    assert torch.equal(words(again), words(run / "export"))


def test_a_study_exports_the_step_that_a_cell_scores_once(finished: tuple[Recipe, Path]) -> None:
    _, run = finished
    folder, last = RunFolder(run).export_at(0), (run / "export" / "manifest.json").stat().st_mtime_ns
    export_step(str(folder))
    assert step_of(folder) == 0
    written = (folder / "manifest.json").stat().st_mtime_ns
    export_step(str(folder))
    export_step(str(run / "export"))
    assert [(path / "manifest.json").stat().st_mtime_ns for path in (folder, run / "export")] == [written, last]


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_mixture_is_the_plain_average_of_both_files(
    finished: tuple[Recipe, Path], tmp_path: Path, share: float
) -> None:
    _, run = finished
    mixed = load_file(exports.export(run, out=tmp_path / "mixed", merge=share) / "model.safetensors")
    first = load_file(exports.export(run, step=0, out=tmp_path / "first") / "model.safetensors")
    last = load_file(run / "export" / "model.safetensors")
    assert mixed.keys() == first.keys() == last.keys()
    for name, tensor in mixed.items():
        torch.testing.assert_close(tensor, (1 - share) * first[name] + share * last[name], rtol=0, atol=1e-7)
    assert json.loads((tmp_path / "mixed" / "config.json").read_text())["xalign_merge"] == share


@pytest.mark.parametrize(("share", "out"), [(1.5, True), (-0.1, True), (0.5, False)])
def test_a_share_outside_of_the_two_is_refused_and_the_run_keeps_its_export(
    finished: tuple[Recipe, Path], tmp_path: Path, share: float, out: bool
) -> None:
    with pytest.raises(ConfigError, match=r"--merge \S+: give a share from 0 to 1, and --out DIR for the mixture\."):
        exports.export(finished[1], out=tmp_path / "mixed" if out else None, merge=share)


def test_a_step_that_was_not_kept_is_refused(finished: tuple[Recipe, Path]) -> None:
    _, run = finished
    with pytest.raises(DataError) as caught:
        exports.export(run, step=3)
    assert str(caught.value) == f"{run}/checkpoints has no whole checkpoint of step 3; let `xalign pretrain` reach one."
