"""Shards in a real S3 store: read by row group through a bounded cache, the same as from disk, under faults too."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.s3_server import S3Server
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.feed.batches import open_local
from xalign_ray.shards import files as shards
from xalign_ray.shards.files import CACHE_GIB, ShardWriter, StoredShard, hash_footer, shard_cache
from xalign_ray.shards.order import ROW_GROUP
from xalign_ray.shards.prepared import Prepared
from xalign_ray.shards.rows import take
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.storage import CACHE

URL = "s3://store/data"


@pytest.fixture(autouse=True)
def _cold() -> Iterator[None]:
    """No shard is known from another test."""
    shards.read_group.cache_clear()
    shards._open.cache_clear()
    shards._written = 0
    yield
    shards.read_group.cache_clear()
    shards._open.cache_clear()


@pytest.fixture
def stored(s3: S3Server, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    """The same data in the store, on a machine that has never seen it."""
    fsspec.filesystem("s3").put(f"{prepared.folder}/", "store/data/", recursive=True)
    monkeypatch.setenv(CACHE, str(tmp_path / "machine"))
    s3.requests.clear()
    return Prepared.open(local_folder(URL))


def gets(s3: S3Server) -> list[str]:
    return [path for method, path in s3.requests if method == "GET" and path.endswith(".parquet")]


def test_rows_from_a_store_are_those_from_disk_and_each_group_comes_once(
    s3: S3Server, stored: Prepared, prepared: Prepared, config: RunConfig
) -> None:
    assert not gets(s3), "a folder is opened without its shards"
    assert not list(stored.folder.rglob("*.parquet"))
    from_disk, from_store = (list(open_local(one, config, 0, 0)) for one in (prepared, stored))
    for share, wanted in zip(from_store, from_disk, strict=True):
        assert all(np.array_equal(share[name], values) for name, values in wanted.items())
    asked = len(gets(s3))
    assert asked
    shards.read_group.cache_clear()
    shards._open.cache_clear()
    assert len(list(open_local(stored, config, 0, 0))) == len(from_disk)
    assert len(gets(s3)) == asked, "what is here is not fetched again, by another process neither"


def big_shard(folder: Path, prepared: Prepared, groups: int) -> tuple[Path, str]:
    """A shard of random rows, too large for its cache below."""
    rows = prepared.first_rows("text/en", 1)
    random = np.random.default_rng(0)
    with ShardWriter(folder / "big") as writer:
        for _ in range(groups):
            group = take(rows, np.zeros(ROW_GROUP, np.int64))
            group.pieces[:] = random.integers(0, 2**30, len(group.pieces))
            writer.append(group)
    (written,) = writer.shards
    return written.path, written.footer


def held() -> int:
    """Bytes on the disk, those of removed files that are still open included."""
    files = {stat.st_ino: stat.st_blocks * 512 for stat in map(Path.stat, shard_cache().glob("*.parquet"))}
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if ".parquet" in os.readlink(one) and str(shard_cache()) in os.readlink(one):
                stat = os.stat(one)
                files[stat.st_ino] = stat.st_blocks * 512
    return sum(files.values())


def check(one: StoredShard, path: Path) -> None:
    """Each row group is that of the file."""
    file = pq.ParquetFile(path)
    assert all(one.read_row_group(group).equals(file.read_row_group(group)) for group in range(file.num_row_groups))


@pytest.mark.usefixtures("s3")
def test_the_cache_is_bounded_and_what_was_removed_is_fetched_again(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "machine"))
    path, footer = big_shard(tmp_path, prepared, 32)
    for number in range(6):
        fsspec.filesystem("s3").put_file(str(path), f"store/many/{number}.parquet")
    bound = 2 * path.stat().st_size
    monkeypatch.setenv(CACHE_GIB, str(bound / 2**30))
    opened = [StoredShard(f"s3://store/many/{number}.parquet", footer) for number in range(6)]
    for group in (0, 31):
        for one in opened:
            one.fetch([group])
            assert held() <= 1.3 * bound
    assert held() > bound / 4
    assert len(list(shard_cache().glob("*.parquet"))) < 6
    for one in opened:
        check(one, path)
        assert held() <= 1.3 * bound


def test_processes_that_fetch_at_once_read_the_same(s3: S3Server, prepared: Prepared, tmp_path: Path) -> None:
    path, footer = big_shard(tmp_path, prepared, 48)
    fsspec.filesystem("s3").put_file(str(path), "store/big.parquet")
    code = (
        "import random, pyarrow.parquet as pq; from xalign_ray.shards.files import StoredShard\n"
        f"one, file = StoredShard('s3://store/big.parquet', '{footer}'), pq.ParquetFile('{path}')\n"
        "for group in random.sample(range(48), 48):\n"
        "    assert one.read_row_group(group).equals(file.read_row_group(group))"
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(CACHE, str(tmp_path / "machine"))
        several = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(3)]
        assert [(one.communicate()[1], one.returncode) for one in several] == [("", 0)] * 3
    assert s3.requests


def test_a_shard_that_was_cut_or_changed_in_the_store_is_named(stored: Prepared, config: RunConfig) -> None:
    shard = stored.shards("text/en")[0]
    url = f"{URL}/{Path(shard.path).relative_to(stored.folder)}"
    store = fsspec.filesystem("s3")
    whole = store.cat_file(url)
    store.pipe_file(url, whole[: len(whole) // 2])
    with pytest.raises(DataError, match=rf"^{url} is damaged: its footer is not the one .* `xalign prepare` again"):
        list(open_local(stored, config, 0, 0))
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 255  # in the second of its three row groups
    store.pipe_file(url, bytes(changed))
    with pytest.raises(DataError, match=rf"^{url} is damaged: .*CRC.*`xalign prepare` again"):
        list(open_local(stored, config, 0, 0))
    store.pipe_file(url, whole)
    assert list(open_local(stored, config, 0, 0)), "a damaged copy is fetched again"


def test_a_full_disk_under_the_cache_is_no_damage_of_the_store(
    stored: Prepared, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DataError) as told:
        list(open_local(stored, config, 0, 0))
    monkeypatch.setattr(os, "pwrite", write)
    assert f"cannot be read. {shard_cache()}: No space left on device. Make room, " in str(told.value)
    assert list(open_local(stored, config, 0, 0))


def test_a_bound_of_the_cache_that_is_no_number_is_refused(
    stored: Prepared, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_GIB, "32 GB")
    with pytest.raises(ConfigError, match=r"XALIGN_CACHE_GIB is '32 GB': give a number of GiB, such as 32\."):
        list(open_local(stored, config, 0, 0))


@pytest.mark.parametrize("part", ["begin", "end"])
def test_a_copy_that_was_damaged_here_is_fetched_again(
    s3: S3Server, stored: Prepared, prepared: Prepared, config: RunConfig, part: str
) -> None:
    wanted = [share["row_hash"].tolist() for share in open_local(prepared, config, 0, 0)]
    assert [share["row_hash"].tolist() for share in open_local(stored, config, 0, 0)] == wanted
    for path in shard_cache().glob("*.parquet"):
        held = path.read_bytes()
        end = len(held) - int.from_bytes(held[-4:], "little") - 100
        path.write_bytes(bytes(1000) + held[1000:] if part == "begin" else held[:end] + bytes(80) + held[end + 80 :])
    shards.read_group.cache_clear()
    shards._open.cache_clear()
    s3.requests.clear()
    assert [share["row_hash"].tolist() for share in open_local(stored, config, 0, 0)] == wanted
    assert gets(s3)


def test_a_store_that_fails_now_and_then_only_takes_time(
    s3: S3Server, stored: Prepared, prepared: Prepared, config: RunConfig
) -> None:
    with s3.fault(failing=5):
        shares = list(open_local(stored, config, 0, 0))
    assert s3.failed
    for share, wanted in zip(shares, open_local(prepared, config, 0, 0), strict=True):
        assert np.array_equal(share["row_hash"], wanted["row_hash"])
    shards.read_group.cache_clear()
    shards._open.cache_clear()
    shutil.rmtree(shard_cache())
    with s3.fault(expired=True), pytest.raises(DataError, match=f"^{URL}/.*parquet cannot be read: .*expired"):
        list(open_local(stored, config, 0, 0))


def test_footers_larger_than_what_is_fetched_first(
    s3: S3Server, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "machine"))
    monkeypatch.setattr(shards, "_TAIL_BYTES", 100)
    path, footer = big_shard(tmp_path, prepared, 3)
    fsspec.filesystem("s3").put_file(str(path), "store/big.parquet")
    assert footer == hash_footer(path)
    check(StoredShard("s3://store/big.parquet", footer), path)
    assert s3.requests


def test_credentials_that_expire_between_two_row_groups_are_said_to_have_expired(
    s3: S3Server, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "machine"))
    path, footer = big_shard(tmp_path, prepared, 2)
    fsspec.filesystem("s3").put_file(str(path), "store/big.parquet")
    one = StoredShard("s3://store/big.parquet", footer)
    with s3.fault(expired=True), pytest.raises(DataError, match=r"^s3://store/big\.parquet cannot be read: .*expired"):
        one.fetch([0])
