"""Where the parameters of an encoder stand, by which `train.trainable` names them."""

from __future__ import annotations

from typing import Any

import pytest

from xalign_ray.config.schema import ModelConfig
from xalign_ray.config.training import TrainConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.encoder import AlignedEncoder, build_encoder
from xalign_ray.train.trainable import Trainable, places

SIZES: dict[str, Any] = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
EXPECTED = {  # of each family a parameter at each place: before the layers, in the third, behind it, in the head
    "bert": ("embeddings.LayerNorm.bias", "layer.2.output.dense.bias", "layer.2.output.LayerNorm.weight"),
    "xlm-r": ("position_embeddings.weight", "layer.2.output.dense.bias", "layer.2.output.LayerNorm.weight"),
    "modernbert": ("tok_embeddings.weight", "layers.2.mlp.Wo.weight", "final_norm.weight"),
    "eurobert": ("embed_tokens.weight", "layers.2.mlp.down_proj.weight", "model.norm.weight"),
}
HEADS = {
    "bert": "hf.cls.",
    "xlm-r": "hf.lm_head.",
    "modernbert": ("hf.head.", "hf.decoder."),
    "eurobert": "hf.lm_head.",
}


def encoder_of(family: Any, **settings: Any) -> AlignedEncoder:
    return build_encoder(ModelConfig(family=family, **SIZES | settings), 40, ["en", "de"], 16, 0)


@pytest.mark.parametrize("family", EXPECTED)
def test_each_parameter_has_a_place(family: str) -> None:
    encoder = encoder_of(family)
    found = places(encoder)
    assert set(found) == set(encoder.parameters())
    by_name = {name: found[parameter] for name, parameter in encoder.named_parameters()}
    for end, place in zip(EXPECTED[family], (0, 3, 3), strict=True):
        assert {at for name, at in by_name.items() if name.endswith(end)} == {place}, end
    heads = {name for name, at in by_name.items() if at == 4}
    assert heads
    assert all(name.startswith(HEADS[family]) for name in heads)


def test_language_embeddings_are_embeddings() -> None:
    encoder = encoder_of("bert", language_embeddings=True)
    assert encoder.languages is not None
    assert places(encoder)[encoder.languages.weight] == 0


def test_a_layer_that_the_encoder_lacks_is_refused() -> None:
    train = TrainConfig(max_steps=4, global_batch_size=8, trainable="layers:4-")
    with pytest.raises(ConfigError, match=r"train\.trainable names layers:4-, but the encoder has 3 layers"):
        Trainable(encoder_of("bert"), train)


def test_an_encoder_without_a_list_of_layers_is_refused() -> None:
    encoder = encoder_of("bert")
    base: Any = encoder.hf.base_model
    base.encoder.layer = None
    train = TrainConfig(max_steps=4, global_batch_size=8, trainable="head")
    with pytest.raises(ConfigError, match="an encoder of the family bert has no list of layers"):
        Trainable(encoder, train)
