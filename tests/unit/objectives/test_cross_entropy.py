"""The cross-entropy that overwrites its logits against torch's, which keeps them."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo as dynamo
import torch.nn.functional as F
from torch._dynamo.utils import counters
from torch.utils.checkpoint import checkpoint

from xalign_ray.objectives.objective import summed_cross_entropy


def drawn(rows: int, scale: float, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    logits = (scale * torch.randn(rows, 50, generator=random)).to(dtype).requires_grad_()
    return logits, torch.randint(0, 50, (rows,), generator=random)


@pytest.mark.parametrize("rows", [0, 1, 7])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0, 1e5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loss_and_gradient_are_torchs(rows: int, scale: float, dtype: torch.dtype) -> None:
    logits, labels = drawn(rows, scale, dtype)
    loss = summed_cross_entropy(logits * 1.0, labels)
    expected = F.cross_entropy(logits.float(), labels, reduction="sum")
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-5)
    ours, theirs = (torch.autograd.grad(3 * one, logits)[0] for one in (loss, expected))
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0, 1e5])
def test_compiled_half_precision_is_torchs(scale: float) -> None:
    dynamo.reset()
    counters.clear()
    for rows in (0, 7, 5, 30, 9, 12):
        logits, labels = drawn(rows, scale, torch.bfloat16)
        loss = summed_cross_entropy(logits * 1.0, labels, compiled=True)
        expected = F.cross_entropy(logits.float(), labels, reduction="sum")
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-5)
        ours, theirs = (torch.autograd.grad(3 * one, logits)[0] for one in (loss, expected))
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-6)
    assert counters["stats"]["unique_graphs"] == 2  # one for the sum, one for its factor, whatever the rows


def test_pieces_past_the_vocabulary_change_nothing_compiled_or_not() -> None:
    logits, labels = drawn(7, 1.0, torch.bfloat16)
    padded = F.pad(logits.detach(), (0, 14), value=-torch.inf).requires_grad_()
    for compiled in (False, True):
        loss = summed_cross_entropy(padded * 1.0, labels, compiled)
        torch.testing.assert_close(loss, F.cross_entropy(logits.float(), labels, reduction="sum"))
        (gradient,) = torch.autograd.grad(loss, padded)
        assert gradient[:, 50:].eq(0).all()


def test_the_log_of_a_chance_that_is_0_in_fp32() -> None:
    logits = torch.tensor([[500.0, 0.0, 0.0]], requires_grad=True)
    loss = summed_cross_entropy(logits + 0, torch.tensor([1]))
    assert loss.item() == 500
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.tolist() == [[1.0, -1.0, 0.0]]


def test_what_is_not_finite_stays_so() -> None:
    for bad in (torch.inf, torch.nan):
        logits = torch.zeros(2, 3)
        logits[0, 1] = bad
        assert not summed_cross_entropy(logits, torch.tensor([0, 0])).isfinite()


def test_made_again_going_backward_it_is_the_same() -> None:
    logits, labels = drawn(5, 1.0)
    again = checkpoint(lambda given: summed_cross_entropy(given * 1.0, labels), logits, use_reentrant=False)
    expected = F.cross_entropy(logits, labels, reduction="sum")
    ours, theirs = (torch.autograd.grad(one, logits)[0] for one in (again, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_whoever_needs_the_logits_afterwards_is_stopped() -> None:
    weights = torch.ones(3, requires_grad=True)
    logits = weights.exp()[None] * 1.0
    kept = logits * logits  # its backward pass reads them
    loss = summed_cross_entropy(logits, torch.tensor([0]))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (loss + kept.sum()).backward()
