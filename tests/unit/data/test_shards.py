"""Shards: what is written is read, twice the same bytes, and damage is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.text.random_rows import make_rows
from xalign_ray.artifacts import hash_file
from xalign_ray.data.file_hashes import HINT
from xalign_ray.data.shards import ROW_GROUP, ShardWriter, read_group
from xalign_ray.errors import DataError
from xalign_ray.text.rows import Rows, concatenate

COUNT = ROW_GROUP + 100


def write_shard(rows: Rows, path: Path) -> list[int]:
    with ShardWriter(path) as writer:
        writer.append(rows)
    return writer.groups


def assert_same(left: Rows, right: Rows) -> None:
    for name, values in vars(left).items():
        np.testing.assert_array_equal(values, getattr(right, name), err_msg=name)
        assert values.dtype == getattr(right, name).dtype == np.int32


@pytest.mark.parametrize("sides", [1, 2])
def test_rows_come_back_in_groups(tmp_path: Path, sides: int) -> None:
    rows, path = make_rows(COUNT, sides), tmp_path / "text" / "a.parquet"
    assert write_shard(rows, path) == [ROW_GROUP, 100]
    groups = [read_group(str(path), hash_file(path), number) for number in range(2)]
    assert [len(group) for group in groups] == [ROW_GROUP, 100]
    assert_same(concatenate(groups), rows)


def test_the_same_rows_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shard(make_rows(COUNT), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"], "no temporary file stays"


def test_a_flipped_byte_is_noticed_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_shard(make_rows(50), path)
    wanted, content = hash_file(path), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError) as told:
        read_group(str(path), wanted, 0)
    assert str(told.value) == (
        f"{path} is damaged: its SHA-256 is {hash_file(path)[:12]}, the manifest says {wanted[:12]}. {HINT}"
    )


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as told:
        read_group(str(tmp_path / "gone.parquet"), "0" * 64, 0)
    assert str(told.value) == f"{tmp_path / 'gone.parquet'} is missing. {HINT}"


def test_a_mended_shard_is_read_in_the_process_that_saw_it_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_shard(make_rows(50), path)
    wanted, content = hash_file(path), path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match="is damaged"):
        read_group(str(path), wanted, 0)
    path.write_bytes(content)
    assert_same(read_group(str(path), wanted, 0), make_rows(50))


def test_a_shard_grows_by_what_is_appended(tmp_path: Path) -> None:
    path, parts = tmp_path / "text" / "a.parquet", [make_rows(COUNT), make_rows(7), make_rows(0), make_rows(COUNT)]
    with ShardWriter(path) as writer:
        for part in parts:
            writer.append(part)
            assert not path.exists(), "it appears when it is whole"
    assert writer.groups == [ROW_GROUP, 100, 7, ROW_GROUP, 100]
    groups = [read_group(str(path), hash_file(path), number) for number in range(5)]
    assert_same(concatenate(groups), concatenate(parts))


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "a.parquet")
    writer.append(make_rows(10))
    writer.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert list(tmp_path.iterdir()) == []


def test_a_shard_without_rows_is_not_written(tmp_path: Path) -> None:
    assert write_shard(make_rows(0), tmp_path / "a.parquet") == []
    assert list(tmp_path.iterdir()) == []
