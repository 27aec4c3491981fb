"""Files behind URLs: looked up, opened, cut and read as those on a disk are."""

from __future__ import annotations

import bz2
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest

from xalign_ray.errors import DataError
from xalign_ray.sources import records as cutting
from xalign_ray.sources.formats import find_files, parts, read, read_part
from xalign_ray.sources.inputs import Input, split_source
from xalign_ray.sources.open import expand, facts_of, is_folder, join_path, open_bytes, size_of
from xalign_ray.sources.records import Document, Pair
from xalign_ray.sources.stage import InputHashes
from xalign_ray.work.artifacts import hash_file
from xalign_ray.work.storage import is_url

SUPPORTED = "Give a path on a disk, or a URL of s3://, gs://, az://, abfs://, hf://, http:// or https://."


@pytest.fixture
def bucket() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/corpus/b.txt", b"two\nthree\n")
    system.pipe("/corpus/a.txt", b"one\n")
    system.pipe("/corpus/a.de.bz2", bz2.compress(b"eins\n"))
    yield system
    system.store.clear()


@pytest.mark.parametrize(
    ("root", "path", "joined"),
    [
        ("data", "text/en.txt", "data/text/en.txt"),
        ("data", "/text/en.txt", "/text/en.txt"),
        ("data", "s3://bucket/en.txt", "s3://bucket/en.txt"),
        ("s3://bucket/data/", "text/*.txt", "s3://bucket/data/text/*.txt"),
        ("gs://bucket", "hf://datasets/a/b.parquet", "hf://datasets/a/b.parquet"),
    ],
)
def test_paths_are_seen_from_their_root(root: str, path: str, joined: str) -> None:
    assert join_path(root, path) == joined


def test_a_windows_drive_and_a_name_with_a_colon_are_no_urls() -> None:
    assert [is_url(path) for path in ("s3://a", "hf://a", "a.txt", "C://a", "a:b/c")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_patterns_name_urls_in_sorted_order(bucket: fsspec.AbstractFileSystem) -> None:
    assert expand("memory://corpus/*.txt") == ["memory:///corpus/a.txt", "memory:///corpus/b.txt"]
    assert expand("memory://corpus/a.txt") == ["memory://corpus/a.txt"]
    assert expand("MEMORY://corpus/a.txt") == ["MEMORY://corpus/a.txt"]
    assert size_of("memory://corpus/b.txt") == 10
    assert is_folder("memory://corpus")
    assert bucket.exists("/corpus/a.txt")


def test_records_come_from_urls_as_from_disks(
    bucket: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = list(read("text", ["memory://corpus/*.txt"], ["en"]))
    assert [(d.paragraphs, d.source, d.line) for d in documents if isinstance(d, Document)] == [
        (("one",), "memory:///corpus/a.txt", 1),
        (("two",), "memory:///corpus/b.txt", 1),
        (("three",), "memory:///corpus/b.txt", 2),
    ]
    (pair,) = read("moses", ["memory://corpus/a.txt", "memory://corpus/a.de.bz2"], ["en", "de"])
    assert isinstance(pair, Pair)
    assert pair.texts == ("one", "eins")
    bucket.pipe("/links/a.align", b"1-1\n" * 20)
    with pytest.raises(DataError, match=r"^memory://links/a\.align: .* so it counts words from 1\."):
        parts("moses", ["memory://corpus/a.txt", "memory://corpus/a.de.bz2", "memory://links/a.align"])
    monkeypatch.setattr(cutting, "PART_BYTES", 2)
    cut = parts("text", ["memory://corpus/b.txt"])
    assert len(cut) == 5
    found = [record for part in cut for record in read_part(part, ["en"])]
    assert [d.paragraphs for d in found if isinstance(d, Document)] == [("two",), ("three",)]


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    (document,) = read("text", [f"file://{tmp_path}/a.*"], ["en"])
    assert document.source == f"file://{tmp_path}/a.txt"
    paths = [f"{begin}{tmp_path}/a.txt" for begin in ("", "file://", "FILE://")]
    assert InputHashes(tmp_path / "inputs.json").of(paths) == [hash_file(tmp_path / "a.txt")] * 3
    assert facts_of(paths[0]) == facts_of(paths[1])


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("memory://corpus/no.txt", "memory://corpus/no.txt does not exist. Check the URL and your access to it."),
        ("memory://corpus/*.xml", "memory://corpus/*.xml does not exist. Check the URL and your access to it."),
        ("gs://bucket/a", "gs://bucket/a: gs:// is read through the package gcsfs; install it here."),
        (
            "nope://bucket/a",
            f"nope://bucket/a: nope:// is not supported. {SUPPORTED}",
        ),
        ("github://org/c.txt", f"github://org/c.txt: github:// is not supported. {SUPPORTED}"),
        ("ftp://localhost:1/a", f"ftp://localhost:1/a: ftp:// is not supported. {SUPPORTED}"),
        ("reference://refs.json", f"reference://refs.json: reference:// is not supported. {SUPPORTED}"),
    ],
)
def test_what_cannot_be_found_or_opened_is_said_in_a_sentence(path: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        expand(path)
    assert str(caught.value) == message


@contextmanager
def serving(content: bytes | bytearray) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The address of a server that gives this content for any path, and the requests that it gets."""
    asked = list[tuple[str, str]]()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            asked.append((self.command, self.path))
            self.send_response(200)
            self.send_header("ETag", '"one"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(bytes(content))  # a bytearray that is being sent cannot grow

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(b"a line\n") as (address, asked):
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("no_proxy", "localhost")
        with open_bytes("http://nowhere.invalid/a.txt") as file:
            assert file.read() == b"a line\n"
    assert {path for _, path in asked} == {"http://nowhere.invalid/a.txt"}


def test_a_file_of_a_web_server_is_transferred_for_its_records_alone() -> None:
    content = b'<tmx><body><tu><tuv lang="en"><seg>a</seg></tuv><tuv lang="de"><seg>b</seg></tuv></tu></body></tmx>'
    with serving(content) as (address, asked):
        files = find_files([f"{address}/a.tmx"])
        source = Input("pairs/de-en", ("en", "de"), format="tmx", files=tuple(files))
        split = split_source(source, InputHashes(None).of(files))
        assert [method for method, _ in asked if method != "HEAD"] == []
        (pair,) = split.records()
        assert isinstance(pair, Pair)
        assert [method for method, _ in asked if method != "HEAD"] == ["GET"]


def test_a_file_of_a_web_server_that_has_grown_is_read_whole() -> None:
    content = bytearray(b"a line\n")
    with serving(content) as (address, _):
        with open_bytes(f"{address}/a.txt") as file:
            assert file.read() == content
        content += b"another\n"
        with open_bytes(f"{address}/a.txt") as file:
            assert file.read() == content


def test_a_store_that_does_not_answer_is_said_in_a_sentence() -> None:
    with pytest.raises(DataError, match=r"^http://localhost:9/a.* cannot be looked up: .*\. Check the network"):
        expand("http://localhost:9/a*.txt")
