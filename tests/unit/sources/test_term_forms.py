"""Every form of dictionaries: its entries, what is counted, both directions, and answers to hostile files."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.sources.pair_texts import zipped
from xalign_ray.config.sources import Dictionary
from xalign_ray.errors import XalignError
from xalign_ray.sources.first_rows import find_dictionary_form
from xalign_ray.sources.formats import read
from xalign_ray.sources.records import BadRow, Entry

NOTES = "noted: parts of speech and notes, not read"
BRACKETS = "noted: terms with notes in brackets, taken off"
UNDERSCORES = "noted: terms with underscores between their words, read as blanks"
LISTS = "noted: terms with a comma or semicolon in them, each read as one term"
COMMENT = "comment at the beginning"
TSV = (
    "English\tpos\tGerman\nhard disk\tn\tFestplatte {f}\nmouse\t\tMaus\n(to) go\tv\tgehen [intr.]\n\nalone\tn\n"
    "\tn\tleer\n"
)


def parquet_of(columns: dict[str, list[str]]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def workbook(rows: list[list[Any]]) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


# The format, a file's name and content, its entries in English and German, and what else is counted.
FORMS: dict[str, tuple[str, str, str | bytes, set[tuple[str, str]], dict[str, int]]] = {
    "muse with terms of two words": (
        "muse", "x.txt", "hard disk\tFestplatte\ncat Katze\na b c\ndog Hund\n",
        {("hard disk", "Festplatte"), ("cat", "Katze"), ("dog", "Hund")},
        {"dictionary line has more than two columns": 1},
    ),
    "tsv": (
        "tsv", "x.tsv", TSV,
        {("hard disk", "Festplatte"), ("mouse", "Maus"), ("go", "gehen")},
        {NOTES: 3, BRACKETS: 3, "blank line": 1, "dictionary line has one column": 1, "term is empty": 1},
    ),
    "phrases joined by underscores": (
        "muse", "x.txt", "new_york new_york_stadt\n_ice_cream_ Eis\n__init__ _\n",
        {("new york", "new york stadt"), ("_ice cream_", "Eis"), ("__init__", "_")}, {UNDERSCORES: 3},
    ),
    "HTML of StarDict": (
        "tsv", "x.tsv", "cat\tKatze\nhouse\t<b>Haus</b><br>n.\nR&amp;D\tF und E\n",
        {("cat", "Katze")}, {"term has HTML tags or entities": 2},
    ),
    "tsv without a header": (
        "tsv", "x.tsv", "be\tsein\nhard disk\tFestplatte\n", {("be", "sein"), ("hard disk", "Festplatte")}, {},
    ),
    "muse below comments": (
        "muse", "x.txt", "# CC-CEDICT\n#! version=1\n\n#\ncat Katze\n# Raute\n",
        {("cat", "Katze"), ("#", "Raute")}, {COMMENT: 3, "blank line": 1},
    ),
    "tsv below the comments of dict.cc, which say its direction": (
        "tsv", "x.txt",
        "# DE-EN vocabulary database\tcompiled by dict.cc\n# Date and time\t2024-01-05 23:10\n# License\tTHIS WORK IS "
        "PROTECTED\n\nFestplatte {f}\thard disk\tnoun\t[comp.] \n"
        "#\tnumber sign\tnoun\t\nMaus\tmouse\t\t\nHund\tdog\t\t\n",
        {("hard disk", "Festplatte"), ("number sign", "#"), ("mouse", "Maus"), ("dog", "Hund")},
        {COMMENT: 3, "blank line": 1, NOTES: 3, BRACKETS: 1},
    ),
    "muse below a comment that says its direction": (
        "muse", "x.txt", "# DE-EN vocabulary database\tcompiled by dict.cc\nnew\nFestplatte\tdisk\n",
        {("disk", "Festplatte")}, {COMMENT: 1, "dictionary line has one column": 1},
    ),
    "csv below comments": (
        "csv", "x.csv", "# Licence: CC, BY\n# made, by us\nen;note;de\nhard disk;x;Festplatte\n",
        {("hard disk", "Festplatte")}, {COMMENT: 2, NOTES: 1},
    ),
    "tsv with a header behind #, below a comment": (
        "tsv", "x.tsv", "# made by us\n# German\tEnglish\nFestplatte\thard disk\n",
        {("hard disk", "Festplatte")}, {COMMENT: 1},
    ),
    "tsv of one word a cell with a header": (
        "tsv", "x.tsv", "de\ten\nFestplatte\tdisk\nMaus\tmouse\n",
        {("disk", "Festplatte"), ("mouse", "Maus")}, {},
    ),
    "tsv whose terms begin with #": (
        "tsv", "x.tsv", "#\tnumber sign\n#MeToo\t#MeToo\nhard disk\tFestplatte\n",
        {("#", "number sign"), ("#MeToo", "#MeToo"), ("hard disk", "Festplatte")}, {},
    ),
    "csv": (
        "csv", "x.csv", 'term;translation;note\n"hard; disk";Festplatte;IT\nmouse;Maus;\n',
        {("hard; disk", "Festplatte"), ("mouse", "Maus")}, {NOTES: 1, LISTS: 1},
    ),
    "csv by its lines": (
        "csv", "x.txt", "hard disk|Festplatte\nmouse|Maus\n",
        {("hard disk", "Festplatte"), ("mouse", "Maus")}, {},
    ),
    "csv by its lines, with a third column": (
        "csv", "x.txt", "ice cream;Eis;a noun\nmouse;Maus;a noun\n",
        {("ice cream", "Eis"), ("mouse", "Maus")}, {NOTES: 2},
    ),
    "csv with codes of languages behind its terms": (
        "csv", "x.csv", "hard disk,Festplatte,en,de\nmouse,Maus,en,de\n",
        {("hard disk", "Festplatte"), ("mouse", "Maus")}, {NOTES: 4},
    ),
    "tsv of a lexicon with columns of numbers": (
        "tsv", "x.tsv", "English Word\tanger\tjoy\tGerman Word\nhard disk\t0\t1\tFestplatte\nmouse\t1\t0\tMaus\n",
        {("hard disk", "Festplatte"), ("mouse", "Maus")}, {NOTES: 4},
    ),
    "xlsx": (
        "xlsx", "x.xlsx",
        workbook([["Term", "Translation", "n"], ["hard disk", "Festplatte", 1], ["mouse", None]]),
        {("hard disk", "Festplatte")}, {NOTES: 1, "dictionary line has one column": 1},
    ),
    "jsonl packed, with a list of terms": (
        "jsonl", "x.jsonl.gz",
        gzip.compress(b'{"en": "hard disk", "de": "Festplatte"}\n{"en": "mouse", "de": ["Maus", "Mickey"]}\n[1]\n{\n'),
        {("hard disk", "Festplatte"), ("mouse", "Maus"), ("mouse", "Mickey")},
        {"line is not JSON": 1, "line is no JSON object": 1},
    ),
    "two files in a zip": (
        "tsv", "x.zip", zipped({"d/a.tsv": TSV, "d/b.tsv": TSV, "d/COPYING": "free", "__MACOSX/._a": "\0"}),
        {("hard disk", "Festplatte"), ("mouse", "Maus"), ("go", "gehen")},
        {NOTES: 6, BRACKETS: 6, "blank line": 2, "dictionary line has one column": 2, "term is empty": 2},
    ),
}  # fmt: skip


NO_LANGUAGES = (
    "tsv without a header", "tsv whose terms begin with #", "HTML of StarDict",
)  # fmt: skip


def read_entries(format_: str, path: Path, *languages: str) -> tuple[set[tuple[str, str]], dict[str, int]]:
    counted: Counter[str] = Counter()
    records = list(read(format_, [str(path)], languages, counted, kind="entries"))
    counted.update(record.reason for record in records if isinstance(record, BadRow))
    return {record.words for record in records if isinstance(record, Entry)}, dict(counted)


@pytest.mark.parametrize("name", FORMS)
def test_entries_of_a_form_and_what_is_counted(tmp_path: Path, name: str) -> None:
    format_, file, content, expected, counted = FORMS[name]
    path = tmp_path / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert read_entries(format_, path, "en", "de") == (expected, counted)
    assert find_dictionary_form(str(path)) == format_


@pytest.mark.parametrize("name", [name for name in FORMS if FORMS[name][0] not in ("muse", "csv", "xlsx")])
def test_forms_that_name_their_languages_are_read_in_both_directions(tmp_path: Path, name: str) -> None:
    format_, file, content, expected, _ = FORMS[name]
    path = tmp_path / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    turned = expected if name in NO_LANGUAGES else {(de, en) for en, de in expected}
    assert read_entries(format_, path, "de", "en")[0] == turned


def test_columns_of_terms_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("hard disk\tn\tFestplatte\nmouse\tn\tMaus\n")
    for columns, expected in ((("1", "3"), {"Festplatte", "Maus"}), (("hard disk", "Festplatte"), {"Maus"})):
        records = read("tsv", [str(path)], ["en", "de"], columns=columns, kind="entries")
        assert {record.words[1] for record in records if isinstance(record, Entry)} == expected
    with pytest.raises(
        XalignError, match=r"has no column 'German'; its first row has 'hard disk', 'n', 'Festplatte'\."
    ):
        list(read("tsv", [str(path)], ["en", "de"], columns=("hard disk", "German"), kind="entries"))
    with pytest.raises(ValueError, match="format muse has no columns; leave out columns"):
        Dictionary(format="muse", languages=("en", "de"), paths=("x",), columns=("1", "2"))


def test_letters_in_brackets_within_a_word_are_no_note(tmp_path: Path) -> None:
    lines = ("behavio(u)r\tVerhalten", "(in)valid\t(un)gültig", "employee\tMitarbeiter(in)", "house (building)\tHaus",
             "old China\t(旧)中国")  # fmt: skip
    (tmp_path / "x.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    records = read("tsv", [str(tmp_path / "x.tsv")], ["en", "de"], kind="entries")
    assert [" = ".join(record.words) for record in records if isinstance(record, Entry)] == [
        "behaviour = Verhalten", "invalid = ungültig", "employee = Mitarbeiter", "house = Haus", "old China = 中国",
    ]  # fmt: skip


def test_a_delimiter_that_excel_names_is_no_entry(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("sep=;\nde;en;note\nHaus;house;x\nHund;dog;y\n")
    records = list(read("csv", [str(tmp_path / "x.csv")], ["en", "de"], kind="entries"))
    assert [record.words for record in records if isinstance(record, Entry)] == [("house", "Haus"), ("dog", "Hund")]
    assert not any(isinstance(record, BadRow) for record in records)


def test_header_may_name_the_first_column_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    path.write_bytes(workbook([["word"], ["hard disk", "Festplatte"], ["mouse", "Maus"]]))
    records = list(read("xlsx", [str(path)], ["en", "de"], columns=("1", "2"), kind="entries"))
    assert records[0] == BadRow(str(path), 1, "dictionary line has one column")
    assert [record.words[1] for record in records[1:] if isinstance(record, Entry)] == ["Festplatte", "Maus"]


# The format, the file and the answer behind its path.
HOSTILE: dict[str, tuple[str, str | bytes, str]] = {
    "jsonl of kaikki.org": (
        "jsonl", '{"word": "a", "lang_code": "en", "translations": [{"code": "de", "word": "b"}]}\n',
        " has no column of text 'en'; it has word, lang_code; of other kinds translations (list).",
    ),
    "zip of nothing": ("tsv", zipped({"README.md": "x"}), " holds no entries. Check that it is the right file"),
    "zip cut short": ("tsv", zipped({"a.tsv": TSV})[:100], " is no zip file, or is cut short (File is not a zip"),
    "tsv that is JSON": ("tsv", '{"en": "a", "de": "b"}\n', " is no plain text, but binary, XML or JSON."),
    "tsv whose second column is no term": (
        "tsv", "hard disk\t1\tFestplatte\nmouse\t2\tMaus\n",
        " has no column 'en'; its first row has 'hard disk', '1', 'Festplatte'. Name two: columns: "
        '["1", "3"], or by this row.',
    ),
    "tsv of wikt2dict, whose rows say their languages": (
        "tsv", "en\thard disk\tde\tFestplatte\nen\tmouse\tde\tMaus\nen\tdog\tde\tHund\n",
        " has no column 'en'; its first row has 'en', 'hard disk', 'de', 'Festplatte'.",
    ),
    "csv whose rows say their languages, below a header": (
        "csv", "lang1,word1,lang2,word2\nen,hard disk,de,Festplatte\nen,mouse,de,Maus\n",
        " has no column 'en'; its first row has 'lang1', 'word1', 'lang2', 'word2'.",
    ),
    "muse in Latin-1": (
        "muse", "house Häuser\ndog Hündin\n".encode("latin-1"),
        ": no row can be read as format muse. All 2 were set aside (bytes are not UTF-8: 2). Check that the "
        "format fits.",
    ),
    "csv of a lexicon of moods": (
        "csv", "word,mood\n" + "".join(f"w{chr(97 + n)},GOOD\n" for n in range(25)),
        " has no column 'en'; its first row has 'word', 'mood'.",
    ),
    **{
        f"{format_} with parts of speech between its terms: {name}": (
            format_,
            "".join(f"w{n:x}w{mark}{tags.split()[n % len(tags.split())]}{mark}m{n:x}m\n" for n in range(rows)),
            f" has no column 'en'; its first row has 'w0w', '{tags.split()[0]}', 'm0m'.",
        )
        for format_, mark in (("tsv", "\t"), ("csv", ";"))
        for name, rows, tags in (
            ("eight", 600, "NOUN VERB ADJ ADV PRON PREP CONJ INTJ"),
            ("in full, in a short file", 12, "noun verb adjective adverb preposition pronoun"),
            ("shortened", 30, "n. v. adj. adv. prep."),
            ("in another language", 100, "Nomen Zeitwort Eigenschaftswort Umstandswort Fürwort"),
        )
    },
    **{
        f"{format_} whose first row names one language: {one}, {other}": (
            format_, content,
            f" has no column '{missing}'; its first row has '{one}', '{other}'.",
        )
        for one, other, missing in (("Deutsch", "English", "de"), ("other", "en", "de"), ("Englisch", "German", "en"))
        for format_, content in (
            ("tsv", f"{one}\t{other}\nhouse\tHaus\ndog\tHund\n"),
            ("csv", f"{one},{other}\nhouse,Haus\ndog,Hund\n"),
            ("xlsx", workbook([[one, other], ["house", "Haus"], ["dog", "Hund"]])),
        )
    },
    "muse of one word a line": (
        "muse", "a\nb\n",
        ": no row can be read as format muse. All 2 were set aside (dictionary line has one column: 2).",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_dictionary_is_answered_in_a_sentence(tmp_path: Path, name: str) -> None:
    format_, content, answer = HOSTILE[name]
    path = tmp_path / "x"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(XalignError) as caught:
        list(read(format_, [str(path)], ["en", "de"], kind="entries"))
    assert str(caught.value).startswith(f"{path}{answer}"), str(caught.value)


@pytest.mark.parametrize(
    ("file", "content", "form"),
    [
        ("x.jsonl", '{"en": "house", "de": "Haus"}\n', "jsonl"),
        ("x.json", '[{"en": "house", "de": "Haus"}]', "json"),
        ("x.parquet", parquet_of({"en": ["house"], "de": ["Haus"]}), "parquet"),
    ],
)
def test_other_containers_are_known_by_their_first_bytes(
    tmp_path: Path, file: str, content: str | bytes, form: str
) -> None:
    path = tmp_path / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert find_dictionary_form(str(path)) == form
    assert read_entries(form, path, "en", "de") == ({("house", "Haus")}, {})


def test_xml_is_no_dictionary(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text("<svg/>")
    with pytest.raises(XalignError, match=r"is XML: docs/how-to/data\.md converts TBX, TEI and Apertium's dix\."):
        find_dictionary_form(str(tmp_path / "x.xml"))
