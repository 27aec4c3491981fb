"""Files appear whole or not at all, and damage is named."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from xalign_ray.errors import DataError, explain
from xalign_ray.work.artifacts import (
    check_file,
    finished_run,
    hash_file,
    hash_value,
    read_json,
    read_manifest,
    share,
    whole_manifest,
    write_atomic,
    write_json,
    write_manifest,
)


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomic(path, "first")
    write_atomic(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    synced: list[tuple[int, int, bool]] = []

    def sync(file: int) -> None:
        synced.append((os.fstat(file).st_ino, os.fstat(file).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    write_atomic(path, "whole")
    assert synced == [(path.stat().st_ino, len("whole"), False)], "no byte is still in the process"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(tmp_path / "file", "\ud800")  # half a character cannot be encoded
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path / "folder", "new")
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_file_that_finds_the_disk_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        write_json(tmp_path / "inputs.json", {})
    said = f"{tmp_path}/inputs.json: No space left on device. Make room, or raise the limit, and give it again."
    assert explain(caught.value) == said
    assert list(tmp_path.iterdir()) == []


def test_files_are_shared_where_the_disk_has_one_mode_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, mode in (("a.bin", 0o600), ("b.bin", 0o644)):
        (tmp_path / name).touch(mode)
    before = os.umask(0o022)
    try:
        share(tmp_path, "*.bin")
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o644}
        monkeypatch.setattr(Path, "chmod", pytest.fail)
        share(tmp_path, "*.bin")
    finally:
        os.umask(before)


def test_equal_values_are_equal_files(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"x": 1, "\u00e9": [2]})
    write_json(tmp_path / "b", {"\u00e9": [2], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert json.loads((tmp_path / "a").read_text(encoding="utf-8")) == {"x": 1, "\u00e9": [2]}


def test_hashes() -> None:
    assert hash_value({"a": 1, "b": 2}) == hash_value({"b": 2, "a": 1})
    assert hash_value({"a": 1}) != hash_value({"a": 2})
    assert hash_value([]) == hashlib.sha256(b"[]").hexdigest()


def test_a_folder_without_a_manifest_does_not_exist(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    assert read_manifest(tmp_path / "nowhere") is None
    write_manifest(tmp_path, {"rows": 3})
    assert read_manifest(tmp_path) == {"rows": 3}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is not JSON"),
        (b'{"recipe": "a", "finge', "it is not JSON"),
        (b"\x93\xff\x00", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"{}", "it lacks recipe, steps"),
        (b"[]", "it lacks recipe, steps"),
    ],
)
def test_a_damaged_manifest_is_named_with_its_cure_and_finishes_nothing(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    with pytest.raises(DataError) as told:
        read_manifest(tmp_path, "recipe", "steps")
    assert str(told.value).startswith(f"{path} is damaged: {said}")
    assert str(told.value).endswith(f". Remove it and give the command that made {tmp_path} again.")
    assert whole_manifest(tmp_path, "recipe", "steps") is None
    assert finished_run(tmp_path) is None


def test_a_manifest_is_an_object(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("[1]")
    with pytest.raises(DataError, match=r"manifest\.json is damaged: it is no manifest"):
        read_manifest(tmp_path)


def test_a_missing_json_file_is_named_with_its_cure(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"part\.json is missing\. Do it again\.$"):
        read_json(tmp_path / "part.json", "Do it again.")


def test_a_flipped_byte_is_named(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    write_atomic(path, "content")
    wanted = hash_file(path)
    check_file(path, wanted, "Do it again.")
    path.write_bytes(b"kontent")
    with pytest.raises(DataError) as told:
        check_file(path, wanted, "Do it again.")
    assert str(told.value) == (
        f"{path} is damaged: its SHA-256 is {hash_file(path)[:12]}, the manifest says {wanted[:12]}. Do it again."
    )
    path.unlink()
    with pytest.raises(DataError) as told:
        check_file(path, wanted, "Do it again.")
    assert str(told.value) == f"{path} is missing. Do it again."
