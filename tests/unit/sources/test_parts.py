"""Parts: together they hold every record once, in order, wherever the cuts fall."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from xalign_ray.sources import open as opening
from xalign_ray.sources import records as cutting
from xalign_ray.sources import tables, text
from xalign_ray.sources.formats import kind_of, parts, read, read_part
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.open import WHOLE, Span
from xalign_ray.sources.records import BadRow, Document, Part, count_bytes, to_lines


def hostile_lines(rng: random.Random, count: int, blank_share: float) -> list[bytes]:
    ends = [b"\n", b"\r\n"]
    kinds = [
        lambda: b"word " * rng.randint(1, 30),
        lambda: "\u4e2d\u6587\u00e9\u0440".encode() * rng.randint(1, 9),
        lambda: b"\xff broken",
        lambda: b"z" * 300,  # over-long: the tests below lower the limit to 200 bytes
    ]
    blanks = [b"", b"  ", "\u3000".encode()]
    return [
        (rng.choice(blanks) if rng.random() < blank_share else rng.choices(kinds, (60, 30, 2, 2))[0]())
        + rng.choice(ends)
        for _ in range(count)
    ]


def lower_limits(monkeypatch: pytest.MonkeyPatch, part_bytes: int) -> None:
    for module in (cutting, tables):
        monkeypatch.setattr(module, "PART_BYTES", part_bytes)
    monkeypatch.setattr(cutting, "CHUNK_BYTES", 64)
    for module in (cutting, opening):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 200)
    monkeypatch.setattr(text, "MAX_DOCUMENT_LINES", 40)


def assert_parts_are_the_whole(format_: str, paths: list[str], languages: list[str]) -> int:
    """Records of a part in the middle of a file of lines are numbered from 0."""
    whole = list(read(format_, paths, languages))
    cut = parts(format_, paths, kind_of(format_, languages))
    assert [*Input("", tuple(languages), tuple(cut)).records()] == whole
    records = iter(whole)
    for part in cut:
        found = list(read_part(part, languages))
        wanted = list(islice(records, len(found)))
        before = 0
        if not part.first_line and found:
            before = wanted[0].line - found[0].line
        assert [replace(record, line=record.line + before) for record in found] == wanted
    assert not list(records)
    return len(cut)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("blank_share", [0.0, 0.2])
def test_parts_of_text_are_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, blank_share: float
) -> None:
    rng = random.Random(seed)
    path = tmp_path / "a.txt"
    path.write_bytes((b"\xef\xbb\xbf" + b"".join(hostile_lines(rng, 300, blank_share))).rstrip(b"\n" * (seed % 2)))
    lower_limits(monkeypatch, rng.randint(50, 3000))
    assert assert_parts_are_the_whole("text", [str(path)], ["en"]) > 2
    kinds = {type(record) for record in read("text", [str(path)], ["en"])}
    assert kinds == {Document, BadRow}


@pytest.mark.parametrize("seed", range(8))
def test_parts_of_moses_files_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    paths = [str(tmp_path / name) for name in ("a.en", "a.de", "a.align")]
    for path in paths[:2]:
        Path(path).write_bytes(b"".join(hostile_lines(rng, 300, 0.05)))
    Path(paths[2]).write_bytes(b"".join(rng.choice([b"0-0\n", b"\n", b"no\n"]) for _ in range(300)))
    lower_limits(monkeypatch, rng.randint(50, 3000))
    assert assert_parts_are_the_whole("moses", paths, ["en", "de"]) > 2


@pytest.mark.parametrize("header", [b"", b"en\tde\n"])
def test_parts_of_tsv_and_jsonl_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: bytes) -> None:
    rng = random.Random(1)
    lines = [line.rstrip() for line in hostile_lines(rng, 300, 0.05)]
    (tmp_path / "a.tsv").write_bytes(header + b"".join(line + b"\tx\n" for line in lines))
    good = [json.dumps({"text": f"one {i}\ntwo"}).encode() for i in range(300)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(rng.choice(pair) + b"\n" for pair in zip(lines, good, strict=True)))
    lower_limits(monkeypatch, 500)
    assert assert_parts_are_the_whole("tsv", [str(tmp_path / "a.tsv")], ["en", "de"]) > 5
    assert assert_parts_are_the_whole("jsonl", [str(tmp_path / "a.jsonl")], ["en"]) > 5


@pytest.mark.parametrize(
    ("content", "blank", "spans"),
    [
        (b"a\nb\n\nc\nd\ne\n\nf\n", True, [Span(0, 5), Span(5, 12), Span(12, 12), Span(12, None)]),
        (b"a\nb\n\nc\nd\ne\n\nf\n", False, [Span(0, 4), Span(4, 7), Span(7, 11), Span(11, None)]),
        (b"a" * 14, False, [Span(0, 14), Span(14, 14), Span(14, 14), Span(14, None)]),
    ],
)
def test_ends_of_a_range_are_moved_to_where_a_line_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, blank: bool, spans: list[Span]
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    monkeypatch.setattr(cutting, "PART_BYTES", 4)
    assert [to_lines(str(path), part.spans[0], blank=blank) for part in parts("text", [str(path)])] == spans


def test_utf16_is_one_part_as_its_line_ends_are_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\n\u0a0d two\nthree\n".encode("utf-16-le"))  # the second line begins with bytes \r \n
    monkeypatch.setattr(cutting, "PART_BYTES", 4)
    assert parts("text", [str(path)]) == [Part("text", (str(path),), (WHOLE,))]
    assert parts("moses", [str(path), str(path)]) == [Part("moses", (str(path),) * 2, (WHOLE, WHOLE))]
    texts = [record.paragraphs for record in read("text", [str(path)], ["en"]) if isinstance(record, Document)]
    assert texts == [("one",), ("\u0a0d two",), ("three",)]


def test_small_and_packed_files_and_dictionaries_are_one_part_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, packed = str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz")
    Path(small).write_bytes(b"one\n" * 40)
    Path(packed).write_bytes(gzip.compress(b"one\n" * 1000))
    first, second = parts("text", [small, packed])
    assert (first, second) == (Part("text", (small,), (WHOLE,)), Part("text", (packed,), (WHOLE,)))
    monkeypatch.setattr(cutting, "PART_BYTES", 10)
    assert len(parts("text", [small])) > 5
    assert parts("text", [packed]) == [Part("text", (packed,), (WHOLE,))]
    assert parts("muse", [small]) == [Part("muse", (small,), (WHOLE,))]
    assert parts("moses", [small, packed]) == [Part("moses", (small, packed), (WHOLE, WHOLE))]


def test_the_bytes_of_the_parts_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xalign_ray.sources.records.PART_BYTES", 40)
    lines = [f"line {number}\n" for number in range(30)]
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(lines))
    size = (tmp_path / "a").stat().st_size
    alone = parts("text", [str(tmp_path / "a")])
    assert len(alone) > 3
    assert sum(count_bytes(alone)) == size
    assert all(count > 0 for count in count_bytes(alone))
    assert count_bytes(alone[1:2]) == count_bytes(alone)[1:2], "whatever else is to be read"
    together = parts("moses", [str(tmp_path / "a"), str(tmp_path / "b")])
    assert sum(count_bytes(together)) == 2 * size
