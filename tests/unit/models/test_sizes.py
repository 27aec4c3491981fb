"""Parameter counts are those of the model that would be built."""

from __future__ import annotations

import pytest
from transformers import (
    DebertaV2Config,
    DebertaV2Model,
)

from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.backbone import backbone
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.families import FAMILIES
from xalign_ray.models.sizes import Sizes, count_in

SHAPE = {"num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 40}
OPTIONS = [{}, {"language_embeddings": True}, {"language_embeddings": True, "conditioned_head": True}]
WITHOUT_LANGUAGES = ["modernbert", "eurobert"]
CASES = [
    (family, options) for family in FAMILIES for options in OPTIONS if not options or family not in WITHOUT_LANGUAGES
]
NAMES = ["-".join([family, *options]) for family, options in CASES]


def count_parameters(model: ModelConfig, vocab_size: int, languages: int, positions: int, head: bool = True) -> Sizes:
    return count_in(*backbone(model, vocab_size, positions, pad_id=0), model, languages, head)


@pytest.mark.parametrize(("family", "options"), CASES, ids=NAMES)
def test_counts_are_those_of_the_built_encoder(family, options):
    model = ModelConfig(**SHAPE, **options, family=family)
    encoder = build_encoder(model, 101, ["en", "de", "hi", "zh"], 33, pad_id=0)
    sizes = count_parameters(model, 101, 4, 33)
    assert sizes.total == sum(parameter.numel() for parameter in encoder.parameters())
    assert sizes.word_embeddings == encoder.hf.get_input_embeddings().weight.numel()
    base = encoder.hf.base_model
    of_layers = {"modernbert": ("layers", "final_norm"), "eurobert": ("layers", "norm")}.get(family, ("encoder",))
    layers = [getattr(base, name) for name in of_layers]
    assert sizes.layers == sum(parameter.numel() for module in layers for parameter in module.parameters())


@pytest.mark.parametrize(("family", "options"), CASES, ids=NAMES)
def test_counts_of_a_continued_folder_are_the_folders_own(tmp_path, family, options):
    build_encoder(ModelConfig(**SHAPE, family=family), 101, ["en"], 33, pad_id=0).hf.save_pretrained(tmp_path)
    model = ModelConfig(init_from=str(tmp_path), **options)
    encoder = build_encoder(model, 90, ["en", "de"], 16, pad_id=0)
    assert count_parameters(model, 90, 2, 16).total == sum(p.numel() for p in encoder.parameters())


def test_counts_of_an_encoder_without_a_head_are_its_own(tmp_path):
    """Of a DeBERTa, whose table of distances is an embedding and lies in its encoder."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    distances = {"relative_attention": True, "position_buckets": 8, "pos_att_type": "p2c|c2p"}
    DebertaV2Model(DebertaV2Config(vocab_size=30, **sizes, **distances)).save_pretrained(tmp_path)
    encoder = build_encoder(ModelConfig(init_from=str(tmp_path)), 30, ["en"], 16, pad_id=0, with_head=False)
    counted = count_parameters(ModelConfig(init_from=str(tmp_path)), 30, 1, 16, head=False)
    assert counted.total == sum(parameter.numel() for parameter in encoder.parameters())
    assert counted.layers == sum(parameter.numel() for parameter in encoder.hf.encoder.layer.parameters())
    assert counted.head == 0
