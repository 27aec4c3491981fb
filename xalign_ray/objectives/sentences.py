"""The two sides of sentence pairs in a batch: their rows, which of their examples are pairs, and a vector for each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

FIELDS = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")
COLUMNS = (*(f"{role}_{field}" for role in ("query", "key") for field in FIELDS), "pair_hash")


def sentence_rows(batch: Mapping[str, Tensor], role: str) -> dict[str, Tensor]:
    """The rows of a batch that hold sentences of a side, by the names that `encode` reads; perhaps none.

    Example e of the query row is the partner of example e of the key row, so that both sides keep the same rows and
    list their examples, which stand in a row in order, in the same order.

    Args:
        role: `query` or `key`.
    """
    if f"{role}_example_ids" not in batch:
        return dict.fromkeys((*FIELDS, "pair_hash"), batch["example_ids"][:0])
    kept = (batch[f"{role}_example_ids"] > 0).any(dim=1)
    rows = {field: batch[f"{role}_{field}"][kept] for field in FIELDS}
    return rows | {"pair_hash": batch["pair_hash"][kept]}


def starts(rows: Mapping[str, Tensor]) -> Tensor:
    """Where an example begins, with its [CLS]: bool [B, L]."""
    return (rows["position_ids"] == 0) & (rows["example_ids"] > 0)


def sentence_vectors(hidden: Tensor, rows: Mapping[str, Tensor], pooling: str) -> Tensor:
    """One vector an example, fp32 [n, d], row by row and within a row from left to right.

    Args:
        hidden: hidden states of the rows, [B, L, d].
        pooling: `cls`, the state at the example's [CLS], or `mean`, that of all its tokens, special ones included.
    """
    if pooling == "cls":
        return hidden[starts(rows)].float()
    examples = rows["example_ids"]
    most = int(examples.max()) if examples.numel() else 0
    numbers = torch.arange(1, most + 1, device=examples.device)
    member = (examples[:, None, :] == numbers[None, :, None]).float()
    tokens = member.sum(dim=2)
    with torch.autocast(hidden.device.type, enabled=False):  # in fp32 at every ZeRO stage
        sums = torch.bmm(member, hidden.float())
    return (sums / tokens.clamp(min=1)[..., None])[tokens > 0]


def count_pairs(batch: Mapping[str, np.ndarray]) -> float:
    """The sentence pairs of a batch."""
    if "key_example_ids" not in batch:
        return 0.0
    return float(np.count_nonzero((batch["key_position_ids"] == 0) & (batch["key_example_ids"] > 0)))
