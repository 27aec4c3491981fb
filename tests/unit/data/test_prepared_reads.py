"""Reads of a pool look up the row groups that they need, and nothing for each of those that there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xalign_ray.data import prepared
from xalign_ray.data.prepared import Prepared
from xalign_ray.text.order import Places
from xalign_ray.text.rows import Rows

SIZES = (3, 1, 4, 2)  # row groups of each shard


class Counted(list):
    """A list that counts how many of its entries are looked at."""

    looked = 0

    def __getitem__(self, place: Any) -> Any:
        self.looked += 1
        return super().__getitem__(place)

    def __iter__(self) -> Iterator[Any]:
        self.looked += len(self)
        return super().__iter__()


def named_row(shard: int, group: int) -> Rows:
    """A row group of one row, whose only piece says where it lies."""
    one = np.array([1], np.int32)
    none = np.zeros(0, np.int32)
    return Rows(
        pieces=np.array([100 * shard + group], np.int32),
        word_length=one,
        entry=np.zeros(1, np.int32),
        segment_words=one,
        segment_language=np.zeros(1, np.int32),
        segment_links=np.zeros(1, np.int32),
        link_from=none,
        link_to=none,
        row_segments=one,
    )


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Prepared:
    def read_group(path: str, file_hash: str, group: int) -> Rows:
        assert file_hash == f"hash of {Path(path).name}"
        return named_row(int(Path(path).name), group)

    monkeypatch.setattr(prepared, "read_group", read_group)
    shards = [{"file": str(n), "sha256": f"hash of {n}", "groups": [1] * size} for n, size in enumerate(SIZES)]
    return Prepared(Path("/nowhere"), {"pools": {"text/en": {"shards": Counted(shards)}}})


def test_each_row_group_is_found_in_its_shard(many: Prepared) -> None:
    right = [100 * shard + group for shard, size in enumerate(SIZES) for group in range(size)]
    group = np.array([9, 0, 3, 4, 2, 7, 1, 8, 5, 6, 0])
    rows = many.read("text/en", Places(np.zeros_like(group), group, np.zeros_like(group)))
    assert rows.pieces.tolist() == [right[number] for number in group]


def test_a_read_looks_at_the_shards_that_it_needs_only(many: Prepared) -> None:
    place = Places(np.array([0]), np.array([5]), np.array([0]))
    many.read("text/en", place)
    shards = many.manifest["pools"]["text/en"]["shards"]
    before = shards.looked
    many.read("text/en", place)
    assert shards.looked - before <= 2
