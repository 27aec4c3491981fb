"""What a recipe that continues an encoder starts from, and what that does to its fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from xalign_ray.config.derive import base_recipe, settle
from xalign_ray.config.identity import run_fingerprint
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.config.sources import BpeTokenizer, FolderTokenizer
from xalign_ray.errors import ConfigError
from xalign_ray.planning.describe import describe

CONTINUED = ["model.init_from=run:tiny/mlm", "data.tokenizer={kind: start}"]


def continued(*settings: str) -> Recipe:
    return load_recipe("tiny/xlm", [*CONTINUED, *settings])


def test_the_named_run_has_the_seed_and_places_of_the_one_that_continues_it() -> None:
    given = ["seed=7", "output=/there", "data.root=/data", "parallel.workers=3", 'track.mlflow="off"']
    base = base_recipe(continued("train.max_steps=11", *given))
    assert base is not None
    assert (base.name, base.config) == ("tiny/mlm", load_recipe("tiny/mlm", given).config)
    assert isinstance(base.config.data.tokenizer, BpeTokenizer)


def test_a_folder_or_hub_model_is_no_run() -> None:
    assert base_recipe(continued("model.init_from=bert-base-multilingual-cased")) is None
    assert base_recipe(load_recipe("tiny/mlm")) is None


def test_an_unknown_recipe_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean"):
        base_recipe(continued("model.init_from=run:tiny/mln"))


def test_settled_it_names_one_folder_for_weights_and_tokenizer() -> None:
    config = settle(continued(), "/runs/tiny-mlm-1/export").config
    assert config.model.init_from == "/runs/tiny-mlm-1/export"
    assert config.data.tokenizer == FolderTokenizer(path="/runs/tiny-mlm-1/export")


def test_a_given_tokenizer_stays() -> None:
    config = settle(continued("data.tokenizer={kind: folder, path: /tokenizer}"), "/encoder").config
    assert config.data.tokenizer == FolderTokenizer(path="/tokenizer")


def test_the_tokenizer_of_no_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.tokenizer start is that of model.init_from, which names no encoder"):
        load_recipe("tiny/mlm", ["data.tokenizer={kind: start}"])


def encoder(folder: Path, weights: bytes) -> str:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    return str(folder)


def test_the_fingerprint_is_that_of_the_weights_not_of_their_place(tmp_path: Path) -> None:
    here, moved, other = (
        run_fingerprint(settle(continued(), encoder(tmp_path / name, weights)).config, "data")
        for name, weights in (("here", b"1"), ("moved", b"1"), ("other", b"2"))
    )
    assert here == moved
    assert here != other


def test_sizes_that_the_start_decides_are_not_in_the_fingerprint(tmp_path: Path) -> None:
    folder = encoder(tmp_path / "encoder", b"1")
    first, second, third = (
        run_fingerprint(settle(continued(setting), folder).config, "data")
        for setting in ("model.num_hidden_layers=2", "model.num_hidden_layers=3", "model.hidden_dropout_prob=0.3")
    )
    assert first == second
    assert first != third


def test_the_plan_knows_the_size_of_a_run_that_is_not_there_yet() -> None:
    assert "vocabulary 4,000" in describe(continued())
