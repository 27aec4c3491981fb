"""Records of a part of a source as Parquet: written by the parser once, read in its place from then on.

A row is a document, a pair, or a row that was set aside (`reason` says why; it has no texts), in the order of the
source. Its record says how many rows were left out on purpose, and where reading broke off. What is found out of the
text later, such as its duplicates, is a column in a file of its own beside it, with a value for each row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from xalign_ray.errors import DataError
from xalign_ray.sources.records import BadRow, Document, Lines, Noted, Pair, Part, Record, Skipped, texts_of
from xalign_ray.work.artifacts import is_sealed, replacing, whole_json

GROUP_CHARACTERS = 1 << 20  # of a row group, which a reader holds at once
ROW_CHARACTERS = 32  # that a row counts for beside its texts
HINT = "Run `xalign prepare` again: it reads the source again where its text is damaged."
SCHEMA = pa.schema(
    [
        ("languages", pa.list_(pa.string())),
        ("texts", pa.list_(pa.string())),  # paragraphs of a document, or the two sides of a pair and its negatives
        ("source", pa.string()),
        ("line", pa.int64()),
        ("alignment", pa.string()),
        ("reason", pa.string()),
    ]
)
_READ = [name for name in SCHEMA.names if name != "languages"]
_FEW_VALUES = ["languages.list.element", "source", "reason"]


def record_of(path: Path) -> Path:
    """The record of a text file's inputs; written last."""
    return path.with_suffix(".json")


def write_stored(
    path: Path, records: Iterator[Record | Skipped | Noted | Lines], languages: Sequence[str]
) -> dict[str, Any]:
    """Writes the records of a parser.

    Args:
        languages: of each record.

    Returns:
        The fields of the record.
    """
    left_out: list[dict[str, Any]] = []  # with each row group, and behind the last
    good = bad = 0  # lines of documents or pairs; rows that were set aside
    lines: list[int] = []  # of the files, where their reader counts them
    with _new_parquet(path, SCHEMA) as out:
        for group, counts in _groups(records, lines):
            left_out.append(counts)
            bad += sum(isinstance(record, BadRow) for record in group)
            good += sum(
                len(record.paragraphs) if isinstance(record, Document) else isinstance(record, Pair) for record in group
            )
            if group:
                out.write_table(_as_table(group, languages))
    return {"left_out": left_out, "good": good, "bad": bad, "lines": sum(lines)}


def write_column(path: Path, name: str, kind: pa.DataType, values: Iterable[pa.Array]) -> None:
    """Writes a column that stands beside a file of text, a value for each of its rows, in arrays of any lengths."""
    schema = pa.schema([(name, kind)])
    with _new_parquet(path, schema) as out:
        for some in values:
            out.write_table(pa.table([some], schema))


@contextmanager
def _new_parquet(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """A writer whose file appears when it is whole; the same tables give the same bytes."""
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(
            temporary,
            schema,
            compression="zstd",
            use_dictionary=_FEW_VALUES,  # type: ignore[arg-type]  # its stub knows no lists
            write_statistics=False,
            store_schema=False,
            write_page_checksum=True,
        ) as out,
    ):
        yield out


def _groups(
    records: Iterator[Record | Skipped | Noted | Lines], lines: list[int]
) -> Iterator[tuple[list[Record], dict[str, Any]]]:
    """Records that make a row group, and what was left out among them; the last group may have no records."""
    group: list[Record] = []
    skipped, noted, room = Counter[str](), Counter[str](), GROUP_CHARACTERS
    for record in records:
        if isinstance(record, Skipped):
            skipped[record.reason] += record.count
        elif isinstance(record, Noted):
            noted[record.what] += record.count
        elif isinstance(record, Lines):
            lines.append(record.count)
        else:
            group.append(record)
            room -= sum(map(len, texts_of(record))) + ROW_CHARACTERS
            if room <= 0:
                yield group, {"skipped": skipped, "noted": noted}
                group, skipped, noted, room = [], Counter(), Counter(), GROUP_CHARACTERS
    if group or skipped or noted:
        yield group, {"skipped": skipped, "noted": noted}


def _as_table(group: Sequence[Record], languages: Sequence[str]) -> pa.Table:
    texts = [texts_of(record) for record in group]
    begins = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    offsets = np.arange(len(group) + 1, dtype=np.int32) * len(languages)
    columns = {
        "languages": pa.ListArray.from_arrays(offsets, pa.array([*languages] * len(group), pa.string())),
        "texts": pa.ListArray.from_arrays(begins, pa.array([*chain.from_iterable(texts)], pa.string())),
        "source": pa.array([record.source for record in group], pa.string()),
        "line": pa.array([record.line for record in group], pa.int64()),
        "alignment": _optional(group, Pair, "alignment"),
        "reason": _optional(group, BadRow, "reason"),
    }
    return pa.table(columns, SCHEMA)


