"""Finds lines and pairs that stood before in their pool: hashes of each part first, then partition by partition."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from xalign_ray.artifacts import write_atomic
from xalign_ray.data.sources.records import Document, Pair
from xalign_ray.text.rows import Index

PARTITION_ROWS = 8_000_000  # hashes that are compared at once: about 0.5 GB while they are sorted


def hash_records(records: Iterable[Document | Pair]) -> np.ndarray:
    """8 bytes of each line or pair, in reading order; among 10^8 a false alarm has odds of 1:3700."""
    digests = bytearray()
    for record in records:
        texts = record.paragraphs if isinstance(record, Document) else ("\n".join(record.texts),)
        for text in texts:
            plain = unicodedata.normalize("NFC", text).strip()
            digests += hashlib.blake2b(plain.encode(), digest_size=8, person=b"repeated").digest()
    return np.frombuffer(bytes(digests), "<u8")


def write_hashes(path: Path, hashes: np.ndarray) -> None:
    """Keeps the hashes of a part."""
    write_atomic(path, hashes.astype("<u8").tobytes())


def mark_duplicates(hash_files: Sequence[Path], duplicate_files: Sequence[Path]) -> None:
    """Writes, for each part of a pool, the numbers of its lines that stood before in it or in an earlier part.

    Every partition (the hashes of one remainder) is sorted on its own: memory is bounded by PARTITION_ROWS hashes and
    one part's, whatever the size of the pool; each file is read once a partition.
    """
    total = sum(path.stat().st_size for path in hash_files) // 8
    partitions = max(1, -(-total // PARTITION_ROWS))
    duplicates: list[list[Index]] = [[] for _ in hash_files]
    for remainder in range(partitions):
        for part, numbers in enumerate(_duplicates_of(hash_files, partitions, remainder)):
            duplicates[part].append(numbers)
    for path, numbers in zip(duplicate_files, duplicates, strict=True):
        write_atomic(path, np.sort(np.concatenate(numbers)).astype("<i8").tobytes())


def _duplicates_of(files: Sequence[Path], partitions: int, remainder: int) -> list[Index]:
    hashes, numbers = [], []
    for path in files:
        values = np.fromfile(path, "<u8")
        chosen = np.flatnonzero(values % np.uint64(partitions) == remainder)
        hashes.append(values[chosen])
        numbers.append(chosen)
    joined = np.concatenate(hashes)
    order = np.argsort(joined, kind="stable")  # equal hashes stay in the order of parts and lines
    duplicates = np.zeros(len(joined), bool)
    duplicates[order[1:]] = joined[order[1:]] == joined[order[:-1]]
    bounds = np.cumsum([len(part) for part in hashes])[:-1]
    return [
        part_numbers[part_duplicates]
        for part_numbers, part_duplicates in zip(numbers, np.split(duplicates, bounds), strict=True)
    ]


class Duplicates:
    """The duplicate lines of one part, asked for window by window."""

    def __init__(self, path: Path) -> None:
        self._numbers = np.fromfile(path, "<i8")
        self._seen = 0

    def next(self, count: int) -> np.ndarray:
        """For each of the next `count` lines or pairs whether it is a duplicate."""
        low, high = np.searchsorted(self._numbers, [self._seen, self._seen + count])
        mask = np.zeros(count, bool)
        mask[self._numbers[low:high] - self._seen] = True
        self._seen += count
        return mask
