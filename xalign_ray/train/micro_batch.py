"""A rank's rows on their device: copied ahead, with all whose shape depends on what rows hold found on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch

from xalign_ray.layout import labelled_at, layout

RankBatch = Mapping[str, np.ndarray]
MODEL_INPUTS = ("input_ids", "labels", "position_ids", "segment_ids", "language_ids", "example_ids")


def tensors(rows: RankBatch, device: torch.device, also: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """A batch's rows as the model takes them, on its device: int64 [B, L] each, packed bits as they are.

    With them what is looked up by it, of every column of examples and of the labels: `layout`, `labelled_at`.

    Args:
        also: further columns to take, those of them that the rows have.
    """
    taken = {key: np.ascontiguousarray(rows[key]) for key in (*MODEL_INPUTS, *also) if key in rows}
    given = {key: torch.from_numpy(value) for key, value in taken.items()}  # narrow on its way to a device
    for examples in [key for key in given if key.endswith("example_ids")]:
        of = examples.removesuffix("example_ids")
        given |= {f"{of}{name}": at for name, at in layout(given[examples]).items()}
    given["labelled_at"] = labelled_at(given["labels"])
    if device.type == "cuda":
        given = _copied_ahead(given, device)
    return {key: value if value.dtype == torch.uint8 else value.long() for key, value in given.items()}


def _copied_ahead(host: Mapping[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    """On the device, for its current stream: copied while that computes what it was given before."""
    computing, copying = torch.cuda.current_stream(device), _copy_stream(device)
    with torch.cuda.stream(copying):
        copies = {key: value.pin_memory().to(device, non_blocking=True) for key, value in host.items()}
    computing.wait_stream(copying)
    for value in copies.values():
        value.record_stream(computing)  # its memory is not given away before it has been read
    return copies


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
