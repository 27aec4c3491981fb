"""Tables of pairs: CSV, JSON arrays, and columns of Parquet and Arrow files, each against a plain reader."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import datasets
import pandas as pd
import pyarrow
import pytest
from pyarrow import ipc, parquet

from tests.unit.sources.broken import read_until_broken
from xalign_ray.config.sources import ParallelCorpus
from xalign_ray.errors import DataError
from xalign_ray.sources import records as splitting
from xalign_ray.sources.csv_rows import AS_TEXT, BACKSLASH, UNQUOTED
from xalign_ray.sources.formats import parts, read, read_part
from xalign_ray.sources.records import BadRow, Document, Pair

ROWS = [("a cat", "eine Katze"), ('say "hi", please', 'sag "hi", bitte'), ("two\nlines", "zwei\nZeilen"), ("d", "D")]
FLAT = [tuple(" ".join(text.split()) for text in row) for row in ROWS]


def texts(format_: str, path: Path, columns: tuple[str, str] | None = None) -> list[tuple[str, str]]:
    return [one.texts for one in read(format_, [str(path)], ["en", "de"], columns=columns) if isinstance(one, Pair)]


def bad_rows(format_: str, path: Path, columns: tuple[str, str] | None = None) -> list[tuple[int, str]]:
    found = read(format_, [str(path)], ["en", "de"], columns=columns)
    return [(one.line, one.reason) for one in found if isinstance(one, BadRow)]


def write_csv(path: Path, rows: list[tuple[str, ...]], encoding: str = "utf-8", **dialect: str) -> Path:
    out = io.StringIO()
    csv.writer(out, **dialect).writerows(rows)
    path.write_bytes(out.getvalue().encode(encoding))
    return path


@pytest.mark.parametrize("delimiter", list(",;\t|"))
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_csv_of_any_delimiter_encoding_and_line_end(
    tmp_path: Path, delimiter: str, encoding: str, line_end: str
) -> None:
    rows = [("en", "id", "de"), *((first, "7", second) for first, second in ROWS)]
    path = write_csv(tmp_path / "x.csv", rows, encoding, delimiter=delimiter, lineterminator=line_end)
    assert texts("csv", path) == FLAT
    assert texts("csv", path, ("de", "en")) == [row[::-1] for row in FLAT]


def test_csv_without_a_header(tmp_path: Path) -> None:
    assert texts("csv", write_csv(tmp_path / "x.csv", ROWS), ("1", "2")) == FLAT
    assert texts("csv", tmp_path / "x.csv") == FLAT
    write_csv(tmp_path / "x.csv", [("1", *row) for row in ROWS])
    assert texts("csv", tmp_path / "x.csv") == FLAT


def test_csv_of_excel_that_names_its_delimiter(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("sep=|\nen|de\na, b; c|A, B; C\nd, e; f|D, E; F\n")
    assert texts("csv", tmp_path / "x.csv") == [("a, b; c", "A, B; C"), ("d, e; f", "D, E; F")]
    assert bad_rows("csv", tmp_path / "x.csv") == []


def test_bad_rows_of_a_csv_file_are_counted_and_take_no_other_with_them(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(
        b'en,de\na,A\nb\nc,C,x\n"d,D\ne,E\nf,"F\n"g,\n,\n\nh,nan\ni,I\nj,J "quoted" j\nk,"K" k\nl,\xff\nm,M\n"n\nn",N\n'
    )
    assert texts("csv", tmp_path / "x.csv") == [
        ("a", "A"), ("e", "E"), ("i", "I"), ("j", 'J "quoted" j'), ("m", "M"), ("n n", "N"),
    ]  # fmt: skip
    assert bad_rows("csv", tmp_path / "x.csv") == [
        (3, "too few columns"),
        (4, "too many columns"),
        (5, "a quote is not closed"),
        (7, "a quote is not closed"),
        (8, "a quote is not closed"),
        (11, "one side is empty"),
        (14, "a quote stands inside a field"),
        (15, "bytes are not UTF-8"),
    ]


@pytest.mark.parametrize("closing", ["a300,b299", 'a300 said",b299'])
def test_an_open_quote_takes_no_more_than_its_line(tmp_path: Path, closing: str) -> None:
    lines = ["en,de", *(f"a{n},b{n}" for n in range(500))]
    lines[100], lines[300] = '"open,b99', closing
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    assert len(texts("csv", tmp_path / "x.csv")) == 499
    assert bad_rows("csv", tmp_path / "x.csv") == [(101, "a quote is not closed")]


FIRST = "en\tde\n" + "a\tA\n" * 600
# Content of a table between tabs or in CSV, its pairs below `a` and `A`, and what is noted or bad.
QUOTES: dict[str, tuple[str, str, list[tuple[str, str]], dict[str, int]]] = {
    "as pandas writes them, behind 600 rows": (
        "tsv", FIRST + '"He said ""x"" now."\tB\nc\t"C\nC"\n"d\td"\tD\n',
        [('He said "x" now.', "B"), ("c", "C C"), ("d d", "D")], {UNQUOTED: 3},
    ),
    "text in quotes": (
        "tsv", FIRST + '"Hello."\t"Hallo."\n"So," he said.\tB\nd "x"\tD\n',
        [('"Hello."', '"Hallo."'), ('"So," he said.', "B"), ('d "x"', "D")], {AS_TEXT: 2},
    ),
    "stray ones": (
        "tsv", FIRST + '"open\tB\nc\tC\nd"\tD\n"e\tE\nf"\tF\n',
        [('"open', "B"), ("c", "C"), ('d"', "D"), ('"e', "E"), ('f"', "F")], {AS_TEXT: 2},
    ),
    "around each field": ("tsv", '"en"\t"de"\n"a"\t"A"\n"He said ""x""."\t"B"\n', [('He said "x".', "B")], {}),
    "behind backslashes": (
        "csv", 'en,de\na,A\n"Say \\"x, y\\" now",B\n"12\\"",C\n"C:\\",D\n"say \\"x","E \\"e"\n',
        [('Say "x, y" now', "B"), ('12"', "C"), ("C:\\", "D"), ('say "x', 'E "e')], {BACKSLASH: 3},
    ),
    "a stray quote before backslashes": (
        "csv", 'en,de\na,A\n"b,B\n' + 'c \\"x\\" d,C\n' * 3, [('c \\"x\\" d', "C")] * 3, {"a quote is not closed": 1},
    ),
    "behind backslashes, between tabs": (
        "tsv", FIRST + '"Say \\"x\\" now"\tB\n', [('Say "x" now', "B")], {BACKSLASH: 1},
    ),
    "behind backslashes, beyond reading": (
        "csv", 'en,de\na,A\n"b" \\"b,B\nc,C\n', [("c", "C")], {"a quote stands inside a field": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUOTES)
def test_quotes_of_a_table(tmp_path: Path, name: str) -> None:
    format_, content, pairs, noted = QUOTES[name]
    (tmp_path / "x").write_text(content)
    counted: Counter[str] = Counter()
    records = list(read(format_, [str(tmp_path / "x")], ["en", "de"], counted))
    assert [one.texts for one in records if isinstance(one, Pair) and one.texts != ("a", "A")] == pairs
    bad = Counter(one.reason for one in records if isinstance(one, BadRow))
    assert {what.removeprefix("noted: "): count for what, count in (counted + bad).items()} == noted


PARAGRAPHS = [f"Paragraph {n}, of A." for n in range(100)]
ONE_COMMA, NONE = "\n".join(PARAGRAPHS), "\n".join(f"{one} And, so, on." for one in PARAGRAPHS)
B = ("Short, B.",)
# Bytes of a CSV file of documents, the paragraphs of each, and its bad rows: lines and reasons.
ARTICLES: dict[str, tuple[str | bytes, list[tuple[str, ...]], dict[int, str]]] = {
    "of 200 lines": (
        'title,text\nA,"' + "\n\n".join(PARAGRAPHS) + '"\nB,"Short, B."\n', [tuple(PARAGRAPHS), B], {},
    ),
    "each line of which looks like a record": (
        f'title,text\nA,"{ONE_COMMA}"\nB,"Short, B."\n', [tuple(PARAGRAPHS), B], {},
    ),
    "in a single column": (f'text\n"{ONE_COMMA}"\n"Short, B."\n', [tuple(PARAGRAPHS), B], {}),
    "of 300 lines, without a header": (
        f'1,"{ONE_COMMA}\n{ONE_COMMA}\n{ONE_COMMA}"\n2,"Short, B."\n', [tuple(PARAGRAPHS * 3), B], {},
    ),
    "of 140,000 characters": (f"title,text\nA,{'w' * 140_000}\nB,B.\n", [("w" * 140_000,), ("B.",)], {}),
    "with a line that cannot be read": (
        b'title,text\nA,"One.\n\n\xff' + f'\n{NONE}"\nB,"Short, B."\n'.encode(), [B],
        {2: "bytes are not UTF-8"},
    ),
    "that breaks off": (
        f'title,text\nB,"Short, B."\nA,"{NONE}\n', [B],
        {3: "a quote is not closed", **dict.fromkeys(range(4, 103), "line behind a quote that is not closed")},
    ),
    "in a single column, that breaks off": (
        f'text\n"Short, B."\n"{ONE_COMMA}\n', [B],
        {3: "a quote is not closed", **dict.fromkeys(range(4, 103), "line behind a quote that is not closed")},
    ),
    "of over 16 MB": (
        f'text\n"{chr(10).join(["w" * 100_000] * 200)}\nThe end."\n"Short, B."\n', [B],
        {
            2: "a quote is not closed within 16 MB",
            **dict.fromkeys(range(3, 203), "line behind a quote that is not closed"),
        },
    ),
    "with a quote that is not doubled": (
        f'title,text\nA,"{NONE}\nHe said "x" here."\nB,"Short, B."\n', [B],
        {
            2: "a quote stands inside a field",
            **dict.fromkeys(range(3, 102), "line behind a quote that is not closed"),
            102: "too few columns",
        },
    ),
    "with a stray quote, in a table": (
        'id,text\n1,"One.\n2,Two.\n3,Three.\n', [("Two.",), ("Three.",)], {2: "a quote is not closed"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ARTICLES)
def test_article_of_csv(tmp_path: Path, name: str) -> None:
    content, documents, bad = ARTICLES[name]
    path = tmp_path / "x.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    columns = ("2",) if "without a header" in name else None
    records = list(read("csv", [str(path)], ["en"], columns=columns))
    assert [one.paragraphs for one in records if isinstance(one, Document)] == documents
    assert {one.line: one.reason for one in records if isinstance(one, BadRow)} == bad


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_a_csv_file_hold_every_pair_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    pieces = ["a", "b\nc", '"', '""', ",", ";", "\r\n", "é", "x" * 50]
    rows = [("".join(draw.choices(pieces, k=6)) + "w", "".join(draw.choices(pieces, k=6)) + "w") for _ in range(400)]
    path = write_csv(tmp_path / "x.csv", [("en", "de"), *rows])
    with path.open("a") as file:
        file.write('bad,"\n1,2,3\nlast,one\n')
    expected = [tuple(" ".join(text.split()) for text in row) for row in [*rows, ("last", "one")]]
    assert texts("csv", path) == expected
    monkeypatch.setattr("xalign_ray.sources.tables.PART_BYTES", 2000)
    cut = parts("csv", [str(path)], "pairs")
    assert len(cut) > 5
    found = [record for part in cut for record in read_part(part, ["en", "de"])]
    assert [one.texts for one in found if isinstance(one, Pair)] == expected
    assert found == list(read("csv", [str(path)], ["en", "de"]))


WHERE_ROWS = [{"en": f"a{n}", "de": f"A{n}", "score": n / 4, "ok": n > 1, "kind": "xY"[n % 2]} for n in range(4)]


@pytest.mark.parametrize("format_", ["csv", "tsv", "xlsx", "jsonl", "json", "parquet", "arrow"])
@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("score>=0.5", [2, 3]), ("score < 0.5", [0, 1]), ("score=0.250", [1]), ("score!=0.25", [0, 2, 3]),
        ("ok=true", [2, 3]), ("ok=1", [2, 3]), ("kind=y", [1, 3]), ("kind>1", []),
    ],
)  # fmt: skip
def test_condition_on_a_column(tmp_path: Path, format_: str, where: str, rows: list[int]) -> None:
    frame, path = pd.DataFrame(WHERE_ROWS), tmp_path / "x"
    write = {
        "csv": lambda: frame.to_csv(path, index=False), "tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        "xlsx": lambda: frame.to_excel(path.with_suffix(".xlsx"), index=False),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "json": lambda: frame.to_json(path, orient="records"), "parquet": lambda: frame.to_parquet(path),
        "arrow": lambda: frame.to_feather(path, compression="uncompressed"),
    }  # fmt: skip
    write[format_]()
    path = path.with_suffix(".xlsx") if format_ == "xlsx" else path
    counted: Counter[str] = Counter()
    tree = {"format": format_, "languages": ["en", "de"], "paths": [str(path)], "columns": ["en", "de"], "where": where}
    corpus = ParallelCorpus.model_validate(tree)
    (part,) = parts(format_, [str(path)], "pairs")
    found = read_part(replace(part, columns=corpus.read_columns), ["en", "de"], counted)
    assert [one.texts for one in found if isinstance(one, Pair)] == [(f"a{n}", f"A{n}") for n in rows]
    assert counted == ({f"not {where}": 4 - len(rows)} if len(rows) < 4 else {})


def test_json_of_every_kind(tmp_path: Path) -> None:
    objects = [{"translation": {"en": first, "de": second}, "id": 1} for first, second in ROWS]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(one) + "\n" for one in objects))
    (tmp_path / "x.json").write_text("\ufeff" + json.dumps(objects, indent=2))
    for format_, name in (("jsonl", "x.jsonl"), ("json", "x.json")):
        assert texts(format_, tmp_path / name) == FLAT
        assert texts(format_, tmp_path / name, ("translation.de", "translation.en")) == [row[::-1] for row in FLAT]
        with pytest.raises(
            DataError,
            match=r"has no column of text 'id'; it has translation\.en, translation\.de; of other kinds id",
        ):
            texts(format_, tmp_path / name, ("translation.en", "id"))


def test_a_json_array_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xalign_ray.sources.open.CHUNK_BYTES", 7)
    rows = [{"en": f"a{n} \u00e9 ]", "de": f"[{{b{n}"} for n in range(50)]
    (tmp_path / "x.json").write_text(json.dumps(rows, ensure_ascii=False))
    assert texts("json", tmp_path / "x.json") == [(row["en"], row["de"]) for row in rows]


def test_a_json_array_that_breaks_off_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('[{"en": "a", "de": "b"}, {"en": "c", ')
    with pytest.raises(DataError, match=r"x\.json cannot be read from byte 37 of 37 on: it is not JSON\."):
        texts("json", tmp_path / "x.json")


def write_parquet(path: Path, columns: dict[str, list], group: int = 2) -> Path:
    parquet.write_table(pyarrow.table(columns), path, row_group_size=group)
    return path


def test_parquet_columns_structs_and_row_groups(tmp_path: Path) -> None:
    english, german = map(list, zip(*ROWS, strict=True))
    flat = write_parquet(tmp_path / "x.parquet", {"id": [1, 2, 3, 4], "de": german, "en": english})
    struct = [{"en": first, "de": second} for first, second in ROWS]
    nested = write_parquet(tmp_path / "y.parquet", {"translation": struct})
    named = write_parquet(tmp_path / "z.parquet", {"anchor": english, "positive": german}, 1)
    assert texts("parquet", flat) == FLAT == texts("parquet", nested)
    assert texts("parquet", named, ("anchor", "positive")) == FLAT
    assert texts("parquet", named) == FLAT, "the first of a pair's names is the first language"
    with pytest.raises(DataError, match=r"has no column of text 'id'; it has de, en; of other kinds id \(number\)\."):
        texts("parquet", flat, ("id", "en"))


def test_numbers_of_rows_in_a_column_id_are_not_indonesian(tmp_path: Path) -> None:
    rows = [{"id": str(number), "translation": {"en": a, "id": b}} for number, (a, b) in enumerate(FLAT)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "x.parquet")
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for format_, name in (("parquet", "x.parquet"), ("jsonl", "x.jsonl")):
        records = read(format_, [str(tmp_path / name)], ["en", "id"])
        assert [one.texts for one in records if isinstance(one, Pair)] == FLAT


@pytest.mark.parametrize(("format_", "delimiter"), [("tsv", "\t"), ("csv", ",")])
def test_codes_that_each_row_says_are_no_header(tmp_path: Path, format_: str, delimiter: str) -> None:
    (tmp_path / "x").write_text("".join(delimiter.join(("en", a, "de", b)) + "\n" for a, b in (("a", "A"), ("b", "B"))))
    assert texts(format_, tmp_path / "x") == [("a", "A"), ("b", "B")]


@pytest.mark.parametrize(
    "rows",
    [
        [("id", "foo", "bar"), ("1", "a long sentence", "ein langer Satz")],  # a header that names no languages
        [("1", "a cat", "eine Katze", "un chat"), ("2", "a dog", "ein Hund", "un chien")],
        [("a cat", "7", "1"), ("a dog", "8", "2")],
    ],
)
def test_columns_of_a_table_that_are_not_clear_are_asked_for(tmp_path: Path, rows: list[tuple[str, ...]]) -> None:
    with pytest.raises(DataError, match=r"has no column 'en'; its first row has .*\. Name two: columns: "):
        texts("csv", write_csv(tmp_path / "x.csv", rows))


def test_empty_and_missing_cells_of_parquet(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"en": ["a", None, "", "d"], "de": ["A", "B", None, "D"]})
    assert texts("parquet", path) == [("a", "A"), ("d", "D")]
    assert bad_rows("parquet", path) == [(2, "one side is empty"), (3, "both sides are empty")]
    struct = [{"en": "a", "de": "A"}, None, {"en": "b", "de": None}]
    nested = write_parquet(tmp_path / "y.parquet", {"translation": struct})
    assert bad_rows("parquet", nested) == [(2, "both sides are empty"), (3, "one side is empty")]


def test_row_groups_are_dealt_to_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"a{n}", f"b{n}") for n in range(100)]
    english, german = map(list, zip(*rows, strict=True))
    path = write_parquet(tmp_path / "x.parquet", {"en": english, "de": german}, 10)
    monkeypatch.setattr("xalign_ray.sources.columnar.PART_BYTES", 600)
    cut = parts("parquet", [str(path)], "pairs")
    assert len(cut) > 2
    found = [record for part in cut for record in read_part(part, ["en", "de"])]
    assert [one.texts for one in found if isinstance(one, Pair)] == rows
    assert [one.line for one in found if isinstance(one, Pair)] == list(range(1, 101))
    assert sum(splitting.count_bytes(cut)) == pytest.approx(path.stat().st_size)


@pytest.mark.parametrize("stream", [True, False])
def test_both_kinds_of_arrow_files(tmp_path: Path, stream: bool) -> None:
    english, german = map(list, zip(*ROWS, strict=True))
    table = pyarrow.table({"en": english, "de": german})
    new = ipc.new_stream if stream else ipc.new_file
    with new(str(tmp_path / "x.arrow"), table.schema) as out:
        out.write_table(table, max_chunksize=3)
    assert texts("arrow", tmp_path / "x.arrow") == FLAT
    with pytest.raises(DataError, match=r"has no column of text 'fr'; it has en, de\."):
        texts("arrow", tmp_path / "x.arrow", ("en", "fr"))


def test_a_saved_dataset(tmp_path: Path) -> None:
    data = datasets.Dataset.from_list([{"translation": {"en": first, "de": second}} for first, second in ROWS])
    data.save_to_disk(str(tmp_path / "saved"))
    (file,) = (tmp_path / "saved").glob("*.arrow")
    assert texts("arrow", file) == FLAT


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no table at all, but some bytes")
    for format_, word in (("parquet", "Parquet"), ("arrow", "Arrow")):
        with pytest.raises(DataError, match=f"is no {word} file, or is cut short"):
            texts(format_, tmp_path / "x")
    english = [f"a{n} {random.random()}" for n in range(5000)]
    with ipc.new_stream(str(tmp_path / "y"), pyarrow.table({"en": english, "de": english}).schema) as out:
        out.write_table(pyarrow.table({"en": english, "de": english}), max_chunksize=500)
    whole = (tmp_path / "y").read_bytes()
    (tmp_path / "y").write_bytes(whole[: len(whole) // 2])
    (part,) = parts("arrow", [str(tmp_path / "y")], "pairs")
    before, broken = read_until_broken(read_part(part, ["en", "de"]))
    assert len(before) > 1000
    assert broken == (str(tmp_path / "y"), 0, len(whole) // 2, "damaged archive")
