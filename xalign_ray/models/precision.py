"""The precision of scores: fp32, whatever precision the model was trained in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def in_fp32() -> Iterator[None]:
    """Inside, matrix products are fp32 and not TF32. Scores are; a training on this GPU may have asked for TF32."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
