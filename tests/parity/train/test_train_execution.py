"""However the encoder is run, by whatever attention, compiled or made again going backward, it learns the same."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_losses import MASKED, QUEUE, TOGETHER
from tests.parity.train.test_train_steps import TIGHT, run
from xalign_ray.config.derive import choose_attention
from xalign_ray.config.identity import run_fingerprint
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.attention import DENSE, VARLEN
from xalign_ray.models.encoder import READ, AlignedEncoder
from xalign_ray.track.events import read_events
from xalign_ray.train import engine
from xalign_ray.train.loop import build_model
from xalign_ray.train.step import tensors

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def at_stage(stage: int) -> dict[str, object]:
    return {"parallel__zero_stage": stage} | (
        {"parallel__deepspeed_overrides": TIGHT} if stage == 3 else {"objectives": TOGETHER}
    )


@pytest.mark.parametrize(("stage", "bf16"), [(0, False), (1, True), (2, False), (3, True)])
def test_without_padding_it_learns_what_it_learns_under_a_mask(two: Pool, tmp_path: Path, stage: int, bf16: bool):
    settings = at_stage(stage) | {"model__hidden_dropout_prob": 0.0, "train__bf16": bf16}
    masked = run(two, tmp_path / "dense", **settings, train__attention="dense")
    varlen = run(two, tmp_path / "varlen", **settings, train__attention="varlen")
    assert varlen == pytest.approx(masked, abs=0.02 if bf16 else 2e-5)
    for name in ("dense", "varlen"):
        started = next(event for event in read_events(tmp_path / name / "events.jsonl") if event["event"] == "start")
        assert started["execution"] == f"{name} attention" + (", bf16" if bf16 else "")
    if not bf16:
        for name, given in synthetic.weights(tmp_path / "dense").items():
            torch.testing.assert_close(synthetic.weights(tmp_path / "varlen")[name], given, rtol=0, atol=2e-4)


@pytest.mark.parametrize(("stage", "attention"), [(0, "dense"), (2, "varlen"), (3, "dense"), (3, "varlen")])
def test_activations_made_again_are_the_same_to_the_last_bit(two: Pool, tmp_path: Path, stage: int, attention: str):
    settings = at_stage(stage) | {"train__attention": attention}
    kept = run(two, tmp_path / "kept", **settings)
    assert run(two, tmp_path / "again", **settings, train__gradient_checkpointing=True) == kept


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_weights_that_no_loss_reads_end_alike_at_every_stage(two: Pool, tmp_path: Path, kind: str):
    optimizer = {"kind": kind, "learning_rate": 0.01, "weight_decay": 1.0}
    contrast = [{"kind": "sentence_contrast", "layer": 1}]
    model = {"model__num_hidden_layers": 2, "model__hidden_dropout_prob": 0.0}
    settings = {"objectives": contrast, "train__optimizer": optimizer, **model}
    alone = Pool(1)
    run(alone, tmp_path / "0", **settings, parallel__zero_stage=0)
    run(two, tmp_path / "2", **settings, parallel__zero_stage=2)
    alone.close()
    (whole, parts) = (synthetic.weights(tmp_path / str(stage)) for stage in (0, 2))
    for name, weight in whole.items():
        torch.testing.assert_close(parts[name], weight, rtol=0, atol=2e-4, msg=name)


def test_compiled_it_learns_the_same(tmp_path: Path):
    alone = Pool(1)  # others are to show that a worker does without the compiler
    settings = {"model__hidden_dropout_prob": 0.0, "parallel__zero_stage": 2, "objectives": TOGETHER}
    eager = run(alone, tmp_path / "eager", **settings)
    compiled = run(alone, tmp_path / "compiled", **settings, train__torch_compile=True)
    alone.close()
    assert compiled == pytest.approx(eager, abs=2e-5)


def test_of_rows_of_every_size_few_graphs_are_compiled():
    config = synthetic.config(train__torch_compile=True, model__hidden_dropout_prob=0.0)
    encoder = encoder_of(config)
    counters.clear()
    for rows in range(2, 9):
        encoder.encode(zeros(rows, synthetic.ROW - rows)).sum().backward()
    assert 1 <= counters["stats"]["unique_graphs"] <= 2


def test_modernbert_compiled_without_a_norm_and_its_copy_compute_as_it_does(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    given = {"model__family": "modernbert", "model__hidden_dropout_prob": 0.0, "model__num_hidden_layers": 4}
    plain, compiled = (encoder_of(synthetic.config(**given, train__torch_compile=one)) for one in (False, True))
    batch = zeros(2, 8)
    counters.clear()
    assert torch.equal(compiled.encode(batch), plain.encode(batch))
    assert counters["stats"]["unique_graphs"] == 1
    kept = {}
    for again in (False, True):
        one = encoder_of(synthetic.config(**given, train__torch_compile=True, train__gradient_checkpointing=again))
        kept[again] = saved_bytes(one.train(), batch)
    assert kept[True] < 0.5 * kept[False]
    tower = copy.deepcopy(compiled)  # as the key encoder of momentum contrast is made
    for encoder in (tower, plain):
        for weight in encoder.parameters():
            weight.data.mul_(1.5)
    assert torch.equal(tower.encode(batch), plain.encode(batch))


@pytest.mark.parametrize("attention", ["dense", "varlen"])
@pytest.mark.parametrize("other", [[MASKED], [{"kind": "dictionary_alignment"}], []])
def test_queries_are_encoded_with_the_rows_that_another_loss_predicts(attention: str, other: list[dict[str, Any]]):
    asked = [*other, {"kind": "momentum_contrast", **QUEUE}]
    config = synthetic.config(train__attention=attention, model__hidden_dropout_prob=0.0, objectives=asked)
    objectives = build_model(config, synthetic.SyntheticRows(), CPU)
    live, calls = cast(AlignedEncoder, objectives.encoder), []
    live.hf.base_model.register_forward_hook(lambda *_: calls.append(1))
    batch = tensors(synthetic.rows(np.arange(8)), CPU, objectives.extra_columns)

    def learned() -> tuple[dict[str, float], list[torch.Tensor]]:
        calls.clear()
        objectives.zero_grad(set_to_none=True)
        sums = objectives(batch, (0, 1), 0)
        torch.stack(list(sums.values())).sum().backward()
        grads = [weight.grad.clone() for weight in objectives.parameters() if weight.grad is not None]
        return {kind: value.item() for kind, value in sums.items()}, grads

    sums, gradients = learned()
    assert len(calls) == 1
    objectives.beside = ()
    apart, expected = learned()
    assert len(calls) == (2 if other == [MASKED] else 1)
    assert sums == pytest.approx(apart, rel=1e-5)
    for found, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_where_labels_are_scored_no_query_is_encoded():
    config = synthetic.config(train__attention="dense", objectives=[MASKED, {"kind": "momentum_contrast", **QUEUE}])
    objectives, rows = build_model(config, synthetic.SyntheticRows(), CPU), []
    encoder = cast(AlignedEncoder, objectives.encoder)
    encoder.hf.get_input_embeddings().register_forward_hook(lambda _, given, __: rows.append(len(given[0])))
    batch = tensors(synthetic.rows(np.arange(8)), CPU, objectives.extra_columns)
    objectives(batch, (0, 1), 0, of_labels="masked_lm")
    objectives(batch, (0, 1), 0)
    assert rows == [8, 16]


def test_a_layer_runs_again_going_backward():
    for again, expected in ((False, 1), (True, 2)):
        encoder, calls = encoder_of(synthetic.config(train__gradient_checkpointing=again)), []
        encoder.hf.bert.encoder.layer[0].intermediate.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        encoder.train().encode(zeros(2, 8)).sum().backward()
        assert len(calls) == expected


def test_auto_attention_is_dense_where_varlen_goes_example_by_example():
    def chosen(device: torch.device, **train: object) -> str:
        config = synthetic.config(**{f"train__{key}": value for key, value in train.items()})
        return choose_attention(config.train, device.type != "cpu")

    assert chosen(CPU) == chosen(CPU, bf16=True) == chosen(GPU, bf16=True) == "varlen"
    assert chosen(GPU, bf16=True, torch_compile=True) == chosen(CPU, attention="varlen", torch_compile=True) == "varlen"
    assert chosen(GPU) == chosen(CPU, torch_compile=True) == chosen(CPU, attention="dense") == "dense"
    assert choose_attention(synthetic.config().train, False, dense_only=True) == "dense"
    with pytest.raises(ConfigError, match=r"train\.attention is varlen, which a GPU computes in bf16 alone"):
        chosen(GPU, attention="varlen")


def load_for_a_gpu(_workers) -> None:
    from deepspeed.accelerator import set_accelerator
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    set_accelerator(CUDA_Accelerator())


@pytest.mark.parametrize("stage", [1, 3])
def test_it_trains_on_its_device_whichever_deepspeed_was_loaded_for(one: Pool, tmp_path: Path, stage: int):
    settings: dict[str, Any] = {"parallel__zero_stage": stage, "train__max_steps": 2}
    expected = run(one, tmp_path / "before", **settings)
    one.call(load_for_a_gpu)  # as an export on the CPU does before a training on a GPU, the other way round
    assert run(one, tmp_path / "after", **settings) == expected


def test_a_gpu_without_bf16_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100")
    engine.check_precision(synthetic.config().train, GPU)
    with pytest.raises(ConfigError, match=r"^Tesla V100 has no bf16, .*; set train\.bf16=false for fp32\.$"):
        engine.check_precision(synthetic.config(train__bf16=None).train, GPU)


def test_how_it_is_run_is_said_and_changes_no_fingerprint():
    plain = synthetic.config()
    other = synthetic.config(train__attention="dense", train__gradient_checkpointing=True, train__torch_compile=True)
    said = [engine.describe(config.train, CPU, dense_only=False) for config in (plain, other)]
    assert said == ["varlen attention", "dense attention, gradient checkpointing, compiled"]
    assert encoder_of(plain).hf.config._attn_implementation == VARLEN
    assert encoder_of(other).hf.config._attn_implementation == DENSE
    assert run_fingerprint(plain, "") == run_fingerprint(other, "") != run_fingerprint(synthetic.config(seed=4), "")


def zeros(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Rows of one example of one piece."""
    nothing = torch.zeros(rows, length, dtype=torch.int64)
    return dict.fromkeys(READ, nothing) | {"example_ids": torch.ones_like(nothing)}


def saved_bytes(encoder: AlignedEncoder, batch: dict[str, torch.Tensor]) -> int:
    """What a forward pass keeps for the backward pass beside the weights."""
    weights, kept = {weight.data_ptr() for weight in encoder.parameters()}, {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        encoder.encode(batch)
    return sum(kept.values())


def encoder_of(config: RunConfig) -> AlignedEncoder:
    return cast(AlignedEncoder, build_model(config, synthetic.SyntheticRows(), CPU).encoder)
