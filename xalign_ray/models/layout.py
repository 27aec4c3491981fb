"""Where tokens, examples and labels stand in packed rows, of which the shapes depend on what the rows hold."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from xalign_ray.text.collate import IGNORED


def layout(example_ids: Tensor) -> dict[str, Tensor]:
    """Where the tokens of packed rows [B, L] stand, and which of them are an example.

    Its shapes depend on what the rows hold, so that a GPU would be waited for: made on the host, for whole batches.

    Returns:
        `real_at`: the T positions that are no padding, of rows laid one after the other, int64 [T].
        `offsets`: where the n examples begin among these T, and T, int64 [n + 1].
    """
    flat = example_ids.flatten()
    real_at = (flat > 0).nonzero()[:, 0]
    width = example_ids.shape[1]
    numbers = real_at // width * (width + 1) + flat[real_at]  # a row has no more examples than tokens
    lengths = torch.unique_consecutive(numbers, return_counts=True)[1]
    return {"real_at": real_at, "offsets": F.pad(lengths.cumsum(0), (1, 0))}


def laid_out(batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """A batch with its `layout`, which rows that a loss makes by itself do not bring."""
    return batch if "real_at" in batch else {**batch, **layout(batch["example_ids"])}


def labelled_at(labels: Tensor) -> Tensor:
    """Where labels [B, L] ask for something, of rows laid one after the other: int64 [N]."""
    return (labels.flatten() != IGNORED).nonzero()[:, 0]
