"""Attention over rows without padding: its operation on a GPU, its dropout; tests/parity compares it with a mask."""

from __future__ import annotations

import pytest
import torch

from xalign_ray.models import attention
from xalign_ray.models.attention import attention_by_example, varlen_attention

LENGTHS, HEADS, WIDTH, SCALE = [1, 9, 4, 30, 2], 3, 8, 0.3


def drawn() -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(sum(LENGTHS), HEADS, WIDTH, generator=random, requires_grad=True) for _ in range(3)]


def offsets() -> torch.Tensor:
    return torch.tensor([0, *LENGTHS]).cumsum(0).int()


def test_on_a_gpu_every_width_of_a_head_takes_the_flash_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = []

    def operation(q, k, v, offsets, _longest, dropout, scaling, window) -> torch.Tensor:
        widths.append(q.shape[-1])
        return attention_by_example(q, k, v, offsets, dropout, scaling, window)

    monkeypatch.setattr(attention, "FLASH_ON", {"cpu"})
    monkeypatch.setattr(attention, "flash_attention_of_packed", operation)
    tokens = [torch.randn(sum(LENGTHS), HEADS, 12).bfloat16() for _ in range(3)]
    given = [one.transpose(0, 1)[None] for one in tokens]
    out, _ = varlen_attention(None, *given, None, offsets(), max(LENGTHS))
    expected = attention_by_example(*tokens, offsets(), 0.0, None, None)
    assert widths == [16]
    torch.testing.assert_close(out[0], expected)
    query, key, value = given  # as of rotary positions under autocast
    mixed, _ = varlen_attention(None, query.float(), key.float(), value, None, offsets(), max(LENGTHS))
    assert (len(widths), mixed.dtype) == (2, torch.bfloat16)
    torch.testing.assert_close(mixed, out)


def test_dropout_keeps_the_mean() -> None:
    tokens = [one.detach() for one in drawn()]
    torch.manual_seed(0)

    def dropped() -> torch.Tensor:
        return attention_by_example(*tokens, offsets(), 0.25, SCALE, None)

    mean = torch.stack([dropped() for _ in range(400)]).mean(0)
    assert not torch.equal(dropped(), dropped())
    torch.testing.assert_close(mean, attention_by_example(*tokens, offsets(), 0.0, SCALE, None), atol=0.35, rtol=0)
