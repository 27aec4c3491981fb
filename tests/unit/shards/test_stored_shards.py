"""Shards in a real S3 store: copied to their mirror, the same as from disk, under faults too."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tests.s3_server import S3Server
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.feed.batches import open_local
from xalign_ray.shards import files as shards
from xalign_ray.shards.files import Shard, ShardWriter, read_group
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


def test_rows_from_a_store_are_those_from_disk_and_each_shard_comes_once(
    s3: S3Server, stored: Prepared, prepared: Prepared, config: RunConfig
) -> None:
    assert not gets(s3), "a folder is opened without its shards"
    assert not list(stored.folder.rglob("*.parquet"))
    from_disk, from_store = (list(open_local(one, config, 0, 0)) for one in (prepared, stored))
    for share, wanted in zip(from_store, from_disk, strict=True):
        assert all(np.array_equal(share[name], values) for name, values in wanted.items())
    asked = gets(s3)
    assert asked
    assert len(asked) == len({*asked})
    shards.read_group.cache_clear()
    shards._open.cache_clear()
    assert len(list(open_local(stored, config, 0, 0))) == len(from_disk)
    assert gets(s3) == asked, "what is here is not fetched again, by another process neither"


def big_shard(folder: Path, prepared: Prepared, groups: int) -> tuple[Path, str]:
    """A shard of random rows."""
    rows = prepared.first_rows("text/en", 1)
    random = np.random.default_rng(0)
    with ShardWriter(folder / "big") as writer:
        for _ in range(groups):
            group = take(rows, np.zeros(ROW_GROUP, np.int64))
            group.pieces[:] = random.integers(0, 2**30, len(group.pieces))
            writer.append(group)
    (written,) = writer.shards
    return written.path, written.footer


def in_store(path: Path, name: str, footer: str) -> Shard:
    """A shard, put into the store."""
    fsspec.filesystem("s3").put_file(str(path), f"store/many/{name}")
    return Shard(str(local_folder("s3://store/many") / name), footer)


def test_processes_that_fetch_at_once_fetch_once_and_read_the_same(
    s3: S3Server, prepared: Prepared, tmp_path: Path
) -> None:
    path, footer = big_shard(tmp_path, prepared, 4)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(CACHE, str(tmp_path / "machine"))
        stored = in_store(path, "big.parquet", footer)
        s3.requests.clear()
        code = (
            "from xalign_ray.shards.files import Shard, read_group\n"
            f"for group in range(4):\n    one = read_group({stored!r}, group)\n"
            f"    assert (one.pieces == read_group(Shard({str(path)!r}, {footer!r}), group).pieces).all()"
        )
        several = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(3)]
        assert [(one.communicate()[1], one.returncode) for one in several] == [("", 0)] * 3
    assert len(gets(s3)) == 1


def test_a_shard_that_was_cut_or_changed_is_named(stored: Prepared, config: RunConfig) -> None:
    shard = Path(stored.shards("text/en")[0].path)
    url, store = f"{URL}/{shard.relative_to(stored.folder)}", fsspec.filesystem("s3")
    whole = store.cat_file(url)
    store.pipe_file(url, whole[: len(whole) // 2])
    with pytest.raises(DataError, match=rf"^{url} is damaged: the hash of its footer .* `xalign prepare` again"):
        list(open_local(stored, config, 0, 0))
    assert not shard.exists()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 255  # in the second of its three row groups
    store.pipe_file(url, bytes(changed))
    words = rf"^{shard} is damaged: .*CRC.* Remove it: it is fetched again from {url}\. .*`xalign prepare` again"
    with pytest.raises(DataError, match=words):
        list(open_local(stored, config, 0, 0))
    store.pipe_file(url, whole)
    shard.unlink()
    assert list(open_local(stored, config, 0, 0))


def test_a_full_disk_under_the_mirror_is_no_damage_of_the_store(stored: Prepared, config: RunConfig) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("xalign_ray.work.artifacts.os.replace", full)
        with pytest.raises(DataError, match=rf"cannot be read\. {stored.folder}/.*No space left on device\. Make room"):
            list(open_local(stored, config, 0, 0))
    assert list(open_local(stored, config, 0, 0))


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
    shutil.rmtree(stored.folder / "shards")
    with s3.fault(expired=True), pytest.raises(DataError, match=f"^{URL}/.*parquet cannot be read: .*expired"):
        list(open_local(stored, config, 0, 0))


def test_credentials_that_expire_between_two_shards_are_said_to_have_expired(
    s3: S3Server, prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "machine"))
    path, footer = big_shard(tmp_path, prepared, 2)
    first, second = (in_store(path, name, footer) for name in ("0.parquet", "1.parquet"))
    assert len(read_group(first, 0))
    with (
        s3.fault(expired=True),
        pytest.raises(DataError, match=r"^s3://store/many/1\.parquet cannot be read: .*expired"),
    ):
        read_group(second, 0)
