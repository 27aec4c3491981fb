"""Shards in a real S3 store: copied to a bounded cache, the same as from disk, under faults too."""

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
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.feed.batches import open_local
from xalign_ray.shards import files as shards
from xalign_ray.shards.files import CACHE_GIB, Shard, ShardWriter, read_group, shard_cache
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


def in_store(path: Path, name: str, footer: str) -> Shard:
    """A shard, put into the store."""
    fsspec.filesystem("s3").put_file(str(path), f"store/many/{name}")
    return Shard(str(local_folder("s3://store/many") / name), footer)


@pytest.mark.usefixtures("s3")
def test_the_cache_is_bounded_and_what_was_removed_is_fetched_again(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "machine"))
    path, footer = big_shard(tmp_path, prepared, 4)
    several = [in_store(path, f"{number}.parquet", footer) for number in range(6)]
    bound = 2.5 * path.stat().st_size
    monkeypatch.setenv(CACHE_GIB, str(bound / 2**30))
    for group in (0, 3):
        wanted = read_group(Shard(str(path), footer), group)
        for one in several:
            assert np.array_equal(read_group(one, group).pieces, wanted.pieces)
            copies = [file.stat().st_size for file in shard_cache().glob("*.parquet")]
            assert path.stat().st_size <= sum(copies) <= bound
            # What was removed is not kept by open files.
            held = {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
            assert not any(name.startswith(str(shard_cache())) for name in held)


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


def test_a_shard_that_was_cut_or_changed_in_the_store_is_named(stored: Prepared, config: RunConfig) -> None:
    shard = stored.shards("text/en")[0]
    url = f"{URL}/{Path(shard.path).relative_to(stored.folder)}"
    store = fsspec.filesystem("s3")
    whole = store.cat_file(url)
    store.pipe_file(url, whole[: len(whole) // 2])
    with pytest.raises(DataError, match=rf"^{url} is damaged: the hash of its footer .* `xalign prepare` again"):
        list(open_local(stored, config, 0, 0))
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 255  # in the second of its three row groups
    store.pipe_file(url, bytes(changed))
    with pytest.raises(DataError, match=rf"^{url} is damaged: .*CRC.*`xalign prepare` again"):
        list(open_local(stored, config, 0, 0))
    store.pipe_file(url, whole)
    assert list(open_local(stored, config, 0, 0)), "a damaged copy is fetched again"


def test_a_full_disk_under_the_cache_is_no_damage_of_the_store(stored: Prepared, config: RunConfig) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(DataError) as told:
            list(open_local(stored, config, 0, 0))
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
        end = len(held) - 100  # in the footer
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
