"""Repeated lines and pairs: found across parts, by partitions, however many, and wherever it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.conftest import one_after_the_other
from xalign_ray.clean import duplicates
from xalign_ray.clean.duplicates import Sift, hash_records, mark_duplicates, write_hashes
from xalign_ray.clean.text_stage import make_text
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.config.sources import FiltersConfig, NearDuplicatesConfig
from xalign_ray.sources import stage
from xalign_ray.sources.formats import read_part
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.open import WHOLE
from xalign_ray.sources.records import Document, Pair, Part
from xalign_ray.work.artifacts import hash_file


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each pass had."""
    done: list[int] = []

    def run_tasks(tasks: Sequence[Any], work: Callable[[Any], None], *_: object) -> None:
        done.append(len(tasks))
        one_after_the_other(tasks, work)

    monkeypatch.setattr(stage, "_run_tasks", run_tasks)
    return done


def every_row(source: Input) -> Iterator[Document | Pair | None]:
    for record in source.records():
        yield record if isinstance(record, Document | Pair) else None


ALL = Sift(every_row, lambda texts: [part for one in texts for part in one.each_part()], None)


def texts_of(folder: Path, pools: dict[str, list[list[str]]]) -> list[Input]:
    """A text for each pool, with a part for each list of lines."""
    texts = []
    for pool, parts in pools.items():
        paths = [folder / f"{pool}-{number}.txt" for number in range(len(parts))]
        for path, lines in zip(paths, parts, strict=True):
            path.write_text("".join(f"{line}\n" for line in lines))
        cut = tuple(Part("text", (str(path),), (WHOLE,)) for path in paths)
        texts.append(Input(f"text/{pool}", ("en",), cut, tuple(map(hash_file, paths))))
    return make_text(texts, folder, ParallelConfig())


def mark(texts: Sequence[Input], folder: Path) -> list[Input]:
    return mark_duplicates(texts, folder, FiltersConfig(drop_duplicates=True), ParallelConfig(), ALL)


def marked(folder: Path, parts: list[list[str]]) -> list[list[bool]]:
    """For each line of each part whether it is a duplicate."""
    return masks(mark(texts_of(folder, {"en": parts}), folder))


def masks(texts: Sequence[Input]) -> list[list[bool]]:
    return [
        [mark for record in read_part(part, one.languages) if isinstance(record, Document) for mark in record.duplicate]
        for one in texts
        for part in one.parts
    ]


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


@pytest.mark.parametrize("lines", [7, 60, 10**6])
def test_partitions_do_not_change_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passes: list[int], lines: int
) -> None:
    monkeypatch.setattr(duplicates, "PARTITION_LINES", lines)
    parts = random_parts(0)
    assert marked(tmp_path, parts) == slow(parts)
    assert passes[2] == 1 if lines == 10**6 else passes[2] > 1, "text, hashes, partitions, columns"
    left = {"".join(path.suffixes) for path in (tmp_path / "duplicates").rglob("part*")}
    assert left == {".parquet", ".json"}


def test_a_partition_holds_so_many_lines_whatever_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "PARTITION_LINES", 50)
    held: list[int] = []
    listed, loaded = list[str](), list[str]()
    read, list_names, load = duplicates._read_range, Path.glob, np.load

    def watched(partition: duplicates.Partition, runs: Sequence[Path]) -> Any:
        found = read(partition, runs)
        held.append(found.shape[1])
        return found

    monkeypatch.setattr(duplicates, "_read_range", watched)
    monkeypatch.setattr(Path, "glob", lambda *given: listed.append(given[1]) or list_names(*given))
    monkeypatch.setattr(
        np, "load", lambda path, *_, **how: loaded.append(how.get("mmap_mode", path.suffix)) or load(path, *_, **how)
    )
    for parts in (4, 40):
        for some in (held, listed, loaded):
            some.clear()
        (folder := tmp_path / str(parts)).mkdir()
        lines = [[f"{part} {number}" for number in range(60)] for part in range(parts)]
        marked(folder, lines)
        of_task = np.reshape(held, (-1, parts)).sum(axis=1)
        assert of_task.sum() == 60 * parts, "each line is read once"
        assert of_task.max() < 2 * 50
        assert sum(".hashes" in name for name in listed) == len(of_task) + 1, "once a task, and to take them away"
        assert set(loaded) == {"r", ".counts"}, "of the other files a task reads no more than its share"


