"""bf16 keeps to fp32 and whole weights at every ZeRO stage; LAMB is the same whatever part of a tensor a rank has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_losses import TOGETHER
from tests.parity.train.test_train_steps import TIGHT, run, train_until
from xalign_ray.track.events import read_events
from xalign_ray.train.engine import Engine
from xalign_ray.train.loop import build_model
from xalign_ray.train.scoring import held_out_losses, retrieval_accuracies
from xalign_ray.train.step import tensors

LAMB = {"train__optimizer": {"kind": "lamb", "learning_rate": 0.02, "weight_decay": 0.3}}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_bf16_keeps_to_fp32_and_to_whole_weights(two: Pool, tmp_path: Path, stage: int):
    settings = {"parallel__zero_stage": stage, "model__hidden_dropout_prob": 0.0, "train__max_steps": 12}
    settings |= {"parallel__deepspeed_overrides": TIGHT} if stage == 3 else {"objectives": TOGETHER}
    plain = run(two, tmp_path / "plain", **settings)
    half = run(two, tmp_path / "half", **settings, train__bf16=True)
    assert half != plain
    np.testing.assert_allclose(half, plain, rtol=0, atol=0.03)  # of a loss that falls by twelve
    trained, rounded = synthetic.weights(tmp_path / "half"), 0
    for name, given in synthetic.weights(tmp_path / "plain").items():
        if name.endswith("query.weight"):
            assert trained[name].dtype == torch.float32
            rounded += torch.equal(trained[name], trained[name].bfloat16().float())
            # Twelve steps of at most 1e-3 or so each: one too many, or decay twice, would show.
            torch.testing.assert_close(trained[name], given, rtol=0, atol=4e-3)
    assert not rounded


def scores_of(workers, folder: Path) -> list[dict[str, float]]:
    """Held-out losses and retrieval of a run's weights in a training in fp32."""
    config, rows = synthetic.config(parallel__zero_stage=0, parallel__workers=workers.size), synthetic.SyntheticRows()
    module = build_model(config, rows)
    module.load_state_dict(synthetic.weights(folder))
    engine, batches = Engine(module, config, workers), rows.held_out(workers.rank, workers.size, 8)
    losses = held_out_losses(engine, batches, rows.languages, workers)
    return [
        losses,
        retrieval_accuracies(engine, rows.read_tests("tests", ("", "")), rows.languages, workers, "mean", 64),
    ]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_training_in_bf16_is_scored_in_fp32(two: Pool, tmp_path: Path, stage: int):
    scored = {"train__eval_steps": 3, "train__retrieval_steps": 3}
    run(two, tmp_path, parallel__zero_stage=stage, train__bf16=True, **scored)
    of_kind = {event["event"]: event["languages"] for event in read_events(tmp_path / "events.jsonl")[-10:]
               if "languages" in event}  # fmt: skip
    losses, found = two.call(scores_of, tmp_path)[0]
    assert of_kind["held_out"] == pytest.approx(losses, abs=1e-5)
    assert of_kind["retrieval"] == found


def types_of_products(workers, stage: int, autocast_of_gpus: bool) -> set[torch.dtype]:
    """In what the encoder's linear layers compute, and DeepSpeed believing what it reads of a GPU's autocast."""
    config = synthetic.config(parallel__zero_stage=stage, train__bf16=True, parallel__workers=workers.size)
    module = build_model(config, synthetic.SyntheticRows())
    engine, seen = Engine(module, config, workers), set()
    for layer in module.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.register_forward_hook(lambda _module, _given, made: seen.add(made.dtype))
    torch.set_autocast_enabled("cuda", autocast_of_gpus)
    try:
        engine.forward(tensors(synthetic.rows(np.arange(4)), workers.device, module.extra_columns), (0, 1), 0)
    finally:
        torch.set_autocast_enabled("cuda", False)
    return seen


@pytest.mark.parametrize("autocast_of_gpus", [False, True])
@pytest.mark.parametrize("stage", [0, 1])
def test_bf16_products_are_in_bf16(one: Pool, stage: int, autocast_of_gpus: bool):
    assert one.call(types_of_products, stage, autocast_of_gpus) == [{torch.bfloat16}]


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
def test_lamb_moves_parts_of_tensors_as_whole_ones(two: Pool, tmp_path: Path, stage: int, bf16: bool):
    settings = LAMB | {"model__hidden_dropout_prob": 0.0, "objectives": TOGETHER, "train__bf16": bf16}
    whole = run(two, tmp_path / "whole", **settings, parallel__zero_stage=0)
    parts = run(two, tmp_path / "parts", **settings, parallel__zero_stage=stage)
    np.testing.assert_allclose(parts, whole, rtol=1e-2 if bf16 else 0, atol=0 if bf16 else 1e-5)
    if not bf16:
        for name, given in synthetic.weights(tmp_path / "whole").items():
            torch.testing.assert_close(synthetic.weights(tmp_path / "parts")[name], given, rtol=0, atol=2e-5)


@pytest.mark.parametrize(("stage", "bf16"), [(0, False), (0, True), (1, True), (2, False)])
def test_lamb_goes_on_to_the_last_bit(two: Pool, tmp_path: Path, stage: int, bf16: bool):
    settings = LAMB | {"parallel__zero_stage": stage, "train__bf16": bf16, "checkpoint__save_steps": 3}
    straight = run(two, tmp_path / "straight", **settings)
    assert straight[-1] < straight[0] - 0.05
    with pytest.raises(synthetic.Interrupted):
        two.call(train_until, tmp_path / "cut", settings, 5)
    assert run(two, tmp_path / "cut", **settings) == straight


def test_lamb_goes_on_with_another_number_of_workers(one: Pool, two: Pool, tmp_path: Path):
    settings = LAMB | {"parallel__zero_stage": 2, "model__hidden_dropout_prob": 0.0, "checkpoint__save_steps": 3}
    straight = run(one, tmp_path / "straight", **settings)
    with pytest.raises(synthetic.Interrupted):
        two.call(train_until, tmp_path / "changed", settings, 5)
    assert run(one, tmp_path / "changed", **settings) == pytest.approx(straight, abs=1e-5)


def kinds_of_fp32(_) -> tuple[str, str]:
    return torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision


def test_fp32_on_gpus_is_what_the_recipe_says_and_on_cpus_itself(one: Pool, tmp_path: Path):
    for tf32, expected in ((True, "tf32"), (False, "ieee")):
        run(one, tmp_path / expected, train__tf32=tf32, train__max_steps=1)
        assert one.call(kinds_of_fp32) == [(expected, "none")]
