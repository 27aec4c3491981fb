"""Shards: what is written is read, twice the same bytes, and damage is named."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.streams.random_rows import make_rows
from xalign_ray.errors import DataError
from xalign_ray.shards import files as shards
from xalign_ray.shards.files import Shard, ShardWriter, hash_footer, read_group
from xalign_ray.shards.order import ROW_GROUP
from xalign_ray.shards.rows import Rows, concatenate
from xalign_ray.sources.stage import HINT

COUNT = ROW_GROUP + 100


def write_shard(rows: Rows, path: Path, links: bool = True) -> list[int]:
    with ShardWriter(path, links) as writer:
        writer.append(rows)
    return [shard.rows for shard in writer.shards]


def one_shard(folder: Path, rows: Rows) -> Shard:
    assert write_shard(rows, folder / "a") == [len(rows)]
    path = folder / "a-0000.parquet"
    return Shard(str(path), hash_footer(path))


def assert_same(left: Rows, right: Rows) -> None:
    for name, values in vars(left).items():
        np.testing.assert_array_equal(values, getattr(right, name), err_msg=name)
        assert values.dtype == getattr(right, name).dtype == np.int32


@pytest.mark.parametrize("sides", [1, 2])
def test_rows_come_back_in_groups(tmp_path: Path, sides: int) -> None:
    rows = make_rows(COUNT, sides)
    shard = one_shard(tmp_path / "text", rows)
    groups = [read_group(shard, number) for number in range(2)]
    assert [len(group) for group in groups] == [ROW_GROUP, 100]
    assert_same(concatenate(groups), rows)


def test_more_shards_are_read_than_a_process_may_have_files_open(tmp_path: Path) -> None:
    shard = one_shard(tmp_path, make_rows(2))
    for number in range(200):
        os.link(shard.path, tmp_path / str(number))
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))\n"
        "from xalign_ray.shards.files import Shard, read_group\n"
        "print(sum(len(read_group(Shard(f'{sys.argv[1]}/{n}', sys.argv[2]), 0)) for n in range(200)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), shard.footer], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("400\n", "")


def test_a_shard_of_rows_without_word_alignments_has_no_columns_for_them(tmp_path: Path) -> None:
    rows = make_rows(50)
    assert not len(rows.link_from)
    sizes = []
    for name, links in (("with", True), ("without", False)):
        assert write_shard(rows, tmp_path / name, links) == [50]
        path = tmp_path / f"{name}-0000.parquet"
        assert_same(read_group(Shard(str(path), hash_footer(path)), 0), rows)
        sizes.append(path.stat().st_size)
    assert sizes[1] < sizes[0]


def test_the_same_rows_are_the_same_bytes_in_any_calls(tmp_path: Path) -> None:
    rows = [make_rows(COUNT), make_rows(7), make_rows(0), make_rows(COUNT), make_rows(3), make_rows(2)]
    write_shard(concatenate(rows), tmp_path / "a")
    with ShardWriter(tmp_path / "b", links=True) as writer:
        for part in rows:
            writer.append(part)
            assert not list(tmp_path.glob("b-*")), "it appears when it is whole"
    assert [shard.rows for shard in writer.shards] == [2 * COUNT + 12]
    one, other = sorted(tmp_path.iterdir())
    assert [one.name, other.name] == ["a-0000.parquet", "b-0000.parquet"], "no temporary file stays"
    assert one.read_bytes() == other.read_bytes()
    groups = [read_group(Shard(str(one), hash_footer(one)), number) for number in range(3)]
    assert [len(group) for group in groups] == [ROW_GROUP, ROW_GROUP, 2 * COUNT + 12 - 2 * ROW_GROUP]
    assert_same(concatenate(groups), concatenate(rows))


def test_many_rows_are_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_ROWS", 2 * ROW_GROUP)
    rows = make_rows(5 * ROW_GROUP + 1)
    assert write_shard(rows, tmp_path / "a") == [2 * ROW_GROUP, 2 * ROW_GROUP, ROW_GROUP + 1]
    paths = sorted(tmp_path.iterdir())
    assert [path.name for path in paths] == ["a-0000.parquet", "a-0001.parquet", "a-0002.parquet"]
    read = [read_group(Shard(str(path), hash_footer(path)), group) for path in paths for group in range(2)]
    assert_same(concatenate(read), rows)


def test_a_flipped_byte_is_noticed_and_named(tmp_path: Path) -> None:
    shard = one_shard(tmp_path, make_rows(50))
    path = Path(shard.path)
    content = path.read_bytes()
    for place in (100, len(content) // 2):  # of pages, which have checksums
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError) as told:
            read_group(shard, 0)
        assert str(told.value).startswith(f"{path} is damaged: ")
        assert str(told.value).endswith(f". {HINT}")
    path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    with pytest.raises(DataError) as told:
        read_group(shard, 0)
    assert str(told.value) == (
        f"{path} is damaged: the hash of its footer is {hash_footer(path)}, not {shard.footer}. {HINT}"
    )


@pytest.mark.parametrize("left", [0, 3, 11, 500, -1])
def test_a_truncated_shard_is_noticed(tmp_path: Path, left: int) -> None:
    shard = one_shard(tmp_path, make_rows(50))
    Path(shard.path).write_bytes(Path(shard.path).read_bytes()[:left])
    with pytest.raises(DataError, match="is damaged: the hash of its footer is"):
        read_group(shard, 0)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSPC, "No space left on device. Make room, or raise the limit, and give it again."),
        (errno.EMFILE, "Too many open files. Raise the limit (`ulimit -n 65536`) and rerun the command."),
        (errno.EIO, "Input/output error. The disk or its server fails: look at it and rerun the command."),
    ],
)
def test_what_the_system_says_of_a_shard_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def fail(_: Shard) -> None:
        raise OSError(number, os.strerror(number), "a.parquet")

    monkeypatch.setattr(shards, "_open", fail)
    with pytest.raises(DataError) as told:
        read_group(Shard(str(tmp_path / "a.parquet"), "0" * 16), 0)
    assert str(told.value) == f"{tmp_path / 'a.parquet'} cannot be read. a.parquet: {said}"


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as told:
        read_group(Shard(str(tmp_path / "gone.parquet"), "0" * 16), 0)
    assert str(told.value) == f"{tmp_path / 'gone.parquet'} is missing. {HINT}"


@pytest.mark.parametrize("place", [100, -20])
def test_a_mended_shard_is_read_in_the_process_that_saw_it_damaged(tmp_path: Path, place: int) -> None:
    shard = one_shard(tmp_path, make_rows(50))
    path = Path(shard.path)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="is damaged"):
        read_group(shard, 0)
    (tmp_path / "mended").write_bytes(whole)
    (tmp_path / "mended").replace(path)
    assert_same(read_group(shard, 0), make_rows(50))


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "a")
    writer.append(make_rows(COUNT))
    assert list(tmp_path.iterdir())
    writer.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert list(tmp_path.iterdir()) == []


def test_a_shard_without_rows_is_not_written(tmp_path: Path) -> None:
    assert write_shard(make_rows(0), tmp_path / "a") == []
    assert list(tmp_path.iterdir()) == []
