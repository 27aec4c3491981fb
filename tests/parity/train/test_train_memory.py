"""The memory that `xalign plan` says is what a real training step takes, whatever fills it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import DebertaV2Config, DebertaV2Model

from tests.parity.train.full_rows import peak
from tests.parity.train.pool import Pool
from xalign_ray.config.load import load_recipe
from xalign_ray.planning.memory import memory_of
from xalign_ray.planning.subject import subject_of

SMALL = {"num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
WIDE = {"num_hidden_layers": 2, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1024}
DEEP = {"num_hidden_layers": 8, "hidden_size": 192, "num_attention_heads": 6, "intermediate_size": 288}
FLAT = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64}
FLAT |= {"hidden_dropout_prob": 0.0}
PAIRS = [{"format": "moses", "languages": ["en", "de"], "paths": ["x", "y"]}]
DENSE = {"attention": "dense"}
CONTRAST: dict[str, Any] = {
    "streams": [{"kind": "contrasted_pairs", "text": "none"}],
    "objectives": [{"kind": "sentence_contrast"}],
}


@dataclass(frozen=True)
class Way:
    """A training step: of the model, of `train`, and further blocks of the recipe."""

    vocab_size: int
    model: Mapping[str, Any]
    stage: int
    rows: int = 8
    micro_batch: int = 8
    length: int = 128
    train: Mapping[str, Any] = field(default_factory=dict)
    blocks: Mapping[str, Any] = field(default_factory=dict)


POINTING = {
    "streams": [{"kind": "masked_pairs"}],
    "objectives": [{"kind": "masked_lm"}, {"kind": "denoising_alignment"}],
}
WAYS = {
    "activations, dropout, bf16, ZeRO 1": Way(8_000, {**SMALL, "family": "xlm-r"}, 1, train={"bf16": True}),
    "dropout but in attention": Way(8_000, {**SMALL, "attention_probs_dropout_prob": 0.0}, 1),
    "a large table, fp32, ZeRO 2, two micro-steps": Way(40_000, {**WIDE, "hidden_dropout_prob": 0.0}, 2, rows=16),
    "gradient checkpointing, autocast, ZeRO 0": Way(
        *(20_000, {**DEEP, "family": "modernbert", "hidden_dropout_prob": 0.0}, 0),
        train={"bf16": True, "gradient_checkpointing": True},
    ),
    "activations of EuroBERT, fp32, ZeRO 1": Way(8_000, {**SMALL, "family": "eurobert"}, 1),
    "contrast in one pass": Way(500, FLAT, 1, rows=1024, micro_batch=1024, length=16, train=DENSE, blocks=CONTRAST),
    "contrast in two passes, which compare more than they keep": Way(
        500, FLAT, 0, rows=1536, micro_batch=96, length=16, train=DENSE, blocks=CONTRAST
    ),
    "contrast in two passes, which keep more than they compare": Way(8_000, SMALL, 2, rows=16, blocks=CONTRAST),
    "contrast on a dense mask": Way(2_000, SMALL, 1, train=DENSE, blocks=CONTRAST),
    "denoising alignment": Way(500, FLAT, 1, rows=64, micro_batch=64, length=256, blocks=POINTING),
    "denoising alignment of a deep encoder": Way(4_000, DEEP, 2, blocks=POINTING),
    "mDeBERTa": Way(2_000, {"init_from": "deberta"}, 1, blocks=CONTRAST),
    "mDeBERTa without dropout": Way(2_000, {"init_from": "deberta", "hidden_dropout_prob": 0.0}, 1, blocks=CONTRAST),
}


def write_deberta(folder: Path, vocab_size: int) -> None:
    """A folder of mDeBERTa's kind."""
    distances = {"relative_attention": True, "position_buckets": 32, "pos_att_type": ["p2c", "c2p"]}
    released = {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False}
    DebertaV2Model(DebertaV2Config(vocab_size=vocab_size, **SMALL, **distances, **released)).save_pretrained(folder)


@pytest.mark.parametrize("name", WAYS)
def test_the_planned_memory_is_within_15_percent_of_the_measured(one: Pool, name: str, tmp_path: Path) -> None:
    way = WAYS[name]
    model = dict(way.model)
    if "init_from" in model:
        write_deberta(tmp_path / "deberta", way.vocab_size)
        model["init_from"] = str(tmp_path / "deberta")
    train = {"max_steps": 3, "global_batch_size": way.rows, "per_device_batch_size": way.micro_batch, "eval_steps": 0}
    tree = {
        "data": {
            "corpora": [{"format": "text", "language": code, "paths": ["x"]} for code in ("en", "de")],
            "parallel": PAIRS if way.blocks else [],
            "tokenizer": {"kind": "bpe", "vocab_size": way.vocab_size},
            "max_seq_length": way.length,
        },
        "model": model,
        "train": train | {"retrieval_steps": 0, **way.train},
        "parallel": {"zero_stage": way.stage},
        **way.blocks,
    }
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(tree))
    recipe = load_recipe(str(file))
    subject = subject_of(recipe)
    assert not isinstance(subject, str)
    planned = memory_of(recipe.config, subject, on_gpu=False)
    (measured,) = one.call(peak, recipe.config, way.vocab_size)
    assert sum(planned.values()) == pytest.approx(measured, rel=0.15), planned
