"""A sample of a corpus that does not depend on how it is cut: the pairs with the smallest hashes, each once."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xalign_ray.data.sources.records import Pair
from xalign_ray.data.word_alignment.links import WordPair
from xalign_ray.work.artifacts import write_atomic

Hashes = NDArray[np.uint64]

HIGHEST_HASH = (1 << 64) - 1
HELD = 1 << 16  # hashes taken in between two cuts to the smallest: bounds the memory


def hash_pair(pair: Pair, seed: int) -> int:
    """64 bits of a pair's sentences, the same wherever the pair stands."""
    text = "\0".join((str(seed), *pair.texts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, person=b"word alignment").digest(), "big")


def smallest(hashes: Iterable[int], number: int) -> Hashes:
    """The `number` smallest of the distinct hashes, sorted; holds no more than these and HELD others."""
    kept = np.zeros(0, np.uint64)
    held: list[int] = []
    for one in hashes:
        held.append(one)
        if len(held) == HELD:
            kept, held = _merge(kept, held, number), []
    return _merge(kept, held, number)


def _merge(kept: Hashes, held: Sequence[int], number: int) -> Hashes:
    return np.unique(np.concatenate([kept, np.asarray(held, np.uint64)]))[:number]


def write_sample(path: Path, pairs: Iterable[tuple[int, WordPair]]) -> None:
    """The hash and the words of sampled pairs, as JSON lines."""
    write_atomic(path, "".join(json.dumps([one, *words], ensure_ascii=False) + "\n" for one, words in pairs))


def read_samples(paths: Sequence[Path]) -> list[WordPair]:
    """The sampled pairs of all parts in the order of their hashes, each once, whatever parts they were in.

    A word is held once, however often it occurs: millions of pairs then take 8 bytes a word.
    """
    found: dict[int, WordPair] = {
        one: (list(map(sys.intern, first)), list(map(sys.intern, second)))
        for path in paths
        for one, first, second in _lines(path)
    }
    return [found[one] for one in sorted(found)]


def _lines(path: Path) -> Iterator[tuple[int, list[str], list[str]]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
