"""One rank's part of a checkpoint: copied to the host's memory while training stands still, written behind its back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from xalign_ray.work.artifacts import hash_file

Part = tuple[Path, Any]  # a file, and the value that `torch.save` is to write to it


def copy_to_host(state: Any) -> Any:
    """The same value with tensors of its own, which later steps do not change; those shared in it stay shared.

    A GPU's tensors go to pinned memory, and may be on their way: wait for the device before they are read.
    """
    copies: dict[tuple[Any, ...], torch.Tensor] = {}

    def copy(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        place = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if place not in copies:
            copies[place] = value.detach().to("cpu", non_blocking=True, copy=True)
        return copies[place]

    return tree_map(copy, state, is_leaf=lambda value: isinstance(value, torch.Size))  # else it becomes a tuple


def write_parts(parts: Sequence[Part]) -> dict[Path, str]:
    """Writes each part to the disk, down to the last byte, and forgets it.

    Returns:
        The SHA-256 of each file.

    Raises:
        OSError, RuntimeError: what the system said, such as of a full disk.
    """
    hashes = {}
    for path, state in parts:
        try:
            with path.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
        except (OSError, RuntimeError) as error:
            raise _root(error) from None
        hashes[path] = hash_file(path)
    return hashes


def _root(error: OSError | RuntimeError) -> OSError | RuntimeError:
    """What the system said: torch covers it with an error about its own file format."""
    context = error.__context__
    return _root(context) if isinstance(context, OSError | RuntimeError) else error
