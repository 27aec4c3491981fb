"""Encoders of families that cannot be continued are evaluated all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BartModel,
    DebertaV2Config,
    DebertaV2Model,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartModel,
    MT5Config,
    MT5EncoderModel,
    PreTrainedModel,
    T5Config,
    T5EncoderModel,
    T5Model,
)

from tests.unit.tasks.conftest import pool
from tests.whole_words import write_encoder
from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors

BART = {
    "d_model": 16,
    "max_position_embeddings": 64,
    **{f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in {"layers": 2, "attention_heads": 2}.items()},
}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
TOKENS = {"vocab_size": 25, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 3}


def test_mdeberta_is_evaluated_as_its_stock_class_computes(tmp_path: Path) -> None:
    """It cannot be continued, but evaluated: two texts of different lengths, the shorter one padded."""
    write_encoder(tmp_path, [f"w{number}" for number in range(20)], hidden_size=16, num_attention_heads=2)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"vocab_size": 25, "max_position_embeddings": 64, "position_buckets": 8}
    relative = {"pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "position_biased_input": False}
    config = DebertaV2Config(relative_attention=True, share_att_key=True, **sizes, **relative)
    DebertaV2Model(config).save_pretrained(tmp_path)
    texts = ["w1 w2 w3", "w4"]
    pooled = pool(Encoder.open(open_encoder(str(tmp_path)), "cpu"), texts, "en")[-1]
    stock, tokenizer = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    for text, vector in zip(texts, pooled, strict=True):
        with torch.no_grad():
            states = stock(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(vector, states.mean(0), atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        BartModel(BartConfig(**BART, **TOKENS)),
        MBartModel(MBartConfig(**BART, **TOKENS)),
        M2M100ForConditionalGeneration(M2M100Config(**BART, **TOKENS)),  # NLLB's kind
        T5Model(T5Config(**T5, **TOKENS)),
        T5EncoderModel(T5Config(**T5, **TOKENS)),
        MT5EncoderModel(MT5Config(**T5, **TOKENS)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_of_a_model_that_writes_text_the_encoder_is_evaluated(tmp_path: Path, model: PreTrainedModel) -> None:
    """Its own hidden states are those of the decoder, or it has none without an input of the decoder."""
    write_encoder(tmp_path, [f"w{number}" for number in range(20)], hidden_size=16, num_attention_heads=2)
    (tmp_path / "model.safetensors").unlink()
    model.eval().save_pretrained(tmp_path)
    text = "w1 w2 w3"
    given = AutoTokenizer.from_pretrained(tmp_path)(text, return_tensors="pt")
    with torch.no_grad():
        states = model.get_encoder()(**{key: given[key] for key in ("input_ids", "attention_mask")})
    expected = states.last_hidden_state[0].mean(0)
    encoder = Encoder.open(open_encoder(tmp_path), "cpu")
    layers = pool(encoder, [text, "w4"], "en")
    assert layers.shape == (3, 2, 16)
    for vector in (layers[-1][0], SentenceVectors(open_encoder(tmp_path)).encode([text])[0]):
        np.testing.assert_allclose(vector, expected, atol=1e-6)