def _optional(group: Sequence[Record], kind: type[Pair] | type[BadRow], name: str) -> pa.Array:
    """A field that records of one kind have, which most groups lack."""
    if not any(isinstance(record, kind) for record in group):
        return pa.nulls(len(group), pa.string())
    return pa.array([getattr(record, name, None) for record in group], pa.string())


def read_stored(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """What `write_stored` was given, in the same order but for what was left out, which follows its row group.

    Args:
        part: with the file of text and its columns.
        languages: of the source.

    Raises:
        DataError: a file is missing or damaged, or a column is of another text.
    """
    path, record = Path(part.text), read_facts(part)
    with _opened(path) as file:
        columns = dict(_column_of(file, path, Path(beside)) for beside in part.beside)
        for number, left_out in enumerate(record["left_out"]):
            if number < file.num_row_groups:
                table = file.read_row_group(number, _READ, use_threads=False)
                yield from _records(table, languages, columns, part.before)
            yield from (Skipped(*item) for item in left_out["skipped"].items())
            yield from (Noted(*item) for item in left_out["noted"].items())


def read_facts(part: Part) -> dict[str, Any]:
    """What `write_stored` returned of a part.

    Raises:
        DataError: it is missing or damaged.
    """
    path = record_of(Path(part.text))
    record = whole_json(path, "sha256")
    if record is None or not is_sealed(record):
        raise DataError(f"{path} is missing or damaged. {HINT}")
    return record


def read_bad_rows(part: Part) -> Iterator[BadRow]:
    """The rows of a part that were set aside; reads no texts."""
    with _opened(Path(part.text)) as file:
        for batch in file.iter_batches(columns=["source", "line", "reason"]) if read_facts(part)["bad"] else ():
            for row in batch.filter(batch["reason"].is_valid()).to_pylist():
                yield BadRow(row["source"], row["line"] + part.before, row["reason"])


def _column_of(text: pq.ParquetFile, path: Path, beside: Path) -> tuple[str, Iterator[Any]]:
    with _opened(beside) as file:
        (name,), rows = file.schema_arrow.names, file.metadata.num_rows
    if rows != text.metadata.num_rows:
        raise DataError(f"{beside} has {rows:,} rows, and {path} {text.metadata.num_rows:,}. {HINT}")
    return name, read_column(beside)


def read_column(path: Path) -> Iterator[Any]:
    """The values of a column that stands beside text, streaming.

    Raises:
        DataError: the file is missing or damaged.
    """
    with _opened(path) as file:
        for batch in file.iter_batches(use_threads=False):
            yield from batch.column(0).to_pylist()


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path} is missing. {HINT}") from None
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path} is damaged ({error}). {HINT}") from None


def _records(
    table: pa.Table,
    languages: Sequence[str],
    beside: Mapping[str, Iterator[Any]],
    before: int,
) -> Iterator[Record]:
    """The records of a row group, each with the next value of every column that stands beside the text."""
    texts, rows = table["texts"].combine_chunks(), len(table)
    lines, begins = texts.values.to_pylist(), texts.offsets.to_pylist()
    sides: Iterator[Any] = (tuple(lines[begin:end]) for begin, end in pairwise(begins))
    sources = table["source"].combine_chunks().dictionary_encode()  # so that rows share the name of their file
    names = sources.dictionary.to_pylist()
    places = map(names.__getitem__, sources.indices.to_pylist()), (table["line"].to_numpy() + before).tolist()
    values = {
        "alignment": iter(table["alignment"].to_pylist()),
        "duplicate": repeat(()),
        "near_duplicate": repeat(False),
    }
    alignment, *marks = (values | {**beside}).values()
    if len(languages) == 1:
        records: Iterator[Record] = map(Document, repeat(languages[0], rows), sides, *places, *marks)
    else:
        with_others = [*sides]
        sides, negatives = (side[:2] for side in with_others), (side[2:] for side in with_others)
        records = map(Pair, repeat(tuple(languages), rows), sides, *places, alignment, *marks, negatives)
    if table["reason"].null_count == rows:
        return records
    return (
        record if reason is None else BadRow(record.source, record.line, reason)
        for record, reason in zip(records, table["reason"].to_pylist(), strict=True)
    )
