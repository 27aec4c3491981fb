"""Private parts of torch: the job's store, operations over lists of tensors, flash attention over packed rows."""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.distributed_c10d import _get_default_store
from torch.utils._pytree import tree_map


def job_store() -> Any:
    """The key-value store of the default process group; torch has no public way to it.

    If it changes: an ImportError when training starts.
    """
    return _get_default_store()


def map_tensors(function: Callable[[Any], Any], state: Any) -> Any:
    """The same nested value with the function applied to each leaf; a shape is a leaf, else it becomes a tuple.

    If it changes: an ImportError, or checkpoints without what lies deeper (test_train_async_save.py).
    """
    return tree_map(function, state, is_leaf=lambda value: isinstance(value, torch.Size))


def norms_of(tensors: Sequence[Tensor]) -> Tensor:
    """The L2 norm of each tensor, [N]; one kernel on a GPU.

    If it changes: an AttributeError in the first step of LAMB (tests/parity/test_lamb.py).
    """
    return torch.stack(list(torch._foreach_norm(list(tensors))))


def scale_each(tensors: Sequence[Tensor], factors: Tensor) -> None:
    """Multiplies each tensor by its factor, in place; one kernel on a GPU.

    If it changes: as `norms_of`.
    """
    torch._foreach_mul_(list(tensors), list(factors.unbind()))


def own_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter | None]]:
    """A module's own parameters, each name of a shared one too, which `named_parameters` leaves out by default.

    If it changes: an AttributeError when a table grows (tests/parity/test_new_pieces.py).
    """
    return iter(list(module._parameters.items()))


def flash_attention_of_packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offsets: Tensor,
    longest: int,
    dropout: float,
    scaling: float | None,
    window: int | None,
) -> Tensor:
    """Flash attention of [T, H, D] tensors over examples that begin at offsets: the operation behind torch's own.

    If it changes: the varlen attention of a GPU fails, or sees other tokens (tests/gpu/test_training_on_a_gpu.py).

    Args:
        window: tokens to each side that a token sees, None for all.
    """
    return torch.ops.aten._flash_attention_forward(
        q, k, v, offsets, offsets, longest, longest, dropout, False, False,
        scale=scaling, window_size_left=window, window_size_right=window,
    )[0]  # fmt: skip
