"""Encoders of families that cannot be continued are evaluated all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, DebertaV2Config, DebertaV2Model

from tests.whole_words import write_encoder
from xalign_ray.tasks.hf_encoder import Encoder


def test_mdeberta_is_evaluated_as_its_stock_class_computes(tmp_path: Path) -> None:
    """It cannot be continued, but evaluated: two texts of different lengths, the shorter one padded."""
    write_encoder(tmp_path, [f"w{number}" for number in range(20)], hidden_size=16, num_attention_heads=2)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"vocab_size": 25, "max_position_embeddings": 64, "position_buckets": 8}
    relative = {"pos_att_type": ["p2c", "c2p"], "norm_rel_ebd": "layer_norm", "position_biased_input": False}
    config = DebertaV2Config(relative_attention=True, share_att_key=True, **sizes, **relative)
    DebertaV2Model(config).save_pretrained(tmp_path)
    texts = ["w1 w2 w3", "w4"]
    pooled = Encoder.open(str(tmp_path), "cpu").pool(texts, "en", ["mean"])["mean"][-1]
    stock, tokenizer = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    for text, vector in zip(texts, pooled, strict=True):
        with torch.no_grad():
            states = stock(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(vector, states.mean(0), atol=1e-5)
