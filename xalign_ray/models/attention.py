"""Attention within the examples of packed rows: under a dense mask, or over one row without padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from xalign_ray.private.torch import flash_attention_of_packed
from xalign_ray.streams.collate import IGNORED

# Places of tokens, examples and labels in packed rows; their shapes depend on the rows' content.


def layout(example_ids: Tensor) -> dict[str, Tensor]:
    """Places of the tokens of packed rows [B, L], and of the beginnings of examples.

    Computed on the host for whole batches: shapes that depend on content would make it wait for a GPU.

    Returns:
        `real_at`: the T positions that are no padding, in the flattened rows, int64 [T].
        `offsets`: where the n examples begin among these T, and T, int64 [n + 1].
    """
    flat = example_ids.flatten()
    real_at = (flat > 0).nonzero()[:, 0]
    width = example_ids.shape[1]
    numbers = real_at // width * (width + 1) + flat[real_at]  # a row has no more examples than tokens
    lengths = torch.unique_consecutive(numbers, return_counts=True)[1]
    return {"real_at": real_at, "offsets": F.pad(lengths.cumsum(0), (1, 0))}


def laid_out(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A batch with its `layout`, which rows that a loss has made lack."""
    return batch if "real_at" in batch else {**batch, **layout(batch["example_ids"])}


def labelled_at(labels: Tensor) -> Tensor:
    """Places of labels [B, L] that are not IGNORED, in the flattened rows: int64 [N]."""
    return (labels.flatten() != IGNORED).nonzero()[:, 0]


DENSE = "sdpa"  # takes boolean masks; eager attention would add them to the scores
OWN = "eager"  # the family's own code, which takes boolean masks too
VARLEN = "xalign_varlen"  # the name under which transformers registers `varlen_attention`
HALF = (torch.bfloat16, torch.float16)
FLASH_ON = {"cuda"}  # devices that have the flash operation


def implementation(kind: str) -> str:
    """Transformers' name for a recipe's `train.attention`, dense or varlen.

    Not its `flash_attention_2`: that takes half precision alone, and runs in fp32 ask for `varlen` too.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(VARLEN, varlen_attention)
    return DENSE if kind == "dense" else VARLEN


def same_example(example_ids: Tensor) -> Tensor:
    """Which tokens see each other, bool [B, 1, L, L], of packed rows [B, L].

    Padding (0) sees padding: a row of the mask without a True would give NaN.
    """
    return example_ids[:, None, :, None] == example_ids[:, None, None, :]


def by_example(offsets: Tensor, longest: int) -> dict[str, Any]:
    """Places of the examples in a row without padding, by the names of flash attention.

    Args:
        longest: no example has more tokens; to look for the longest would wait for the GPU.
    """
    offsets = offsets.int()
    return {
        "cu_seq_lens_q": offsets,
        "cu_seq_lens_k": offsets,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def varlen_attention(
    module: Any,  # noqa: ARG001 - the interface of transformers
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: int | None,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    dropout: float = 0.0,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention within each of n examples: [1, H, T, D] each, perhaps fewer heads of keys and values -> [1, T, H, D].

    On a GPU in half precision by torch's flash attention. On a CPU example by example.

    Args:
        attention_mask: the tokens that are seen to either side; None is all. A number that layers are given, unlike
            transformers' `sliding_window`, which is a constant of each: layers with and without are one graph.
        cu_seq_lens_q: where examples begin among the T tokens, and T: int32 [n + 1].
    """
    q, k, v = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))  # [0] would copy the gradients
    if v.dtype in HALF:  # some rotary positions give q and k in fp32 under autocast
        q, k = q.to(v.dtype), k.to(v.dtype)
    offsets, longest = cu_seq_lens_q, max_length_q
    if q.device.type in FLASH_ON and q.dtype in HALF:
        seen = flash_attention(q, k, v, offsets, longest, dropout, scaling, attention_mask)
    else:
        seen = attention_by_example(q, k, v, offsets, dropout, scaling, attention_mask)
    assert isinstance(seen, Tensor)
    return seen[None], None


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    longest: int,
    dropout: float,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """By the operation behind torch's flash attention, which takes dropout and windows: [T, H, D] each -> [T, H, D].

    Heads are padded to a multiple of 8, which it asks for: zeros change no product.
    The way there over nested tensors takes seven to fourteen times as long with dropout (H200).
    """
    width = q.shape[-1]
    scaling = width**-0.5 if scaling is None else scaling
    if extra := -width % 8:
        q, k, v = (F.pad(states, (0, extra)) for states in (q, k, v))
    return flash_attention_of_packed(q, k, v, offsets, longest, dropout, scaling, window)[..., :width]


def attention_by_example(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    dropout: float,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """One call an example, which on a CPU costs less than what any mask wastes: as `flash_attention`."""
    lengths = offsets.diff().tolist()
    examples = zip(*(states.transpose(0, 1)[None].split(lengths, dim=2) for states in (q, k, v)), strict=True)
    seen = [
        F.scaled_dot_product_attention(
            q, k, v, _near(q, window), dropout, scale=scaling, enable_gqa=k.shape[1] < q.shape[1]
        )
        for q, k, v in examples
    ]
    return torch.cat(seen, dim=2)[0].transpose(0, 1)


def _near(example: Tensor, window: int | None) -> Tensor | None:
    """Which tokens are close enough to see each other; None where all are."""
    length = example.shape[2]
    if window is None or length - 1 <= window:
        return None
    places = torch.arange(length, device=example.device)
    return (places[:, None] - places).abs() <= window
