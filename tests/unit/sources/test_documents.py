"""Plain text and JSON lines: what is a document, and what is set aside."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xalign_ray.sources import text
from xalign_ray.sources.formats import read
from xalign_ray.sources.records import MARKUP, BadRow, Document


def write(path: Path, content: str) -> str:
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_blank_lines_end_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\n one \ntwo\n\n \nthree\n\n")
    assert list(read("text", [path], ["eng"])) == [
        Document("en", ("one", "two"), path, 2),
        Document("en", ("three",), path, 6),
    ]


def test_without_blank_lines_each_line_is_a_document(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\none\ntwo\n\n")
    assert list(read("text", [path], ["en"])) == [
        Document("en", ("one",), path, 2),
        Document("en", ("two",), path, 3),
    ]


def test_a_long_document_is_cut_so_that_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_DOCUMENT_LINES", 3)
    path = write(tmp_path / "a.txt", "a\n\nb\nc\nd\ne\n")
    documents = [record.paragraphs for record in read("text", [path], ["en"]) if isinstance(record, Document)]
    assert documents == [("a",), ("b", "c", "d"), ("e",)]


def test_a_line_that_cannot_be_read_is_set_aside_and_its_document_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\xff\ntwo\n\nthree\n")
    assert list(read("text", [str(path)], ["en"])) == [
        BadRow(str(path), 2, "bytes are not UTF-8"),
        Document("en", ("one", "two"), str(path), 1),
        Document("en", ("three",), str(path), 5),
    ]


def test_json_lines_give_a_document_each_and_its_lines_are_paragraphs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"id": 1, "text": "one\\n\\n two "}\n\n{"text": "three\\rfour\\r\\nfive"}\n')
    skipped: Counter[str] = Counter()
    assert list(read("jsonl", [path], ["de"], skipped)) == [
        Document("de", ("one", "two"), path, 1),
        Document("de", ("three", "four", "five"), path, 3),
    ]
    assert skipped == {"blank line": 1}


@pytest.mark.parametrize("format_", ["jsonl", "json", "csv", "parquet", "text"])
def test_a_document_of_three_megabytes_is_one_in_every_format(tmp_path: Path, format_: str) -> None:
    line = "<3 is a heart, a[i][0] an index, '''x''' three quotes. " * 50_000
    path = tmp_path / f"a.{format_}"
    if format_ == "parquet":
        pq.write_table(pa.table({"text": [line]}), path)
    else:
        row = json.dumps({"text": line})
        path.write_text({"jsonl": row, "json": f"[{row}]", "csv": f'text\n"{line}"\n', "text": line}[format_])
    (found,) = read(format_, [str(path)], ["en"])
    assert isinstance(found, Document)
    assert found.paragraphs == (line.strip(),)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "cut', "line is not JSON"),
        ("[" * 100_000, "line is not JSON"),
        ('{"title": "a"}', "object lacks the keys of its texts"),
        ('{"text": 3}', "'text' holds no text"),
        ('["text"]', "line is no JSON object"),
        ('{"text": " \\n "}', "document is empty"),
        ('{"text": " <!DOCTYPE html><html><p>A house.</p></html>"}', MARKUP),
        ('{"text": "<section data-mw=1>A house.</section>"}', MARKUP),
        ("""{"text": "A '''house''' is a [[building]].<ref>x</ref>"}""", MARKUP),
        ('{"text": "A [[house|home]] has {{convert|3|m|ft}} walls."}', MARKUP),
        ('{"text": "half \\ud83d pair"}', "'text' holds half a surrogate pair"),
    ],
)
def test_a_bad_json_line_is_set_aside_with_its_reason(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n')
    records = list(read("jsonl", [path], ["en"]))
    assert records[1] == BadRow(path, 2, reason)
    assert len(records) == 3
