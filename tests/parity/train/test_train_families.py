"""Every family that is continued trains alike at ZeRO 0 to 3, and on one worker or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    CamembertConfig,
    CamembertForMaskedLM,
    DebertaV2Config,
    DebertaV2Model,
    EuroBertConfig,
    EuroBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertModel,
    MPNetConfig,
    MPNetModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_steps import TIGHT, run

SIZES: dict[str, Any] = {"vocab_size": synthetic.VOCAB, "pad_token_id": 0, "hidden_size": 16, "intermediate_size": 32}
SIZES |= {"num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 16}
RELEASED: dict[str, Any] = {"position_biased_input": False, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
DISTANCES: dict[str, Any] = {"relative_attention": True, "position_buckets": 4, "pos_att_type": ["p2c", "c2p"]}
NONE = {"bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None}
MADE: dict[str, Callable[[], Any]] = {
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(type_vocab_size=1, **SIZES)),
    "camembert": lambda: CamembertForMaskedLM(CamembertConfig(type_vocab_size=1, **SIZES)),
    # three of four layers see two tokens to either side, as those of ModernBERT, Ettin and mmBERT see 64
    "modernbert": lambda: ModernBertForMaskedLM(ModernBertConfig(local_attention=4, **SIZES, **NONE)),
    "modernbert, no head": lambda: ModernBertModel(ModernBertConfig(local_attention=4, **SIZES, **NONE)),
    "eurobert": lambda: EuroBertForMaskedLM(EuroBertConfig(num_key_value_heads=2, **SIZES)),
    "mpnet, which no family file names": lambda: MPNetModel(MPNetConfig(**SIZES)),
    "deberta-v2": lambda: DebertaV2Model(
        DebertaV2Config(
            position_biased_input=False, share_att_key=True, norm_rel_ebd="layer_norm", **SIZES, **DISTANCES
        )
    ),
    "deberta-v2, all its tables": lambda: DebertaV2Model(DebertaV2Config(type_vocab_size=2, **SIZES, **DISTANCES)),
}
CONTRAST = {"kind": "sentence_contrast", "temperature": 0.2}
MASKED_LM = {"kind": "masked_lm"}


@pytest.fixture(scope="module", params=MADE)
def continued(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a run that continues an encoder of a family by contrast, with masked LM where it has a head."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("encoder")
    made = MADE[request.param]()
    made.save_pretrained(folder)
    has_head = made.base_model is not made
    return {
        "model": {"init_from": str(folder), "hidden_dropout_prob": 0.0},
        "objectives": [CONTRAST, *([MASKED_LM] if has_head else [])],
        "train__max_steps": 4,
    }


def test_every_zero_stage_trains_a_family_alike(two: Pool, tmp_path: Path, continued: dict[str, Any]) -> None:
    whole = run(two, tmp_path / "0", parallel__zero_stage=0, **continued)
    assert len(set(whole)) == 4
    assert whole[-1] < whole[0]
    for stage in (1, 2, 3):
        overrides = TIGHT if stage == 3 else {}
        folder = tmp_path / f"{stage}"
        sharded = run(two, folder, parallel__zero_stage=stage, parallel__deepspeed_overrides=overrides, **continued)
        np.testing.assert_allclose(sharded, whole, rtol=0, atol=5e-6)
    weights = [synthetic.weights(tmp_path / f"{stage}") for stage in (0, 1, 2, 3)]
    for other in weights[1:]:
        assert other.keys() == weights[0].keys()
        for name, value in weights[0].items():
            torch.testing.assert_close(other[name], value, rtol=0, atol=2e-4, msg=lambda said, n=name: f"{n} {said}")
