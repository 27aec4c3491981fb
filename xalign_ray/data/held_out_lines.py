"""Decides by hash which lines are held out for the held-out loss: the same line in every pool, file and language."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

HELD_OUT_LINE = "repeats a held-out line"
HELD_OUT_PAIR = "a side is a held-out line"
TEST_LINE = "is a line of data.tests"
TEST_PAIR = "a side is a line of data.tests"

_HASH = hashlib.blake2b(digest_size=8, person=b"held out")  # copied for each line: half the price of a new one
_NO_WORD = re.compile(r"\W+")


def held_out_lines(lines: Sequence[str], share: float) -> NDArray[np.bool_]:
    """[N] whether each line is held out: about `share` of the distinct lines.

    Case, blanks and punctuation make no difference, so that a tokenized or lower-cased copy of a line shares its fate.
    """
    if not share:
        return np.zeros(len(lines), bool)
    return hash_lines(lines) / 2.0**64 < share


def find_test_lines(lines: Sequence[str], tests: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """[N] whether each line is one of the retrieval tests, which are given by their sorted hashes."""
    if not len(tests):
        return np.zeros(len(lines), bool)
    hashes = hash_lines(lines)
    return tests[np.searchsorted(tests, hashes) % len(tests)] == hashes


def hash_lines(lines: Sequence[str]) -> NDArray[np.uint64]:
    """[N] the hash of each line, the same for lines that differ in case, blanks and punctuation only."""
    return np.asarray([_hash(comparable(line)) for line in lines], np.uint64)


def comparable(line: str) -> str:
    """The letters and digits of a line, case-folded; the line itself where it has none."""
    return _NO_WORD.sub("", unicodedata.normalize("NFKC", line)).casefold() or line.strip()


def _hash(text: str) -> int:
    digest = _HASH.copy()
    digest.update(text.encode())
    return int.from_bytes(digest.digest(), "big")
