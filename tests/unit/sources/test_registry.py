"""Reading by format name: what is refused before and after reading, and in which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from xalign_ray.config.sources import DictionaryFormat, PairFormat, TextFormat
from xalign_ray.errors import DataError, XalignError
from xalign_ray.sources.formats import FORMATS, find_files, read, record_as_json
from xalign_ray.sources.records import BadRow, Document, Entry, Pair


@pytest.mark.parametrize("format_", FORMATS)
def test_a_missing_path_is_named_at_the_call(tmp_path: Path, format_: str) -> None:
    paths = [str(tmp_path / name) for name in ("no.en", "no.de")]
    languages = ["en"] if FORMATS[format_].holds == ("documents",) else ["en", "de"]
    with pytest.raises(DataError) as caught:
        read(format_, paths, languages)
    assert str(caught.value) == (f"{paths[0]} does not exist. Check the path; relative paths start from {Path.cwd()}.")


@pytest.mark.parametrize(
    ("format_", "path", "languages", "message"),
    [
        ("wikpedia", "", ["en"], f"unknown format 'wikpedia'. Did you mean 'wikipedia'? Known: {', '.join(FORMATS)}."),
        ("text", "", [], "format 'text' takes 1 language, not none."),
        ("text", "", ["en", "de"], "format 'text' takes 1 language, not en, de."),
        ("moses", "", ["en"], "format 'moses' takes 2 languages, not en."),
        ("tsv", "", [], "format 'tsv' takes 1 or 2 languages, not none."),
        ("muse", "", ["en", "eng"], "format 'muse' takes two different languages, not en, eng."),
        (
            "text", "", ["german"],
            "'german' is not a language code such as 'en', 'swa' or 'zh-Hans'. Did you mean 'de' (German)?",
        ),
        ("moses", "a.en", ["en", "de"], "format 'moses' takes 2 or 3 paths, not 1: {0}/a.en."),
        ("text", "", ["en"], "{0}/ is a folder. Name the files in it, for example {0}/*."),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_at_the_call(
    tmp_path: Path, format_: str, path: str, languages: list[str], message: str
) -> None:
    (tmp_path / "a.en").write_text("a\n")
    with pytest.raises(XalignError) as caught:
        read(format_, [f"{tmp_path}/{path}"], languages)
    assert str(caught.value) == message.format(tmp_path)


def test_patterns_name_files_in_sorted_order(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "a[1].txt", "c.md"):
        (tmp_path / name).write_text("x\n")
    assert find_files([f"{tmp_path}/*.txt"]) == [f"{tmp_path}/{name}" for name in ("a.txt", "a[1].txt", "b.txt")]
    assert find_files([f"{tmp_path}/a[1].txt"]) == [f"{tmp_path}/a[1].txt"]
    with pytest.raises(DataError, match=r"\*\.xml does not exist"):
        find_files([f"{tmp_path}/*.xml"])


@pytest.mark.parametrize(
    ("format_", "count", "message"),
    [
        ("text", 1, "{0} holds no documents."),
        ("jsonl", 4, "{0}, {1}, {2} and 1 more hold no pairs."),
        ("moses", 2, "{0}, {1} hold no pairs."),
        ("tsv", 1, "{0} holds no pairs."),
        ("muse", 1, "{0} holds no entries."),
    ],
)
def test_an_empty_source_is_an_error_at_its_end(tmp_path: Path, format_: str, count: int, message: str) -> None:
    paths = [str(tmp_path / f"{i}.txt") for i in range(count)]
    for path in paths:
        Path(path).write_text("")
    languages = ["en"] if FORMATS[format_].holds == ("documents",) else ["en", "de"]
    records = read(format_, paths, languages)
    with pytest.raises(DataError) as caught:
        next(records)
    told = message.format(*paths)
    assert str(caught.value) == f"{told} Check that it is the right file and that the format fits."


def test_one_empty_file_among_others_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.txt").write_text("x\n")
    assert len(list(read("text", [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")], ["en"]))) == 1


def test_reading_is_lazy(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    records = read("text", [str(path)], ["en"])
    assert next(records) == Document("en", ("one",), str(path), 1)


def test_records_are_shown_as_json_objects() -> None:
    records = [
        Document("en", ("a", "b"), "f", 1),
        Pair(("en", "de"), ("a", "b"), "f", 2, "0-0"),
        Entry(("en", "de"), ("a", "b"), "f", 3),
        BadRow("f", 4, "why"),
    ]
    shown = [json.loads(json.dumps(record_as_json(record))) for record in records]
    assert shown == [
        {"kind": "document", "language": "en", "paragraphs": ["a", "b"], "source": "f", "line": 1},
        {
            "kind": "pair",
            "languages": ["en", "de"],
            "texts": ["a", "b"],
            "source": "f",
            "line": 2,
            "alignment": "0-0",
        },
        {"kind": "entry", "languages": ["en", "de"], "words": ["a", "b"], "source": "f", "line": 3},
        {"kind": "bad_row", "source": "f", "line": 4, "reason": "why"},
    ]


@pytest.mark.parametrize(
    ("kind", "schema"), [("documents", TextFormat), ("pairs", PairFormat), ("entries", DictionaryFormat)]
)
def test_the_recipe_knows_every_format_of_a_kind_and_no_other(kind: str, schema: object) -> None:
    assert {*get_args(schema)} - {"hf"} == {name for name, entry in FORMATS.items() if kind in entry.holds}


def test_source_without_a_good_row_is_an_error_with_the_columns_seen(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("ice\tcream\tEis\n")
    with pytest.raises(DataError) as caught:
        list(read("muse", [str(path)], ["en", "de"]))
    assert str(caught.value) == (
        f"{path}: no row can be read as format muse. All 1 were set aside (dictionary line has more than two columns: "
        "1). Its first row is 'ice\\tcream\\tEis'. Check that the format fits."
    )
