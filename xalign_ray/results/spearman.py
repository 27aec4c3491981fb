"""Spearman's rank correlation, of one pair of series or of thousands of resampled ones at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def spearman(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """The correlation of ranks over the last axis, equal values sharing their mean rank.

    Args:
        first: [..., n].
        second: [..., n].

    Returns:
        [...] in [-1, 1]; NaN where a series has no two different values.
    """
    one, other = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in map(rank, (first, second)))
    spread = np.sqrt((one**2).sum(axis=-1) * (other**2).sum(axis=-1))
    with np.errstate(invalid="ignore"):
        return np.where(spread > 0, (one * other).sum(axis=-1) / spread, np.nan)


def rank(values: ArrayLike) -> NDArray[np.float64]:
    """Ranks from 1 over the last axis: how many are less, and the middle among those that are equal."""
    across = np.asarray(values, float)
    row, column = across[..., :, None], across[..., None, :]
    return (column < row).sum(axis=-1) + ((column == row).sum(axis=-1) + 1) / 2
