"""Repeated lines and pairs: found across parts, by partitions, however many, and wherever it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xalign_ray.data import duplicates
from xalign_ray.data.duplicate_passes import with_duplicates
from xalign_ray.data.duplicates import Duplicates, hash_records, write_hashes
from xalign_ray.data.filters import Filters
from xalign_ray.data.part import Task
from xalign_ray.data.sources.open import WHOLE
from xalign_ray.data.sources.parts import Part
from xalign_ray.data.sources.records import Document, Pair


def tasks_of(folder: Path, pools: dict[str, list[list[str]]]) -> list[Task]:
    """A part for each list of lines, numbered in its pool."""
    tasks = []
    for pool, parts in pools.items():
        for number, lines in enumerate(parts):
            path = folder / f"{pool}-{number}.txt"
            path.write_text("".join(f"{line}\n" for line in lines))
            tasks.append(Task(str(folder), f"text/{pool}/part-{number:05d}", f"text/{pool}", ("en",),
                              Part("text", (str(path),), (WHOLE,), borders=False), ("en",), 16, False, 0.0,
                              Filters(drop_duplicates=True), number=number))  # fmt: skip
    return tasks


def one_by_one(tasks: Sequence[Any], work: Callable[[Any], None]) -> None:
    for task in tasks:
        work(task)


def marked(folder: Path, parts: list[list[str]]) -> list[list[bool]]:
    """For each line of each part whether it is a duplicate."""
    tasks = with_duplicates(tasks_of(folder, {"en": parts}), one_by_one)
    return masks(tasks, [len(part) for part in parts])


def masks(tasks: Sequence[Task], counts: Sequence[int]) -> list[list[bool]]:
    found = []
    for task, count in zip(tasks, counts, strict=True):
        numbers = Duplicates(map(Path, task.duplicates), task.number)
        windows = [1] * min(count, 9) + [count - 9] * (count > 9)
        found.append([is_duplicate for window in windows for is_duplicate in numbers.next(window).tolist()])
    return found


def slow(parts: list[list[str]]) -> list[list[bool]]:
    seen: set[str] = set()
    return [[line in seen or seen.add(line) is not None for line in part] for part in parts]


def random_parts(seed: int, parts: int = 4) -> list[list[str]]:
    source = np.random.default_rng(seed)
    return [[f"line {n}" for n in source.integers(0, 150, 60)] for _ in range(parts)]


def test_the_first_of_equal_lines_stays(tmp_path: Path) -> None:
    assert marked(tmp_path, [["a", "b", "a "], [], ["c", "b", "cafe\u0301"], ["caf\u00e9", "d"]]) == [
        [False, False, True],
        [],
        [False, True, False],
        [True, False],
    ]


@pytest.mark.parametrize("lines", [1, 7, 60, 100, 10**6])
def test_partitions_do_not_change_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    monkeypatch.setattr(duplicates, "PARTITION_LINES", lines)
    parts = random_parts(0)
    assert marked(tmp_path, parts) == slow(parts)
    count = len(list(tmp_path.rglob("*.duplicates")))
    assert count == 1 if lines == 10**6 else count > 1
    assert not list(tmp_path.rglob("*.sorted_hashes"))


def test_a_partition_holds_so_many_lines_whatever_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "PARTITION_LINES", 50)
    held: list[int] = []
    read = duplicates._read_ranges

    def watched(path: Path, partition: duplicates.Partition) -> Any:
        found = read(path, partition)
        held.append(sum(map(len, found[0])))
        return found

    monkeypatch.setattr(duplicates, "_read_ranges", watched)
    for parts in (4, 40):
        held.clear()
        (folder := tmp_path / str(parts)).mkdir()
        lines = [[f"{part} {number}" for number in range(60)] for part in range(parts)]
        marked(folder, lines)
        of_task = np.reshape(held, (-1, parts)).sum(axis=1)
        assert of_task.sum() == 60 * parts, "each line is read once"
        assert of_task.max() < 2 * 50


def test_pools_are_apart_and_two_passes_do_for_all_of_them(tmp_path: Path) -> None:
    pools = {"en": random_parts(1), "de": random_parts(2, 3)}
    runs: list[int] = []

    def run(tasks: Sequence[Any], work: Callable[[Any], None]) -> None:
        runs.append(len(tasks))
        one_by_one(tasks, work)

    tasks = with_duplicates(tasks_of(tmp_path, pools), run)
    assert masks(tasks, [60] * 7) == slow(pools["en"]) + slow(pools["de"])
    assert runs == [7, 2]
    assert with_duplicates(tasks_of(tmp_path, pools), run) == tasks
    assert runs == [7, 2, 0, 0]


@pytest.mark.parametrize("after", range(12))
def test_it_may_be_stopped_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    monkeypatch.setattr(duplicates, "PARTITION_LINES", 40)
    parts, done = random_parts(3), 0

    def stopped(tasks: Sequence[Any], work: Callable[[Any], None]) -> None:
        nonlocal done
        for task in tasks:
            if done == after:
                raise KeyboardInterrupt
            work(task)
            done += 1

    if after < 10:  # 4 parts and 6 partitions
        with pytest.raises(KeyboardInterrupt):
            with_duplicates(tasks_of(tmp_path, {"en": parts}), stopped)
    first, done, after = done, 0, 100
    tasks = with_duplicates(tasks_of(tmp_path, {"en": parts}), stopped)
    assert first + done == 10, "nothing is done twice"
    assert masks(tasks, [60] * 4) == slow(parts)


def test_a_part_that_stops_while_it_is_hashed_leaves_no_file(tmp_path: Path) -> None:
    def digests() -> Iterator[bytes]:
        yield b"12345678"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_hashes(tmp_path / "a.sorted_hashes", digests())
    assert not list(tmp_path.iterdir())


def test_pairs_are_duplicates_when_both_texts_are() -> None:
    pairs = [Pair(("en", "de"), sides, "here", 1) for sides in (("a", "b"), ("a", "c"), ("a", "b"))]
    one, other, again = hash_records(pairs)
    assert one == again != other


def test_documents_give_a_hash_a_line() -> None:
    assert len(set(hash_records([Document("en", ("a", "b"), "here", 1), Document("en", ("c",), "here", 2)]))) == 3


def test_a_window_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(np.asarray([16, 28], "<i8").tobytes() + np.asarray([1, 5, 6], "<u4").tobytes())
    numbers = Duplicates([tmp_path / "x"], 0)
    masks = [numbers.next(count).tolist() for count in (2, 0, 4, 3)]
    assert masks == [[False, True], [], [False, False, False, True], [True, False, False]]
