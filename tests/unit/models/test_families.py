"""Each family in its own way: positions, segments, language vectors and heads, against the stock model."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    CamembertConfig,
    CamembertForMaskedLM,
    EuroBertConfig,
    EuroBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.families import FAMILIES

LANGUAGES = ["en", "de", "hi"]
SHAPE = {
    "num_hidden_layers": 3,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_dropout_prob": 0.0,
}
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
BEHIND_PADDING = {"vocab_size": 60, "max_position_embeddings": 18, "type_vocab_size": 1, "pad_token_id": 1}
STOCK = {
    "bert": lambda: BertForMaskedLM(BertConfig(vocab_size=60, max_position_embeddings=16, pad_token_id=1, **SIZES)),
    "xlm-r": lambda: XLMRobertaForMaskedLM(XLMRobertaConfig(**BEHIND_PADDING, **SIZES)),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**BEHIND_PADDING, **SIZES)),
    "camembert": lambda: CamembertForMaskedLM(CamembertConfig(**BEHIND_PADDING, **SIZES)),
    "modernbert": lambda: ModernBertForMaskedLM(
        ModernBertConfig(vocab_size=60, max_position_embeddings=16, pad_token_id=1, local_attention=4, **SIZES)
    ),
    "eurobert": lambda: EuroBertForMaskedLM(
        EuroBertConfig(
            **{"vocab_size": 60, "max_position_embeddings": 16, "pad_token_id": 1, "num_key_value_heads": 1, **SIZES},
            rope_parameters={"rope_theta": 500.0, "rope_type": "default"},
        )
    ),
}
LIKE_XLM_R = ["xlm-r", "roberta", "camembert"]
WITHOUT_SEGMENTS = [*LIKE_XLM_R, "modernbert", "eurobert"]
WITHOUT_LANGUAGES = ["modernbert", "eurobert"]


def batch(length=10, rows=2):
    """Rows of one example each, without padding."""
    generator = torch.Generator().manual_seed(3)
    shape = (rows, length)
    return {
        "input_ids": torch.randint(2, 60, shape, generator=generator),
        "position_ids": torch.arange(length).expand(shape),
        "segment_ids": torch.zeros(shape, dtype=torch.long),
        "language_ids": torch.randint(0, 3, shape, generator=generator),
        "example_ids": torch.ones(shape, dtype=torch.long),
    }


def spread(module):
    """Weights large enough that what is left out shows; biases and LayerNorms away from 0 and 1."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


@pytest.fixture(scope="module", params=list(STOCK))
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    torch.manual_seed(7)
    path = tmp_path_factory.mktemp(family)
    spread(STOCK[family]()).save_pretrained(path)
    return path


def continued(folder, **options):
    return build_encoder(ModelConfig(init_from=str(folder), **options), 60, LANGUAGES, 16, pad_id=1).eval()


def test_a_continued_encoder_computes_what_the_stock_model_computes_of_ids_alone(family, folder):
    stock, given = type(STOCK[family]()).from_pretrained(folder).eval(), batch()
    expected = stock(input_ids=given["input_ids"], output_hidden_states=True)
    encoder = continued(folder)
    hidden = encoder.encode(given)
    logits = encoder.predict(hidden.flatten(0, 1), given["language_ids"].flatten())
    torch.testing.assert_close(logits, expected.logits.flatten(0, 1), atol=1e-5, rtol=0)
    for layer in (1, 2, 3):
        torch.testing.assert_close(encoder.encode(given, layer), expected.hidden_states[layer], atol=1e-5, rtol=0)
    assert torch.equal(encoder.encode(given, 3), hidden), "the last layer is what predictions are made from"


def test_an_encoder_without_a_head_is_continued_with_a_drawn_one(family, folder, tmp_path):
    """As e5-base, bge-m3 and others are saved; XLM-R's class names the tied table after the head."""
    stock = type(STOCK[family]()).from_pretrained(folder).eval()
    stock.base_model.save_pretrained(tmp_path)
    encoder, given = continued(tmp_path), batch()
    expected = stock(input_ids=given["input_ids"], output_hidden_states=True).hidden_states[-1]
    hidden = encoder.encode(given)
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=0)
    assert encoder.predict(hidden.flatten(0, 1), given["language_ids"].flatten()).isfinite().all()