def test_pools_are_apart_and_three_passes_do_for_all_of_them(tmp_path: Path, passes: list[int]) -> None:
    pools = {"en": random_parts(1), "de": random_parts(2, 3)}
    texts = texts_of(tmp_path, pools)
    passes.clear()
    found = mark(texts, tmp_path)
    assert masks(found) == slow(pools["en"]) + slow(pools["de"])
    assert passes == [7, 2, 7]
    assert mark(texts, tmp_path) == found
    assert passes == [7, 2, 7]


def test_recipes_share_the_columns_of_a_pool_unless_its_texts_their_order_or_what_is_near_differ(
    tmp_path: Path, passes: list[int]
) -> None:
    one, other = texts_of(tmp_path, {"a": random_parts(1), "b": random_parts(2)})
    one, other = (replace(text, pool="text/en") for text in (one, other))
    exact, near = FiltersConfig(drop_duplicates=True), FiltersConfig(near_duplicates=NearDuplicatesConfig())
    nearer = FiltersConfig(near_duplicates=NearDuplicatesConfig(n_grams=3))

    def tasks_of(texts: Sequence[Input], filters: FiltersConfig) -> list[int]:
        passes.clear()
        mark_duplicates(texts, tmp_path, filters, ParallelConfig(), ALL)
        return [*passes]

    assert tasks_of([one, other], exact) == [8, 1, 8]
    skipping = replace(one, parts=tuple(replace(part, skip_empty=True) for part in one.parts))
    assert tasks_of([skipping, other], exact) == []
    assert tasks_of([other, one], exact) == [8, 1, 8], "which of equal lines is the first"
    assert tasks_of([one], exact) == [4, 1, 4]
    assert tasks_of([one, replace(other, pool="text/de")], exact) == [4, 1, 4], "only of the new pool"
    assert [tasks_of([one, other], filters) for filters in (near, near, nearer)] == [[8, 1, 8], [], [8, 1, 8]]


def test_a_damaged_column_is_made_again(tmp_path: Path, passes: list[int]) -> None:
    texts = texts_of(tmp_path, {"en": random_parts(1)})
    wanted = masks(mark(texts, tmp_path))
    (column,) = (tmp_path / "duplicates").glob("*/part-00002.parquet")
    column.write_bytes(column.read_bytes()[:-1])
    passes.clear()
    assert masks(mark(texts, tmp_path)) == wanted
    assert passes == [4, 1, 1], "hashes are not kept, whole columns are"


@pytest.mark.parametrize("after", range(14))
def test_it_may_be_stopped_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    monkeypatch.setattr(duplicates, "PARTITION_LINES", 40)
    parts, done, bound = random_parts(3), 0, after
    texts = texts_of(tmp_path, {"en": parts})

    def stopped(tasks: Sequence[Any], work: Callable[[Any], None], *_: object) -> None:
        nonlocal done
        for task in tasks:
            if done == bound:
                raise KeyboardInterrupt
            work(task)
            done += 1

    monkeypatch.setattr(stage, "_run_tasks", stopped)
    with pytest.raises(KeyboardInterrupt):  # of 4 parts, 6 partitions and 4 columns
        mark(texts, tmp_path)
    first, done, bound = done, 0, 100
    found = mark(texts, tmp_path)
    assert first + done == 14, "nothing is done twice"
    assert masks(found) == slow(parts)


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
    (turned,) = hash_records([Pair(("de", "en"), ("b", "a"), "there", 1)])  # of a source that names them the other way
    assert turned == one
    rivals = [Pair(("en", "de"), ("a", "b"), "here", 1, negatives=(text,)) for text in ("c", "d", "c")]
    first, other, again = hash_records(rivals)
    assert first == again != other != one  # else all but the first negative of a pair would go


def test_documents_give_a_hash_a_line() -> None:
    assert len(set(hash_records([Document("en", ("a", "b"), "here", 1), Document("en", ("c",), "here", 2)]))) == 3
