"""Each loss trains alike at every ZeRO stage, for any cut of a step into workers and micro-steps, and after a stop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_steps import TIGHT, run, train, train_until

MASKED = {"kind": "masked_lm"}
QUEUE = {"queue_size": 40, "projection": 8, "momentum": 0.9, "temperature": 0.2}
LOSSES = {
    "word_exchange": [MASKED, {"kind": "word_exchange"}],
    "word_exchange, literal": [MASKED, {"kind": "word_exchange", "normalize": "sum", "unaligned": "literal"}],
    "momentum_contrast": [MASKED, {"kind": "momentum_contrast", **QUEUE}],
    "momentum_contrast, filled": [MASKED, {"kind": "momentum_contrast", "queue_start": "fill", **QUEUE}],
    "momentum_contrast, mean": [{"kind": "momentum_contrast", "pooling": "mean", "normalize": "both", **QUEUE}],
    "contextual alignment": [MASKED, {"kind": "dictionary_alignment", "layer": 1, "pairs_per_step": 7}],
}
TOGETHER = [
    MASKED | {"weight": [[0, 1.0], [4, 0.5]]},
    {"kind": "dictionary_alignment"},
    {"kind": "word_exchange"},
    {"kind": "momentum_contrast", **QUEUE},
    {"kind": "sentence_contrast"},
]


@pytest.mark.parametrize("name", LOSSES)
def test_one_worker_two_and_micro_steps_train_alike(one: Pool, two: Pool, tmp_path: Path, name: str):
    settings = {
        "objectives": LOSSES[name],
        "model__hidden_dropout_prob": 0.0,
        "parallel__zero_stage": 0,
        "train__global_batch_size": 10,
    }
    apart = run(two, tmp_path / "two", **settings, train__per_device_batch_size=5)
    whole = run(one, tmp_path / "whole", **settings, train__per_device_batch_size=10)
    parts = run(one, tmp_path / "parts", **settings, train__per_device_batch_size=4)
    assert len(set(whole)) == 6
    np.testing.assert_allclose(apart, whole, rtol=0, atol=1e-5)
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-5)
    told = [synthetic.steps(tmp_path / folder)[-1]["metrics"] for folder in ("two", "whole", "parts")]
    for key in (
        key for key in told[1] if key.startswith(("train/loss", "train/momentum", "train/align", "train/sent"))
    ):
        assert [metrics[key] for metrics in told] == pytest.approx([told[1][key]] * 3, abs=2e-5), key


@pytest.mark.parametrize("name", ["word_exchange", "momentum_contrast", "contextual alignment"])
def test_every_zero_stage_trains_alike(two: Pool, tmp_path: Path, name: str):
    settings = {"objectives": LOSSES[name], "train__max_steps": 4}
    whole = run(two, tmp_path / "0", **settings, parallel__zero_stage=0)
    for stage in (1, 2) if name == "momentum_contrast" else (1, 2, 3):
        overrides = TIGHT if stage == 3 else {}
        sharded = run(
            two, tmp_path / f"{stage}", **settings, parallel__zero_stage=stage, parallel__deepspeed_overrides=overrides
        )
        np.testing.assert_allclose(sharded, whole, rtol=0, atol=5e-6)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_all_losses_with_dropout_go_on_to_the_last_bit_queue_and_average_too(two: Pool, tmp_path: Path, stage: int):
    settings = {"objectives": TOGETHER, "parallel__zero_stage": stage, "checkpoint__save_steps": 3}
    settings |= {"train__per_device_batch_size": 2}
    straight = run(two, tmp_path / "straight", **settings)
    with pytest.raises(synthetic.Interrupted):
        two.call(train_until, tmp_path / "cut", settings, 5)
    assert run(two, tmp_path / "cut", **settings) == straight
    states = [synthetic.weights(tmp_path / name) for name in ("straight", "cut")]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert states[0]["losses.momentum_contrast.queue.entered"] > 40  # it has gone round
    assert (states[0]["losses.momentum_contrast.queue.hashes"] > 0).all()


@pytest.mark.parametrize("stage", [0, 2])
def test_the_queue_goes_on_with_another_number_of_workers(one: Pool, two: Pool, tmp_path: Path, stage: int):
    settings = {"objectives": TOGETHER, "parallel__zero_stage": stage, "model__hidden_dropout_prob": 0.0}
    settings |= {"checkpoint__save_steps": 3}
    straight = run(one, tmp_path / "straight", **settings)
    with pytest.raises(synthetic.Interrupted):
        two.call(train_until, tmp_path / "changed", settings, 3)
    assert run(one, tmp_path / "changed", **settings) == pytest.approx(straight, abs=1e-5)
    states = [synthetic.weights(tmp_path / name) for name in ("straight", "changed")]
    for name in ("queue.keys", "queue.hashes", "queue.entered", "average.tower.project.0.weight"):
        key = f"losses.momentum_contrast.{name}"
        torch.testing.assert_close(states[0][key], states[1][key], rtol=0, atol=1e-4)


def test_logged_loss_uses_the_weights_of_its_step(one: Pool, tmp_path: Path):
    losses = [MASKED, {"kind": "dictionary_alignment", "weight": [[1, 0.0], [3, 4.0]]}]
    one.call(train, tmp_path, {"objectives": losses})
    for step, weight in enumerate((0.0, 0.0, 2.0, 4.0, 4.0, 4.0)):
        metrics = synthetic.steps(tmp_path)[step]["metrics"]
        assert ("train/loss_dictionary_alignment" in metrics) == (weight > 0)  # a loss of no weight is not computed
        parts = metrics["train/loss_masked_lm"] + weight * metrics.get("train/loss_dictionary_alignment", 0.0)
        assert metrics["train/loss"] == pytest.approx(parts, abs=1e-9)


def test_in_half_precision_queue_and_average_stay_in_fp32_and_move(two: Pool, tmp_path: Path):
    settings = {"objectives": TOGETHER, "parallel__zero_stage": 1, "train__bf16": True, "train__max_steps": 3}
    run(two, tmp_path, **settings)
    state = synthetic.weights(tmp_path)
    for name in ("queue.keys", "average.tower.encoder.hf.bert.embeddings.word_embeddings.weight"):
        values = state[f"losses.momentum_contrast.{name}"]
        assert not torch.equal(values, values.bfloat16().float())


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_states_of_an_earlier_layer_are_the_same_at_stage_3(two: Pool, tmp_path: Path, family: str):
    """The encoder ends there for that loss, while masked LM goes on to the last layer and its norm."""
    deep = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    settings = {
        "model": deep | {"family": family, "hidden_dropout_prob": 0.0},
        "objectives": [{"kind": "masked_lm"}, {"kind": "dictionary_alignment", "layer": 1}],
        "train__max_steps": 3,
    }
    whole = run(two, tmp_path / "0", parallel__zero_stage=0, **settings)
    tight = {"parallel__zero_stage": 3, "parallel__deepspeed_overrides": TIGHT}
    np.testing.assert_allclose(run(two, tmp_path / "3", **tight, **settings), whole, rtol=0, atol=2e-6)
