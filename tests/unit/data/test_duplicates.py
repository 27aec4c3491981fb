"""Repeated lines and pairs: found across parts, by partitions, whatever their number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xalign_ray.data import duplicates
from xalign_ray.data.duplicates import Duplicates, hash_records, mark_duplicates, write_hashes
from xalign_ray.data.sources.records import Document, Pair


def marked(folder: Path, parts: list[list[str]]) -> list[list[bool]]:
    """For each line of each part whether it is a duplicate."""
    hashes, found = ([folder / f"{n}.{kind}" for n in range(len(parts))] for kind in ("hashes", "duplicates"))
    for path, part in zip(hashes, parts, strict=True):
        write_hashes(path, hash_records([Document("en", tuple(part), "here", 1)]))
    mark_duplicates(hashes, found)
    return [Duplicates(path).next(len(part)).tolist() for path, part in zip(found, parts, strict=True)]


def test_the_first_of_equal_lines_stays(tmp_path: Path) -> None:
    assert marked(tmp_path, [["a", "b", "a "], [], ["c", "b", "cafe\u0301"], ["caf\u00e9", "d"]]) == [
        [False, False, True],
        [],
        [False, True, False],
        [True, False],
    ]


@pytest.mark.parametrize("rows", [1, 7, 100, 10**6])
def test_partitions_do_not_change_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(duplicates, "PARTITION_ROWS", rows)
    source = np.random.default_rng(0)
    parts = [[f"line {n}" for n in source.integers(0, 150, 60)] for _ in range(4)]
    seen: set[str] = set()
    wanted = [[line in seen or seen.add(line) is not None for line in part] for part in parts]
    assert marked(tmp_path, parts) == wanted


def test_pairs_are_duplicates_when_both_texts_are() -> None:
    pairs = [Pair(("en", "de"), sides, "here", 1) for sides in (("a", "b"), ("a", "c"), ("a", "b"))]
    one, other, again = hash_records(pairs).tolist()
    assert one == again != other


def test_a_window_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(np.asarray([1, 5, 6], "<i8").tobytes())
    numbers = Duplicates(tmp_path / "x")
    masks = [numbers.next(count).tolist() for count in (2, 0, 4, 3)]
    assert masks == [[False, True], [], [False, False, False, True], [True, False, False]]
