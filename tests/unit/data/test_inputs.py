"""What a recipe names, wherever it lies: found, and known by its content alone."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from xalign_ray.config.schema import Corpus, DataConfig
from xalign_ray.data import inputs
from xalign_ray.data.inputs import Input, content_hashes, find_inputs
from xalign_ray.data.sources.registry import parts


def hashes(*paths: str) -> list[list[str]]:
    return content_hashes([Input("text/en", ("en",), tuple(parts("text", list(paths))))])


@pytest.mark.parametrize("limit", [1 << 20, 1000])
def test_a_file_in_a_store_has_the_hash_of_its_copy_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(inputs, "WHOLE_HASH_BYTES", limit)
    monkeypatch.setattr(inputs, "SAMPLE_BYTES", 100)
    content = b"".join(b"line %d\n" % n for n in range(2000))
    (tmp_path / "a.txt").write_bytes(content)
    store = fsspec.filesystem("memory")
    store.pipe("/hashes/b.txt", content)
    store.pipe("/hashes/c.txt", content.replace(b"line 0", b"Line 0"))
    (here,), (there,), (other,) = (
        hashes(path)[0] for path in (str(tmp_path / "a.txt"), "memory://hashes/b.txt", "memory://hashes/c.txt")
    )
    assert here == there
    assert here != other


def test_a_root_may_be_a_url_and_paths_may_leave_it(tmp_path: Path) -> None:
    (tmp_path / "local.txt").write_text("here\n")
    fsspec.filesystem("memory").pipe("/bucket/en.txt", b"there\n")
    corpora = (
        Corpus(format="text", language="en", paths=("*.txt",)),
        Corpus(format="text", language="de", paths=(str(tmp_path / "local.txt"), "memory://bucket/en.txt")),
    )
    texts, _ = find_inputs(DataConfig(root="memory://bucket", corpora=corpora), Path("unused"))
    assert [[part.paths[0] for part in one.parts] for one in texts] == [
        ["memory:///bucket/en.txt"],
        [str(tmp_path / "local.txt"), "memory://bucket/en.txt"],
    ]
