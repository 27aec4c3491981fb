"""Parquet in the form of wikimedia/wikipedia: row groups are parts, rows are documents."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.sources.broken import read_until_broken
from xalign_ray.errors import DataError
from xalign_ray.sources import columnar
from xalign_ray.sources.formats import parts, read, read_part
from xalign_ray.sources.open import Span
from xalign_ray.sources.records import BadRow, Document


def write(path: Path, texts: list[str | None], rows: int = 1000, column: str = "text") -> str:
    count = len(texts)
    meta = {"id": [str(n) for n in range(count)], "url": ["u"] * count, "title": ["t"] * count}
    pq.write_table(pa.table(meta | {column: pa.array(texts, pa.string())}), path, row_group_size=rows)
    return str(path)


def test_rows_are_documents_and_their_lines_paragraphs(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", ["One.\n\n Two. ", " \n", None, "Three."])
    assert list(read("parquet", [path], ["en"])) == [
        Document("en", ("One.", "Two."), path, 1),
        BadRow(path, 2, "document is empty"),
        BadRow(path, 3, "row has no text"),
        Document("en", ("Three.",), path, 4),
    ]


def test_row_groups_are_parts_and_together_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "PART_BYTES", 5_000)
    texts: list[str | None] = [f"text {n} " + "x" * 50 for n in range(1000)]
    path = write(tmp_path / "a.parquet", texts, rows=30)
    cut = parts("parquet", [path], "documents")
    assert len(cut) > 5
    assert cut[0].spans == (Span(0, cut[1].spans[0].start),)
    assert cut[-1].spans[0].end is None
    records = [record for part in cut for record in read_part(part, ["en"])]
    assert [record.line for record in records] == list(range(1, 1001))
    assert [record.paragraphs[0] for record in records if isinstance(record, Document)] == texts


@pytest.mark.parametrize(
    ("column", "cut", "message"),
    [
        ("article", 0, "{path} has no column of text 'text'; it has id, url, title, article."),
        ("text", 20, "{path} is no Parquet file, or is cut short ("),
        ("text", 10_000, "{path} is no Parquet file, or is cut short ("),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_at_the_call(tmp_path: Path, column: str, cut: int, message: str) -> None:
    path = write(tmp_path / "a.parquet", ["a"], column=column)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: max(0, len(content) - cut)])
    with pytest.raises(DataError) as caught:
        read("parquet", [path], ["en"])
    assert str(caught.value).startswith(message.format(path=path))


def test_a_damaged_row_group_ends_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "PART_BYTES", 1)
    path = write(tmp_path / "a.parquet", [f"text {n} {n * n}" for n in range(3000)], rows=1000)
    column = pq.ParquetFile(path).metadata.row_group(1).column(3)
    content = bytearray(Path(path).read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start + 40 : start + column.total_compressed_size] = b"\xff" * (column.total_compressed_size - 40)
    Path(path).write_bytes(content)
    records, broken = read_until_broken(
        record for part in parts("parquet", [path], "documents") for record in read_part(part, ["en"])
    )
    assert sum(isinstance(record, Document) for record in records) == 1000
    assert broken == (path, start, len(content), "damaged archive")
