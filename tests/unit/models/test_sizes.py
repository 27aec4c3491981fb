"""Parameter counts are those of the model that would be built."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    DebertaV2Config,
    DebertaV2Model,
    EuroBertConfig,
    EuroBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

from xalign_ray.config.schema import ModelConfig
from xalign_ray.models.backbone import ENCODERS, backbone, encoder_values
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.families import BY_MODEL_TYPE, FAMILIES
from xalign_ray.models.sizes import Sizes, count_in

SHAPE = {"num_hidden_layers": 3, "hidden_size": 24, "num_attention_heads": 4, "intermediate_size": 40}
OPTIONS = [{}, {"language_embeddings": True}, {"language_embeddings": True, "conditioned_head": True}]
WITHOUT_LANGUAGES = ["eurobert"]
CASES = [
    (family, options) for family in FAMILIES for options in OPTIONS if not options or family not in WITHOUT_LANGUAGES
]
DEBERTAS = {
    "positions": {"type_vocab_size": 2},
    "released": {"relative_attention": True, "share_att_key": True, "position_buckets": 8, "pos_att_type": "p2c|c2p"}
    | {"norm_rel_ebd": "layer_norm", "position_biased_input": False},
    "keys of its own": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": 12},
    "one of them": {"relative_attention": True, "pos_att_type": "c2p"},
}
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


def test_counts_of_a_modernbert_with_every_bias_are_right(tmp_path):
    biases = dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), True)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    stock = ModernBertForMaskedLM(ModernBertConfig(vocab_size=30, pad_token_id=0, **sizes, **biases))
    stock.save_pretrained(tmp_path)
    expected = sum(parameter.numel() for parameter in stock.parameters())
    assert count_parameters(ModelConfig(init_from=str(tmp_path)), 30, 1, 16).total == expected


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_counts_of_a_eurobert_with_grouped_queries_and_biases_are_right(tmp_path, tied, biases):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    sizes |= {"num_key_value_heads": 2, "head_dim": 6, "tie_word_embeddings": tied}
    stock = EuroBertForMaskedLM(
        EuroBertConfig(vocab_size=30, pad_token_id=0, attention_bias=biases, mlp_bias=biases, **sizes)
    )
    stock.save_pretrained(tmp_path)
    expected = sum(parameter.numel() for parameter in stock.parameters())
    assert count_parameters(ModelConfig(init_from=str(tmp_path)), 30, 1, 16).total == expected


@pytest.mark.parametrize("kind", DEBERTAS)
def test_counts_of_a_deberta_are_those_of_its_stock_class(tmp_path, kind):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    DebertaV2Model(DebertaV2Config(vocab_size=30, **sizes, **DEBERTAS[kind])).save_pretrained(tmp_path)
    encoder = build_encoder(ModelConfig(init_from=str(tmp_path)), 30, ["en"], 16, pad_id=0, with_head=False)
    counted = count_parameters(ModelConfig(init_from=str(tmp_path)), 30, 1, 16, head=False)
    assert counted.total == sum(parameter.numel() for parameter in encoder.parameters())
    norm = getattr(encoder.hf.encoder, "LayerNorm", None)
    layers = [*encoder.hf.encoder.layer.parameters(), *(norm.parameters() if norm else ())]
    assert counted.layers == sum(parameter.numel() for parameter in layers)


@pytest.mark.parametrize("name", ENCODERS)
def test_counts_of_a_known_encoder_are_those_of_its_stock_class(name):
    values = encoder_values(name)
    family = BY_MODEL_TYPE[values["model_type"]]
    classes = family.classes()
    with torch.device("meta"):
        stock = classes.masked_lm(classes.config.from_dict(values))
    assert count_in(family, values, ModelConfig(), 1).total == sum(p.numel() for p in stock.parameters())
