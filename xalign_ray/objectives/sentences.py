"""The two sides of sentence pairs in a batch: their rows, which of their examples are pairs, and a vector for each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from xalign_ray.models.attention import laid_out, layout

FIELDS = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")
LAYOUT = ("real_at", "offsets")
COLUMNS = (*(f"{role}_{field}" for role in ("query", "key") for field in FIELDS), "pair_hash")
HARD_ROLES = ("hard_key", "hard_query")
HARD_COLUMNS = tuple(f"{role}_{field}" for role in HARD_ROLES for field in FIELDS)

ODD = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9)  # factors that spread the bits of a number


def sentence_rows(batch: Mapping[str, Tensor], role: str) -> dict[str, Tensor]:
    """The rows of a batch that hold sentences of a side, by the names that `encode` reads; perhaps none.

    Example e of the query row is the partner of example e of the key row, so that both sides keep the same rows and
    list their examples, which stand in a row in order, in the same order.

    Args:
        role: `query` or `key`, or one of `HARD_ROLES`.
    """
    if f"{role}_example_ids" not in batch:
        none = batch["example_ids"][:0]
        return {**dict.fromkeys((*FIELDS, "pair_hash"), none), **layout(none)}
    names = [*FIELDS, *(name for name in LAYOUT if f"{role}_{name}" in batch)]
    rows = {name: batch[f"{role}_{name}"] for name in names} | {"pair_hash": batch["pair_hash"]}
    return dict(laid_out(rows))


def pair_sides(batch: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The sides of sentence pairs that a batch holds: query and key, and hard negatives of one or both."""
    return ("query", "key", *(role for role in HARD_ROLES if f"{role}_example_ids" in batch))


def starts_at(rows: Mapping[str, Tensor]) -> Tensor:
    """Places in the flattened rows where the n examples begin: int64 [n]."""
    return rows["real_at"][rows["offsets"][:-1]]


def concat_rows(upper: Mapping[str, Tensor], *others: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of all as one batch, as `encode` reads it."""
    joined = dict(upper)
    for lower in others:
        rows = {field: torch.cat([joined[field], lower[field]]) for field in FIELDS}
        real_at = torch.cat([joined["real_at"], lower["real_at"] + joined["input_ids"].numel()])
        offsets = torch.cat([joined["offsets"], lower["offsets"][1:] + len(joined["real_at"])])
        joined = rows | {"real_at": real_at, "offsets": offsets}
    return joined


def sentence_vectors(hidden: Tensor, rows: Mapping[str, Tensor], pooling: str) -> Tensor:
    """One vector an example, fp32 [n, d], row by row and within a row from left to right.

    Args:
        hidden: hidden states of the rows, [B, L, d].
        rows: of `sentence_rows` or both sides `concat_rows`.
        pooling: `cls`, the state at the example's first token, `lasttoken`, that at its last, or `mean`, that of all
            its tokens, special ones included.
    """
    states = hidden.flatten(0, 1)
    if pooling != "mean":
        at = starts_at(rows) if pooling == "cls" else rows["real_at"][rows["offsets"][1:] - 1]
        return states[at].float()
    tokens = states[rows["real_at"]].float()  # summed in fp32 at every ZeRO stage
    return torch.segment_reduce(tokens, "mean", offsets=rows["offsets"], unsafe=True)


def text_hashes(rows: Mapping[str, Tensor]) -> Tensor:
    """A hash of each example's ids and their order, int64 [n]: equal for equal sentences."""
    ids, places = (rows[field].flatten()[rows["real_at"]] for field in ("input_ids", "position_ids"))
    mixed = (ids << 32 | places) * ODD[0]
    mixed = (mixed ^ mixed >> 32) * ODD[1]
    sums = F.pad((mixed ^ mixed >> 29).cumsum(0), (1, 0))  # modulo 2^64
    return sums[rows["offsets"]].diff()


def count_pairs(batch: Mapping[str, np.ndarray]) -> float:
    """The sentence pairs of a batch."""
    if "key_example_ids" not in batch:
        return 0.0
    return float(np.count_nonzero((batch["key_position_ids"] == 0) & (batch["key_example_ids"] > 0)))
