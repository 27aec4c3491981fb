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


def add_each(tensors: Sequence[Tensor], others: Sequence[Tensor], factor: float) -> None:
    """In-place `a += alpha * b` over lists of tensors; one kernel on a GPU.

    If it changes: as `norms_of`.
    """
    torch._foreach_add_(list(tensors), list(others), alpha=factor)


def adam_directions(
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    gradients: Sequence[Tensor],
    betas: tuple[float, float],
    epsilon: float,
    count: float,
) -> list[Tensor]:
    """Adam's m^ / (sqrt(v^) + epsilon) after gradient number `count`; m and v are moved in place.

    If it changes: as `norms_of`.
    """
    m, v, g = list(means), list(squares), list(gradients)
    torch._foreach_lerp_(m, g, 1 - betas[0])
    torch._foreach_mul_(v, betas[1])
    torch._foreach_addcmul_(v, g, g, value=1 - betas[1])
    spread = torch._foreach_div(v, 1 - betas[1] ** count)
    torch._foreach_sqrt_(spread)
    torch._foreach_add_(spread, epsilon)
    directions = torch._foreach_div(m, 1 - betas[0] ** count)
    torch._foreach_div_(directions, spread)
    return list(directions)


def scale_all(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiplies all tensors by one factor, in place; one kernel on a GPU.

    If it changes: an AttributeError in the first step (tests/parity/train/test_train_steps.py).
    """
    torch._foreach_mul_(list(tensors), factor)


def copy_each(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies each tensor, whatever its precision; one kernel on a GPU.

    If it changes: as `scale_all`.
    """
    torch._foreach_copy_(list(targets), list(sources))


def follow_each(averages: Sequence[Tensor], values: Sequence[Tensor], part: float) -> None:
    """Moves each average by a part of its way to a value of the same precision, in place; one kernel on a GPU.

    If it changes: as `scale_all`, with momentum contrast (tests/unit/objectives).
    """
    torch._foreach_lerp_(list(averages), list(values), part)


def rows_vary(*tensors: Tensor) -> None:
    """Marks the first dimension of these as dynamic for torch.compile, and the others as static.

    If it changes: an ImportError, or a function that is compiled anew (tests/unit/objectives/test_cross_entropy.py).
    """
    from torch._dynamo import maybe_mark_dynamic  # here, because it costs whoever imports it a second

    for tensor in tensors:
        maybe_mark_dynamic(tensor, 0)


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
