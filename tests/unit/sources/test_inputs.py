"""What a recipe names, wherever it lies: found, and known by its content alone."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pytest

from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import Corpus, DataConfig, Dictionary, ParallelCorpus
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources import stage
from xalign_ray.sources.inputs import check_inputs, find_sources, split_source
from xalign_ray.sources.open import open_bytes
from xalign_ray.sources.stage import InputHashes

OLD = 1_600_000_000  # seconds: a file that was written long ago is remembered


def settled(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    os.utime(path, (OLD, OLD))
    return path


def forbid_reading(patch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise AssertionError(f"{path} is read again")

    patch.setattr(stage, "open_bytes", refuse)


def test_a_file_in_a_store_has_the_hash_of_its_copy_on_a_disk(tmp_path: Path) -> None:
    content = b"".join(b"line %d\n" % n for n in range(2000))
    (tmp_path / "a.txt").write_bytes(content)
    store = fsspec.filesystem("memory")
    store.pipe("/hashes/b.txt", content)
    store.pipe("/hashes/c.txt", content.replace(b"line 0", b"Line 0"))
    paths = [str(tmp_path / "a.txt"), "memory://hashes/b.txt", "memory://hashes/c.txt"]
    here, there, other = InputHashes(tmp_path / "memory.json").of(paths)
    assert here == there == hashlib.sha256(content).hexdigest()
    assert here != other


def test_a_file_is_read_once_and_remembered_while_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, memory = settled(tmp_path / "a.txt", b"one\n"), tmp_path / "memory.json"
    before = InputHashes(memory).of([str(path)])
    with monkeypatch.context() as patch:
        forbid_reading(patch)
        assert InputHashes(memory).of([str(path)]) == before
    path.write_bytes(b"two\n")  # of the same size
    os.utime(path, (OLD + 1, OLD + 1))
    after = InputHashes(memory).of([str(path)])
    assert after == [hashlib.sha256(b"two\n").hexdigest()]
    settled(tmp_path / "b.txt", b"six\n").rename(path)  # of the same size and time as what is remembered of another
    os.utime(path, (OLD + 1, OLD + 1))
    assert InputHashes(memory).of([str(path)]) == [hashlib.sha256(b"six\n").hexdigest()]


def test_a_file_that_was_written_just_now_is_not_remembered(tmp_path: Path) -> None:
    path, memory = tmp_path / "a.txt", tmp_path / "memory.json"
    path.write_bytes(b"one\n")
    InputHashes(memory).of([str(path)])
    stat = path.stat()
    path.write_bytes(b"two\n")  # perhaps within one tick of the disk's clock
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert InputHashes(memory).of([str(path)]) == [hashlib.sha256(b"two\n").hexdigest()]


def test_a_file_that_is_written_while_it_is_read_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, memory = settled(tmp_path / "a.txt", b"one\n"), tmp_path / "memory.json"

    def open_and_write(name: str) -> Any:
        file = open_bytes(name)
        settled(path, b"two\n")  # another process writes, and sets the old time
        return file

    monkeypatch.setattr(stage, "open_bytes", open_and_write)
    InputHashes(memory).of([str(path)])
    assert not memory.exists()


def test_what_is_remembered_of_others_stays_and_a_damaged_memory_is_none(tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    first, second = (settled(tmp_path / name, name.encode()) for name in ("a", "b"))
    InputHashes(memory).of([str(first)])
    InputHashes(memory).of([str(second)])
    whole = memory.read_bytes()
    assert set(json.loads(whole)["files"]) == {str(first), str(second)}
    for content in (b"", whole[:40], b"{}", whole.replace(b'"sha256": "', b'"sha256": "0', 1)):
        memory.write_bytes(content)
        assert InputHashes(memory).of([str(first)]) == [hashlib.sha256(b"a").hexdigest()]


def test_a_store_that_names_versions_is_asked_for_them_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/versions/a.txt", b"one")
    memory, url = tmp_path / "memory.json", "memory://versions/a.txt"
    facts = {"size": 3, "ETag": "v1"}
    monkeypatch.setattr(type(store), "info", lambda *_, **__: facts | {"type": "file", "name": "/versions/a.txt"})
    forbid_reading(monkeypatch)
    before = InputHashes(memory).of([url])
    assert InputHashes(memory).of([url]) == before
    facts["ETag"] = "v2"
    assert InputHashes(memory).of([url]) != before


def test_a_root_may_be_a_url_and_paths_may_leave_it(tmp_path: Path) -> None:
    (tmp_path / "local.txt").write_text("here\n")
    fsspec.filesystem("memory").pipe("/bucket/en.txt", b"there\n")
    corpora = (
        Corpus(format="text", language="en", paths=("*.txt",)),
        Corpus(format="text", language="de", paths=(str(tmp_path / "local.txt"), "memory://bucket/en.txt")),
    )
    texts, *_ = find_sources(DataConfig(root="memory://bucket", corpora=corpora), Path("unused"))
    assert [[part.paths[0] for part in split_source(one, one.files).parts] for one in texts] == [
        ["memory:///bucket/en.txt"],
        [str(tmp_path / "local.txt"), "memory://bucket/en.txt"],
    ]


def test_files_that_are_no_data_are_named_by_the_check_of_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:9\nsize 3\n")
    corpora = [{"format": "text", "language": "en", "paths": ["en.txt"]}]
    config = load_recipe("tiny/mlm").config
    data = config.data.model_copy(update={"root": str(tmp_path), "corpora": [Corpus(**corpora[0])], "dictionaries": []})
    with pytest.raises(DataError, match=r"en\.txt is a pointer to the file"):
        check_inputs(config.model_copy(update={"data": data}))


def text(*paths: str, **more: Any) -> Corpus:
    return Corpus(format=more.pop("format", "text"), language="en", paths=paths, **more)


def pairs(format_: str, languages: str, *paths: str) -> ParallelCorpus:
    return ParallelCorpus(format=format_, languages=tuple(languages.split()), paths=paths)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            {"corpora": [text("en.txt", "en.txt")]},
            r"corpora\.0 names \S*en\.txt twice: write a file once for the same language, or",
        ),
        (
            {"corpora": [text("e*.txt"), text("./en.txt")]},
            r"corpora\.1 names \S*en\.txt as data\.corpora\.0 does: write",
        ),
        ({"corpora": [text("en.txt"), text("link.txt")]}, r"link\.txt as data\.corpora\.0 does"),
        (
            {"parallel": [pairs("moses", "de en", "de.txt", "en.txt")] * 2},
            r"\.1 names \S*de\.txt and \S*en\.txt as data",
        ),
        (
            {"parallel": [pairs("csv", "de en", "t.csv"), pairs("csv", "en de", "t.csv")]},
            r"t\.csv as .* same languages,",
        ),
        (
            {"dictionaries": [Dictionary(languages=("de", "en"), paths=("words.txt",) * 2)]},
            r"\.0 names \S*words\.txt twice",
        ),
        ({"parallel": [pairs("moses", "de en", "en.txt", "./en.txt")]}, r"parallel\.0 names .* twice: write"),
        (
            {"dictionaries": [Dictionary(format="csv", languages=("en", "en"), paths=("t.csv",))]},
            "dictionaries.0: format 'csv' takes two different languages",
        ),
        # One file that is read in two ways, or for two purposes, is no repetition.
        ({"parallel": [pairs("moses", "de en", "de.txt", "en.txt"), pairs("moses", "en fr", "en.txt", "fr.txt")]}, ""),
        ({"parallel": [pairs("csv", "de en", "t.csv"), pairs("csv", "en fr", "t.csv")]}, ""),
        ({"corpora": [text("en.txt")], "parallel": [pairs("moses", "de en", "de.txt", "en.txt")]}, ""),
        ({"corpora": [text("t.csv", format="csv", column="en"), text("t.csv", format="csv", column="more")]}, ""),
    ],
)
def test_a_file_that_is_named_twice_is_refused(tmp_path: Path, sources: dict[str, Any], message: str) -> None:
    for name in ("de", "en", "fr"):
        (tmp_path / f"{name}.txt").write_text(f"a sentence of {name}\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "en.txt")
    (tmp_path / "t.csv").write_text("de,en,fr,more\neins,one,un,two\n")
    (tmp_path / "words.txt").write_text("eins one\n")
    config = load_recipe("tiny/mlm").config
    none = dict.fromkeys(("corpora", "parallel", "tests", "dictionaries"), ())
    data = config.data.model_copy(update={**none, "root": str(tmp_path), **sources})
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        check_inputs(config.model_copy(update={"data": data}))
