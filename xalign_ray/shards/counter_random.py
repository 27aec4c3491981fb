"""Random numbers as pure functions of counters: the same (key, purpose, index) draws the same number on any worker."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# One purpose, one independent sequence of numbers for a row. A number once used for a purpose is never given another.
CHOOSE_WORD, SHOW, RANDOM_PIECE, SWITCH, PICK_LANGUAGE, PICK_SYNONYM, SWAP_SEGMENTS, INSTANCE, SPREAD = range(1, 10)
PICK_NEGATIVE = 10


def splitmix64(values: Bits) -> Bits:
    """The next output of splitmix64 (Steele, Lea and Flood 2014) for each state: a bijection of 64-bit words."""
    return mix(values + GOLDEN)


def mix(z: Bits) -> Bits:
    """The finaliser of splitmix64, in place: this is where a stream spends its time."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def row_keys(seed: int, positions: NDArray[np.int64]) -> Bits:
    """One key for each row, from the run's seed and the row's position in the order."""
    base = splitmix64(np.array([seed], np.int64).view(np.uint64))
    return splitmix64(splitmix64(positions.astype(np.int64).view(np.uint64)) ^ base)


def random_bits(keys: Bits, purpose: int, index: NDArray[np.integer]) -> Bits:
    """64 random bits for each (key, index), for one purpose. `keys` and `index` have one shape."""
    return splitmix64(keys ^ splitmix64(index.astype(np.uint64) * np.uint64(16) + np.uint64(purpose)))


def uniform(bits: Bits) -> NDArray[np.float64]:
    """Numbers in [0, 1) from the upper 53 bits."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(bits: Bits, limits: NDArray[np.integer]) -> NDArray[np.int64]:
    """Integers in [0, limit), uniform up to 2^-53; limits are at least 1."""
    return (uniform(bits) * limits).astype(np.int64)
