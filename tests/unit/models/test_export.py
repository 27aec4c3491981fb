"""Writing the folder: whole or not at all, weights that do not fit refused, languages folded exactly."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import CheckpointError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.export import export, fold

FACTS = {"recipe": "tiny/mlm", "fingerprint": "00", "step": 1}


@pytest.fixture
def config():
    return RunConfig.model_validate(
        {
            "data": {"corpora": [{"format": "text", "language": "en", "paths": ["x"]}], "row_tokens": 8},
            "model": {"layers": 1, "width": 8, "heads": 2, "feed_forward": 8},
            "train": {"steps": 1, "global_batch_rows": 1},
        }
    )


@pytest.fixture
def prepared(tmp_path):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    (folder / "tokenizer.json").write_text("{}")
    return SimpleNamespace(languages=["en"], vocab_size=20, special=SimpleNamespace(pad=0), tokenizer_folder=folder)


@pytest.fixture
def state(config):
    encoder = build_encoder(config.model, 20, ["en"], 8, pad_id=0)
    return {f"encoder.{name}": value for name, value in encoder.state_dict().items()}


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_fold_puts_segment_and_language_into_one_row():
    languages, segments = torch.tensor([[10.0], [20.0], [30.0]]), torch.tensor([[1.0], [2.0]])
    assert fold(languages, segments).flatten().tolist() == [11.0, 12.0, 21.0, 22.0, 31.0, 32.0]


def test_a_second_export_replaces_the_first_and_leaves_nothing_beside_it(config, prepared, state, tmp_path):
    out = tmp_path / "run" / "export"
    export(state, config, prepared, out, FACTS)
    (out / "stale").write_text("of an older step")
    export(state, config, prepared, out, FACTS)
    assert files(out) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert files(out.parent) == ["export"]


def test_an_export_that_fails_leaves_the_older_one_whole(config, prepared, state, tmp_path):
    out = tmp_path / "run" / "export"
    export(state, config, prepared, out, FACTS)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    prepared.tokenizer_folder = tmp_path / "gone"
    with pytest.raises(FileNotFoundError):
        export(state, config, prepared, out, FACTS | {"step": 2})
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert files(out.parent) == ["export"]


def test_the_tied_decoder_may_be_left_out_of_the_state(config, prepared, state, tmp_path):
    without = {name: value for name, value in state.items() if ".decoder." not in name}
    assert len(without) == len(state) - 2
    export(without, config, prepared, tmp_path / "one", FACTS)
    export(state, config, prepared, tmp_path / "two", FACTS)
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_weights_of_another_encoder_are_refused_by_name(config, prepared, state, tmp_path):
    bias = "cls.predictions.bias"
    state[f"encoder.hf.{bias}x"] = state.pop(f"encoder.hf.{bias}")
    with pytest.raises(CheckpointError) as error:
        export(state, config, prepared, tmp_path / "export", FACTS)
    assert str(error.value) == (
        f"The weights are not those of this recipe's encoder: missing {bias}; not known {bias}x."
    )
    assert files(tmp_path) == ["tokenizer"]


def test_weights_without_language_embeddings_are_refused_where_the_recipe_has_them(config, prepared, state, tmp_path):
    config = config.model_copy(update={"model": config.model.model_copy(update={"language_embeddings": True})})
    with pytest.raises(CheckpointError, match=r"missing encoder\.languages\.weight; not known none"):
        export(state, config, prepared, tmp_path / "export", FACTS)