def test_an_encoder_of_bert_from_scratch_is_the_stock_model_to_the_bit():
    torch.manual_seed(0)
    sizes = {"vocab_size": 60, "max_position_embeddings": 16, "attn_implementation": "sdpa", **SIZES}
    stock = BertForMaskedLM(BertConfig(**sizes)).eval()
    torch.manual_seed(0)
    encoder = build_encoder(ModelConfig(**SHAPE), 60, LANGUAGES, 16, pad_id=0).eval()
    ours = encoder.hf.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in stock.state_dict().items())
    given = batch() | {"example_ids": torch.tensor([[1] * 4 + [2] * 6] * 2), "segment_ids": torch.arange(10) // 5 + 0}
    given["segment_ids"] = given["segment_ids"].expand(2, 10)
    examples = given["example_ids"]
    expected = stock(
        inputs_embeds=stock.get_input_embeddings()(given["input_ids"]),
        attention_mask=examples[:, None, :, None] == examples[:, None, None, :],
        position_ids=given["position_ids"],
        token_type_ids=given["segment_ids"],
        output_hidden_states=True,
    )
    hidden = encoder.encode(given)
    assert torch.equal(hidden, expected.hidden_states[-1])
    assert torch.equal(encoder.encode(given, 1), expected.hidden_states[1])
    assert torch.equal(encoder.predict(hidden, given["language_ids"]), expected.logits)


def test_language_vectors_are_added_to_the_word_vectors(family, folder):
    if family in WITHOUT_LANGUAGES:
        with pytest.raises(ConfigError, match=rf"^model: the family {family} has no token types to carry"):
            continued(folder, language_embeddings=True)
        return
    stock, given = type(STOCK[family]()).from_pretrained(folder).eval(), batch()
    encoder = continued(folder, language_embeddings=True)
    vectors = stock.get_input_embeddings()(given["input_ids"]) + encoder.languages(given["language_ids"])
    expected = stock.base_model(inputs_embeds=vectors).last_hidden_state
    torch.testing.assert_close(encoder.encode(given), expected, atol=1e-5, rtol=0)
    assert (expected - stock.base_model(input_ids=given["input_ids"]).last_hidden_state).abs().max() > 1e-3


def test_positions_that_start_again_reach_the_model(family, folder):
    stock, given = type(STOCK[family]()).from_pretrained(folder).eval(), batch()
    reset = torch.tensor([0, 1, 2, 3, 4, 1, 2, 3, 4, 5]).expand(2, 10)
    first = 2 if family in LIKE_XLM_R else 0  # behind the padding id
    expected = stock.base_model(input_ids=given["input_ids"], position_ids=reset + first).last_hidden_state
    found = continued(folder).encode(given | {"position_ids": reset})
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert (found - continued(folder).encode(given)).abs().max() > 1e-3


def test_only_bert_is_told_the_segments(family, folder):
    encoder, given = continued(folder), batch()
    second = given | {"segment_ids": torch.ones_like(given["segment_ids"])}
    assert torch.equal(encoder.encode(given), encoder.encode(second)) == (family in WITHOUT_SEGMENTS)


def test_a_copied_transform_predicts_as_the_head_and_is_its_own(family, folder):
    if family in WITHOUT_LANGUAGES:
        encoder, hidden = continued(folder), torch.randn(5, 16)
        assert torch.equal(encoder.predict(hidden, hidden, encoder.copy_transform()), encoder.predict(hidden, hidden))
        return
    encoder = continued(folder, language_embeddings=True, conditioned_head=True)
    hidden, language = torch.randn(5, 16), torch.tensor([0, 1, 2, 0, 1])
    transform = encoder.copy_transform()
    expected = encoder.predict(hidden, language)
    assert torch.equal(encoder.predict(hidden, language, transform), expected)
    with torch.no_grad():
        transform.dense.weight += 1
    assert torch.equal(encoder.predict(hidden, language), expected)
    assert not torch.equal(encoder.predict(hidden, language, transform), expected)


def test_an_extended_head_keeps_the_folders_own_block(family, folder):
    if family in WITHOUT_LANGUAGES:
        return  # refused, see above
    encoder = continued(folder, language_embeddings=True, conditioned_head=True)
    wide = encoder.family.transform_of(encoder.hf).dense
    own = encoder.family.transform_of(type(STOCK[family]()).from_pretrained(folder)).dense
    assert wide.weight.shape == (16, 32)
    assert torch.equal(wide.weight[:, :16], own.weight)
    assert wide.bias is not None and own.bias is not None  # noqa: PT018


def test_the_decoder_is_tied_to_the_word_embeddings_and_the_recipes_dropout_holds(family, folder):
    models = [ModelConfig(init_from=str(folder), hidden_dropout_prob=0.0)]
    models += [ModelConfig(family=family, **SHAPE)] if family in FAMILIES else []
    for model in models:
        encoder = build_encoder(model, 60, LANGUAGES, 16, pad_id=1).train()
        tied = encoder.hf.get_output_embeddings().weight is encoder.hf.get_input_embeddings().weight
        assert tied == (family != "eurobert")
        assert torch.equal(encoder.encode(batch()), encoder.encode(batch()))
    noisy = build_encoder(
        ModelConfig(init_from=str(folder), hidden_dropout_prob=0.3), 60, LANGUAGES, 16, pad_id=1
    ).train()
    assert not torch.equal(noisy.encode(batch()), noisy.encode(batch()))


def test_rows_may_grow_where_positions_are_computed() -> None:
    grown = {name: family.for_rows({"max_position_embeddings": 64}, 128) for name, family in FAMILIES.items()}
    assert {name for name, values in grown.items() if values["max_position_embeddings"] == 128} == {
        "modernbert",
        "eurobert",
    }
