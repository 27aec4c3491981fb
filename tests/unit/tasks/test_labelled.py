"""Tables of labelled texts: their columns, CSV's quotes, and rows that are refused by file and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from xalign_ray.errors import DataError
from xalign_ray.tasks.text_classification import ClassificationTask, LabelledText

TABLE: dict[str, Any] = {"classes": ("no", "yes"), "spellings": {"ja": "yes"}, "texts": ("one|uno", "two"), "key": "id"}


def read(path: Path, content: str, **facts: Any) -> list[LabelledText]:
    path.write_bytes(content.encode("utf-8"))
    return ClassificationTask(**TABLE | facts).read(path, "de")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table.tsv"


def test_columns_go_by_the_names_in_the_header_in_any_order(table: Path):
    rows = read(table, "label\textra\ttwo\tid\tone\nyes\tx\tb\tr7\ta\nno\tx\td\tr9\tc\n")
    assert rows == [
        LabelledText("r7", ("a", "b"), ("de", "de"), "yes"),
        LabelledText("r9", ("c", "d"), ("de", "de"), "no"),
    ]


def test_a_file_that_may_lack_its_header_is_read_by_place_with_row_numbers_for_keys(table: Path):
    for header in ("", "one\ttwo\tlabel\r\n"):
        rows = read(table, f"\ufeff{header}a\tb\tyes\r\nc\td\tno\r\n\r\n")
        assert [(row.key, row.texts, row.label) for row in rows] == [("0", ("a", "b"), "yes"), ("1", ("c", "d"), "no")]


def test_other_spellings_of_a_label_are_its_class(table: Path):
    assert [row.label for row in read(table, "a\tb\tja\nc\td\tno\n")] == ["yes", "no"]


def test_classes_may_be_numbers(table: Path):
    assert [row.label for row in read(table, "a\tb\t1\nc\td\t0\n", classes=(0, 1))] == ["1", "0"]


def test_rows_of_other_languages_are_left_out(table: Path):
    rows = read(
        table, "code\tlabel\ttext\nen\tyes\ta\nde\tno\tb\nen\tyes\tc\nde\tyes\td\n", texts=("text",), language="code"
    )
    assert [(row.key, row.texts) for row in rows] == [("0", ("b",)), ("1", ("d",))]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ('"Die ""IPA"" besteht"', 'Die "IPA" besteht'),
        ('"""Ja"" sagt er"', '"Ja" sagt er'),
        ('"Album "", weil"', 'Album ", weil'),
        ('"Ja"', '"Ja"'),
        ('"Ja" und "nein"', '"Ja" und "nein"'),
        ('er sagt ""', 'er sagt ""'),
        ('"', '"'),
    ],
)
def test_quotes_of_csv_are_undone_and_quotes_of_the_text_stay(table: Path, cell: str, text: str):
    assert read(table, f"{cell}\tb\tyes\nc\td\tno\n")[0].texts == (text, "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\tyes\nc\td\n", ", line 2: 2 columns; 3 were expected, one, two, label."),
        ("a\tb\tyes\n\nc\td\tno\n", ", line 2: 1 columns; 3 were expected"),
        ("a\tb\tmaybe\n", ", line 1: the label 'maybe' is none of no, yes."),
        ("id\tone\ttwo\tlabel\nr1\ta\tb\tno\textra\n", ", line 2: 5 columns; 4 were expected, id, one, two, label."),
        ("id\tone\ttwo\tlabel\nr1\t\t\tno\n", ", line 2: there is no text."),
        ("id\tone\ttwo\tlabel\nr1\ta\tb\tno\nr1\tc\td\tyes\n", ": two rows have the id r1."),
        ("id\tone\ttwo\tlabel\n", " holds no example."),
        ("", " holds no example."),
        (
            "one\ttwo\n",
            ", line 1: no header, and no row of one or uno, two, label: there is no column label, only one",
        ),
        (
            "a\tb\n",
            "there is no column one or uno, only a, b. XTREME's own test files lack the label: take those of the",
        ),
    ],
)
def test_what_is_malformed_is_named(table: Path, content: str, message: str):
    with pytest.raises(DataError, match=f"^{re.escape(str(table))}.*{re.escape(message)}"):
        read(table, content)


def test_one_side_of_a_pair_may_be_empty(table: Path):
    assert read(table, "a\t\tyes\n")[0].texts == ("a", "")


def test_a_class_that_no_row_has_is_warned_about(table: Path, caplog: pytest.LogCaptureFixture):
    read(table, "a\tb\tyes\n")
    assert caplog.messages == [f"{table}: no row has the label no; other files may"]
