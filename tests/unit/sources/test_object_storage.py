"""Inputs in an S3 store: read as from a disk, through a slow and failing store; what it refuses is a sentence."""

from __future__ import annotations

import gzip
import io
import re
from typing import Any

import fsspec
import pytest

from tests.s3_server import S3Server
from xalign_ray.errors import DataError
from xalign_ray.sources import records as cutting
from xalign_ray.sources.formats import parts, read, read_part
from xalign_ray.sources.open import expand, facts_of, open_bytes, size_of
from xalign_ray.sources.stage import InputHashes
from xalign_ray.work.storage import BLOCK_BYTES, open_stored

LINES = [f"line {number} of a corpus that lies in a store" for number in range(40_000)]
TEXT = "\n".join(LINES).encode() + b"\n"
URL = "s3://store/text/en.txt"


@pytest.fixture
def text(s3: S3Server) -> S3Server:
    system = fsspec.filesystem("s3")
    system.pipe_file("store/text/en.txt", TEXT)
    system.pipe_file("store/text/de.txt.gz", gzip.compress(TEXT))
    return s3


def _paragraphs(path: str) -> list[str]:
    return [paragraph for record in read("text", [path], ["en"]) for paragraph in getattr(record, "paragraphs", ())]


@pytest.mark.parametrize("fault", [{}, {"failing": 4}, {"slow_s": 0.05}], ids=["well", "failing", "slow"])
def test_a_corpus_is_read_from_a_store_as_it_was_written(text: S3Server, fault: dict[str, Any]) -> None:
    with text.fault(**fault):
        assert expand("s3://store/text/*.txt") == [URL]
        assert size_of(URL) == len(TEXT)
        assert _paragraphs(URL) == _paragraphs("s3://store/text/de.txt.gz") == LINES
    assert bool(text.failed) >= ("failing" in fault)


@pytest.mark.usefixtures("text")
def test_a_large_corpus_is_read_from_a_store_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "PART_BYTES", len(TEXT) // 5)
    found = parts("text", [URL])
    assert len(found) >= 5
    rows = (record for part in found for record in read_part(part, ["en"]))
    assert [paragraph for record in rows for paragraph in getattr(record, "paragraphs", ())] == LINES


def test_lines_of_a_stored_file_are_those_of_a_file(s3: S3Server) -> None:
    text = b"short\n\n" + b"x" * 10_000 + b"\nlast, without an end"
    fsspec.filesystem("s3").pipe_file("store/lines.txt", text)
    assert s3.requests
    for size in (-1, 0, 3, 4096, 9_999, 20_000):
        here, there = io.BytesIO(text), open_stored("s3://store/lines.txt")
        for _ in range(6):
            assert there.readline(size) == here.readline(size)
            assert there.tell() == here.tell()


def test_an_object_is_known_by_its_version_and_read_again_when_it_changes(text: S3Server, tmp_path: Any) -> None:
    def gets() -> int:
        return sum(method == "GET" and "en.txt" in path for method, path in text.requests)

    before, known = gets(), facts_of(URL)
    (first,) = InputHashes(tmp_path / "inputs.json").of([URL])
    assert InputHashes(tmp_path / "inputs.json").of([URL]) == [first]
    assert gets() == before
    fsspec.filesystem("s3").pipe_file("store/text/en.txt", TEXT.swapcase())
    assert facts_of(URL) != known
    assert InputHashes(tmp_path / "inputs.json").of([URL]) != [first]


def _open_and_read(path: str) -> bytes:
    with open_bytes(path) as file:
        return file.read()


@pytest.mark.usefixtures("text")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("s3://store/no.txt", "there is no such object. Check the URL"),
        ("s3://no-bucket/a.txt", "there is no such"),
    ],
)
def test_what_is_not_there_is_said(path: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        _open_and_read(path)
    assert str(caught.value).startswith(f"{path} cannot be read: {said}")


def test_an_answer_that_ends_early_is_an_error_and_no_shorter_file(text: S3Server) -> None:
    with text.fault(cut="en.txt"), pytest.raises(DataError, match=rf"^{URL} cannot be read at byte 0: .*"):
        _open_and_read(URL)


def test_credentials_that_expire_while_a_file_is_read_are_said_without_showing_them(text: S3Server) -> None:
    long = "s3://store/text/long.txt"
    fsspec.filesystem("s3").pipe_file(long, bytes(3 * BLOCK_BYTES))
    with open_bytes(long) as file:
        assert len(file.read(100)) == 100
        with text.fault(expired=True):
            with pytest.raises(DataError) as caught:
                file.read()
            expired = r"cannot be read: the store refuses the request .* credentials that have expired"
            with pytest.raises(DataError, match=expired):
                _open_and_read(URL)
    assert "not-to-be-shown" not in repr(caught.value.__cause__)
    words = r"at byte [\d,]+: the credentials have expired\. Renew them in the environment and rerun the same command\."
    assert re.fullmatch(rf"{long} cannot be read {words}", str(caught.value))


@pytest.mark.usefixtures("text")
def test_missing_credentials_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    fsspec.filesystem("s3").clear_instance_cache()
    with pytest.raises(DataError, match=r"there are no credentials for the store\. Give them in the environment"):
        _open_and_read(URL)
