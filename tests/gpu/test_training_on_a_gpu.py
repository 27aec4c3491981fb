"""Training on one GPU learns what training on the CPU learns, by every objective, stage, precision and attention."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.gpu.device import DEVICE
from tests.parity.train import synthetic
from tests.parity.train.pool import Pool
from tests.parity.train.test_train_contrast import SETTINGS as CONTRAST_SETTINGS
from tests.parity.train.test_train_contrast import assert_same, one_graph, step_of
from tests.parity.train.test_train_losses import LOSSES, MASKED, TOGETHER
from xalign_ray.models.attention import attention_by_example, flash_attention, implementation
from xalign_ray.streams.collate import IGNORED
from xalign_ray.track.events import read_events
from xalign_ray.train.loop import build_model
from xalign_ray.train.scoring import KIND
from xalign_ray.train.step import compare_over_ranks, tensors
from xalign_ray.work.run_folder import RunFolder

pytestmark = pytest.mark.gpu
EXACT: dict[str, Any] = {"train__tf32": False, "model__hidden_dropout_prob": 0.0}
ROUNDING = 1e-4  # of losses in fp32, between devices
ALL = {"masked_lm": [MASKED], "dictionary_alignment": [MASKED, {"kind": "dictionary_alignment"}], **LOSSES}
LAMB = {"kind": "lamb", "learning_rate": 1e-2}


def train(workers, folder: Path, settings: dict[str, Any], until: int = 0) -> None:
    config = synthetic.config(parallel__gpus_per_worker=int(workers.on_gpu), **settings)
    if not until:
        synthetic.run(config, folder, workers)
        return
    with pytest.raises(synthetic.Interrupted):
        synthetic.run_until(until, config, folder, workers)


def losses(pool: Pool, folder: Path, **settings: Any) -> list[float]:
    pool.call(train, folder, settings)
    return synthetic.losses(folder)


def forward_without_a_wait(workers, objectives: list[dict[str, Any]]) -> None:
    """A forward pass in which torch raises where it would wait for the GPU."""
    module = build_model(synthetic.config(objectives=objectives), synthetic.SyntheticRows()).to(workers.device)
    module.encoder.attend(implementation("varlen"))
    batch = tensors(synthetic.rows(np.arange(8)), workers.device, module.extra_columns)
    with torch.autocast(workers.device.type, torch.bfloat16):
        module(batch, (0, 1), 0)  # kernels are loaded now
        if workers.on_gpu:
            torch.cuda.set_sync_debug_mode("error")
        try:
            module(batch, (0, 1), 1)
        finally:
            if workers.on_gpu:
                torch.cuda.set_sync_debug_mode("default")


def hashes(folder: Path) -> list[int]:
    return [event["batch_hash"] for event in synthetic.steps(folder)]


def where(workers) -> tuple[str, str, float]:
    """The device, the backend of its tensors, and a sum over the job by way of either."""
    given = torch.ones(3, device=workers.device)
    total = workers.sum([1.0, 2.0])[1] + float(workers.sum_on_device(given).sum())
    return workers.device.type, dist.get_backend(dist.group.WORLD), total + len(workers.gather("x"))


def test_the_group_of_one_gpu_sums_on_the_device_and_on_the_host(gpu: Pool):
    ((device, backend, total),) = gpu.call(where)
    assert (device, total) == (DEVICE, 2.0 + 3.0 + 1.0)
    assert backend == ("cpu:gloo,cuda:nccl" if DEVICE == "cuda" else "gloo")


@pytest.mark.parametrize("name", ALL)
def test_every_objective_learns_what_it_learns_on_the_cpu(gpu: Pool, one: Pool, tmp_path: Path, name: str):
    settings = EXACT | {"objectives": ALL[name], "parallel__zero_stage": 0, "train__eval_steps": 3}
    expected = losses(one, tmp_path / "cpu", **settings)
    assert losses(gpu, tmp_path / "gpu", **settings) == pytest.approx(expected, abs=ROUNDING)
    assert hashes(tmp_path / "gpu") == hashes(tmp_path / "cpu")


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"word_exchange"}))  # it asks the GPU which labels have a partner
def test_a_forward_pass_does_not_wait_for_the_gpu(gpu: Pool, name: str):
    gpu.call(forward_without_a_wait, ALL[name])


@pytest.mark.parametrize(
    "way",
    [
        {"train__attention": "dense"},
        {"train__attention": "dense", "train__bf16": True},
        {"train__attention": "varlen", "train__bf16": True},
        {"train__attention": "varlen", "train__bf16": True, "train__gradient_checkpointing": True},
        {"train__attention": "varlen", "train__bf16": True, "train__torch_compile": True},
    ],
    ids=lambda way: ", ".join(str(value) for value in way.values()),
)
def test_both_passes_of_a_contrast_draw_the_same_dropout(gpu: Pool, way: dict[str, Any]):
    settings = CONTRAST_SETTINGS | way | {"model__hidden_dropout_prob": 0.3, "train__per_device_batch_size": 4}
    settings |= {"parallel__zero_stage": 0, "train__tf32": False}
    ((losses, gradients),) = gpu.call(one_graph, settings, 1)
    assert_same(gpu.call(step_of, settings), losses, gradients, 5e-3 if way.get("train__bf16") else 1e-5)


def compare_without_a_wait(workers) -> None:
    """A comparison over the workers, in which torch raises where it would wait for the GPU."""
    objectives = build_model(synthetic.config(objectives=[{"kind": "sentence_contrast"}]), synthetic.SyntheticRows())
    vectors, marks = torch.randn(9, 32, device=workers.device), torch.arange(18, device=workers.device).view(9, 2)
    totals: Any = SimpleNamespace(by_rank={"sentence_contrast": [9]})
    loss: Any = objectives.losses["sentence_contrast"]
    for mode in ("default", "error"):  # kernels and the group are loaded in the first
        if workers.on_gpu:
            torch.cuda.set_sync_debug_mode(mode)
        try:
            compare_over_ranks(loss, vectors, marks, totals, workers)
        finally:
            if workers.on_gpu:
                torch.cuda.set_sync_debug_mode("default")


def test_a_comparison_over_the_workers_does_not_wait_for_the_gpu(gpu: Pool):
    gpu.call(compare_without_a_wait)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_zero_stage_learns_what_the_cpu_learns(gpu: Pool, one: Pool, tmp_path: Path, stage: int):
    objectives = [loss for loss in TOGETHER if stage < 3 or loss["kind"] != "momentum_contrast"]
    expected = losses(one, tmp_path / "cpu", **EXACT, objectives=objectives, parallel__zero_stage=0)
    given = losses(gpu, tmp_path / "gpu", **EXACT, objectives=objectives, parallel__zero_stage=stage)
    assert given == pytest.approx(expected, abs=ROUNDING)
    norms = [[e["metrics"]["train/gradient_norm"] for e in synthetic.steps(tmp_path / way)] for way in ("cpu", "gpu")]
    np.testing.assert_allclose(norms[1], norms[0], rtol=1e-3)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_in_bf16_fifty_steps_stay_within_two_percent(gpu: Pool, tmp_path: Path, stage: int):
    settings = EXACT | {"train__max_steps": 50, "parallel__zero_stage": stage}
    whole = losses(gpu, tmp_path / "fp32", **settings)
    half = losses(gpu, tmp_path / "bf16", **settings, train__bf16=True)
    assert half[-1] < half[0] - 0.5
    assert half[0] != whole[0]  # bf16 that silently is fp32 would be equal
    np.testing.assert_allclose(half, whole, rtol=0.02)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("bf16", [False, True])
def test_lamb_learns_the_same_at_every_stage(gpu: Pool, tmp_path: Path, stage: int, bf16: bool):
    settings = EXACT | {"train__optimizer": LAMB, "train__bf16": bf16, "train__max_steps": 20}
    whole = losses(gpu, tmp_path / "0", **settings, parallel__zero_stage=0)
    given = losses(gpu, tmp_path / f"{stage}", **settings, parallel__zero_stage=stage)
    assert given == pytest.approx(whole, abs=0.05 if bf16 else ROUNDING)


@pytest.mark.skipif(DEVICE == "cpu", reason="torch has this operation for GPUs alone")
@pytest.mark.parametrize("window", [None, 4])
def test_flash_attention_is_the_formula_and_its_dropout_keeps_the_mean(window: int | None):
    lengths = [1, 9, 4, 30, 2]
    offsets = torch.tensor([0, *lengths]).cumsum(0).int()
    tokens = [torch.randn(sum(lengths), 3, 8, dtype=torch.bfloat16, device=DEVICE, requires_grad=True) for _ in "qkv"]

    def flash(dropout: float) -> torch.Tensor:
        return flash_attention(*tokens, offsets.to(DEVICE), 30, dropout, 0.3, window)

    expected = attention_by_example(*(one.float() for one in tokens), offsets, 0.0, 0.3, window)
    given = flash(0.0)
    torch.testing.assert_close(given.float(), expected, atol=0.03, rtol=0.02)
    way = torch.randn_like(expected)
    gradients = (torch.autograd.grad((one.float() * way).sum(), tokens) for one in (given, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=0.06, rtol=0.05)
    with torch.no_grad():
        mean = torch.stack([flash(0.25).float() for _ in range(400)]).mean(0)
        assert not torch.equal(flash(0.25), flash(0.25))
    torch.testing.assert_close(mean, expected, atol=0.35, rtol=0)


@pytest.mark.parametrize("bf16", [False, True])
def test_modernbert_with_windows_and_dropout_trains_unpadded(gpu: Pool, tmp_path: Path, bf16: bool):
    settings = {"model__family": "modernbert", "train__bf16": bf16, "train__max_steps": 20}
    masked = losses(gpu, tmp_path / "dense", **settings, train__attention="dense")
    chosen = losses(gpu, tmp_path / "auto", **settings)
    assert chosen == pytest.approx(masked, abs=0.2)  # another draw of dropout


def test_unpadded_attention_learns_what_the_mask_learns(gpu: Pool, tmp_path: Path):
    settings = EXACT | {"train__bf16": True, "train__max_steps": 20}
    masked = losses(gpu, tmp_path / "dense", **settings, train__attention="dense")
    varlen = losses(gpu, tmp_path / "varlen", **settings, train__attention="varlen")
    assert varlen == pytest.approx(masked, abs=0.02)


@pytest.mark.parametrize("attention", ["dense", "varlen"])
def test_compiled_it_learns_what_it_learns_eager(gpu: Pool, tmp_path: Path, attention: str):
    settings = EXACT | {"train__attention": attention, "train__bf16": True, "train__max_steps": 10}
    eager = losses(gpu, tmp_path / "eager", **settings)
    compiled = losses(gpu, tmp_path / "compiled", **settings, train__torch_compile=True)
    assert compiled == pytest.approx(eager, abs=0.02)


def test_activations_made_again_are_the_same(gpu: Pool, tmp_path: Path):
    kept = losses(gpu, tmp_path / "kept", **EXACT)
    again = losses(gpu, tmp_path / "again", **EXACT, train__gradient_checkpointing=True)
    assert again == pytest.approx(kept, abs=ROUNDING)


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_resumed_it_goes_on_as_a_second_run_of_the_same_would(gpu: Pool, tmp_path: Path, stage: int):
    settings = {"parallel__zero_stage": stage, "checkpoint__save_steps": 3, "train__bf16": True}
    straight, second = (losses(gpu, tmp_path / name, **settings) for name in ("straight", "second"))
    gpu.call(train, tmp_path / "cut", settings, 4)
    resumed = losses(gpu, tmp_path / "cut", **settings)
    apart = max(abs(one - other) for one, other in zip(straight, second, strict=True))
    assert resumed == pytest.approx(straight, abs=2 * apart + 1e-6)
    assert hashes(tmp_path / "cut") == hashes(tmp_path / "straight")


def test_a_checkpoint_written_behind_training_is_the_one_that_standing_still_writes(gpu: Pool, tmp_path: Path):
    settings = EXACT | {"checkpoint__save_steps": 2, "checkpoint__save_total_limit": 9}
    for name, behind in (("still", False), ("behind", True)):
        gpu.call(train, tmp_path / name, settings | {"checkpoint__async_save": behind})
    for step in (2, 4, 6):
        still, behind = (tmp_path / name / "checkpoints" / f"step_{step:06}" for name in ("still", "behind"))
        file = "state/mp_rank_00_model_states.pt"
        expected, given = (torch.load(at / file, weights_only=False)["module"] for at in (still, behind))
        for name, value in expected.items():
            torch.testing.assert_close(given[name], value, rtol=0, atol=1e-5)
            assert not given[name].is_cuda


def test_the_weights_that_are_exported_are_those_that_were_scored(gpu: Pool, tmp_path: Path):
    gpu.call(train, tmp_path, EXACT | {"train__eval_steps": 6})
    (event,) = (event for event in read_events(tmp_path / "events.jsonl") if event["event"] == "held_out")
    module = build_model(synthetic.config(**EXACT), synthetic.SyntheticRows()).eval()
    module.load_state_dict(synthetic.weights(tmp_path))
    ((language, rows),) = synthetic.SyntheticRows().held_out(0, 1, 10)
    with torch.no_grad():
        of_label = module(tensors(rows, torch.device("cpu")), (0, 1), 0, KIND)[KIND]
    asked = language[np.nonzero(rows["labels"] != IGNORED)[0]]
    means = [float(of_label[torch.from_numpy(asked == code)].mean()) for code in (0, 1)]
    assert event["metrics"]["held_out/loss"] == pytest.approx(np.mean(means), abs=ROUNDING)


def test_with_tf32_losses_stay_near(gpu: Pool, tmp_path: Path):
    exact = losses(gpu, tmp_path / "fp32", **EXACT)
    given = losses(gpu, tmp_path / "tf32", **{**EXACT, "train__tf32": True})
    assert given == pytest.approx(exact, abs=0.01)


def test_a_profile_has_the_times_of_the_device(gpu: Pool, tmp_path: Path):
    gpu.call(train, tmp_path, {"track": {"profile_steps": 2}})
    text = (RunFolder(tmp_path).profile / "summary.txt").read_text()
    assert "wait for the device" in text
    assert "backward" in text
    assert ("GPU ms" in text) == (DEVICE == "cuda")
