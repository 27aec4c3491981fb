"""PO, XLIFF and Excel: every entry is a pair or counted by its reason; hostile files are answered in a sentence."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import openpyxl
import pytest

from tests.unit.sources.pair_texts import both, po_text, table, tarred, workbook, xliff_text, zipped
from xalign_ray.errors import DataError, XalignError
from xalign_ray.sources.formats import read
from xalign_ray.sources.pair_forms import look_at_pairs, read_pairs
from xalign_ray.sources.records import BadRow, Pair

PO = r"""msgid ""
msgstr ""
"Language: pl\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);\n"

msgctxt "menu"
msgid ""
"Two "
"lines\n"
msgstr "Dwie linie"

#, fuzzy
msgid "Old"
msgstr "Stare"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d plik"
msgstr[1] "%d pliki"
msgstr[2] "%d plików"

msgid "A line\u2028separator"
msgstr "Separator"

msgid "Empty"
msgstr ""

#~ msgid "Gone"
#~ msgstr "Nie ma"
""".replace(r"\u2028", "\u2028")


def texts(format_: str, path: Path, languages: str, **options: object) -> tuple[list[tuple[str, str]], Counter[str]]:
    """The pairs of a file, and what else was counted."""
    counted: Counter[str] = Counter()
    records = list(read(format_, [str(path)], languages.split(","), counted, **options))
    counted.update(record.reason for record in records if isinstance(record, BadRow))
    return [record.texts for record in records if isinstance(record, Pair)], counted


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-2"])
def test_po_entries_are_pairs_or_counted(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "x.po"
    text = (
        PO.replace("UTF-8", encoding) if encoding == "utf-8" else PO.replace("UTF-8", encoding).replace("\u2028", " ")
    )
    path.write_bytes(text.encode(encoding))
    pairs, counted = texts("po", path, "en,pl")
    assert pairs == [("Two lines", "Dwie linie"), ("A line separator", "Separator")]
    assert counted == {"fuzzy translation": 1, "not translated": 1, "obsolete entry": 1, "entry with plural forms": 1}
    assert texts("po", path, "pl,en")[0] == [(pl, en) for en, pl in pairs]


@pytest.mark.parametrize("header", ["CP1251", "koi8-r", "x-nothing", "UTF-8"])
def test_po_in_utf8_is_read_as_that_whatever_its_header_kept(tmp_path: Path, header: str) -> None:
    path = tmp_path / "be.po"
    kept = f"text/plain; charset={header}"
    path.write_text(po_text([("Open", "Адкрыць")], Language="be", Content_Type=kept), encoding="utf-8")
    assert texts("po", path, "en,be")[0] == [("Open", "Адкрыць")]


@pytest.mark.parametrize(
    ("header", "written", "text"),
    [
        ("GB2312", "gb18030", "\u9555"),
        ("EUC-KR", "cp949", "\ub620"),
        ("Shift_JIS", "cp932", "\u2460"),
        ("ISO-8859-1", "cp1252", "\u201cIt\u2019s\u201d 5 \u20ac"),
        ("ISO-8859-1", "latin-1", "1\x81"),  # a byte to which no code page gives a character
    ],
)
def test_po_may_hold_what_the_windows_encoding_of_its_header_has_more(
    tmp_path: Path, header: str, written: str, text: str
) -> None:
    path = tmp_path / "zh.po"
    kept = f"text/plain; charset={header}"
    path.write_bytes(po_text([("Open", text)], Language="zh", Content_Type=kept).encode(written))
    assert texts("po", path, "en,zh")[0] == [("Open", text)]


PLAIN = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n\n#msgid "old"\n#= sticky\nmsgid "a"\nmsgstr "\u00e4"\n'


@pytest.mark.parametrize(
    ("format_", "raw"),
    [
        ("po", PLAIN.encode()),
        ("po", PLAIN.encode("utf-16")),
        ("po", PLAIN.replace("\n", "\r").encode()),
        ("po", PLAIN.replace("\n", "\r\n").encode("utf-8-sig")),
        ("json", '[{"en": "a", "de": "\u00e4"}]'.encode("utf-16")),
    ],
    ids=["comments", "UTF-16", "CR", "CRLF and mark", "JSON array in UTF-16"],
)
def test_files_as_programs_write_them(tmp_path: Path, format_: str, raw: bytes) -> None:
    (tmp_path / "de").write_bytes(raw)
    assert texts(format_, tmp_path / "de", "en,de")[0] == [("a", "\u00e4")]


def test_two_scripts_of_one_language_are_two_sources(tmp_path: Path) -> None:
    for name in ("sr", "sr@latin", "zh_CN", "zh_TW", "pt_BR"):
        (tmp_path / f"{name}.po").write_text(po_text([("Open", f"open {name}")], Language=name), encoding="utf-8")
    found = {corpus.languages[1]: corpus for corpus in look_at_pairs([str(tmp_path)])}
    read_by = {code: [pair for pair, _ in map(reversed, read_pairs(one))] for code, one in found.items()}
    assert read_by == {
        "sr": ["open sr"], "sr-Latn": ["open sr@latin"], "zh": ["open zh_CN"], "zh-Hant": ["open zh_TW"],
        "pt": ["open pt_BR"],
    }  # fmt: skip


def test_a_line_break_parts_words(tmp_path: Path) -> None:
    for mark in ('<x id="LINE_BREAK" ctype="lb" equiv-text="&lt;br/&gt;"/>', '<ph id="1" type="lb">&lt;br/&gt;</ph>'):
        (tmp_path / "x.xlf").write_text(xliff_text([both(f"First line{mark}second", f"Erste Zeile{mark}zweite")]))
        assert texts("xliff", tmp_path / "x.xlf", "en,de")[0] == [("First line second", "Erste Zeile zweite")]


def test_xliff_units_are_pairs_or_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.xlf"
    units = [
        both("The <g id='1'>big</g> <ph id='2'>{0}</ph>house\n here", "Das große Haus"),
        "<source>no target</source>",
        "<source>new</source><target state='new'>new</target>",
        "<source>review</source><target state='needs-review-translation'>x</target>",
        "<source>other</source><target>anderes</target><alt-trans><target>fremd</target></alt-trans>",
    ]
    text = xliff_text(units).replace("</xliff>", "")
    other = "<file source-language='en' target-language='fr'><body><trans-unit id='1'>"
    keep = "<trans-unit id='9' translate='no'>" + both("OK", "OK") + "</trans-unit>"
    text = (
        text.replace("</body>", f"{keep}</body>") + other + both("cat", "chat") + "</trans-unit></body></file></xliff>"
    )
    path.write_text(text, encoding="utf-8")
    pairs, counted = texts("xliff", path, "en,de")
    assert pairs == [("The big house here", "Das große Haus"), ("other", "anderes")]
    assert counted == {
        "not translated": 1,
        "translation is not finished": 2,
        "not to be translated": 1,
        "unit in other languages": 1,
    }
    assert texts("xliff", path, "fr,en")[0] == [("chat", "cat")]


def test_rows_of_a_workbook_are_pairs_or_counted(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    rows = [["en", "n", "de"], ["a cat", 1, "eine\nKatze"], [None, None, None], ["7", 2, 7.0], ["dog", 3, None]]
    for row in (*rows, ["two_x000D_\nlines", 4, "zwei Zeilen"], ["bye", 5, "#NAME?"]):
        book.active.append(row)
    book.create_sheet("notes").append(["left out"])
    book.save(tmp_path / "x.xlsx")
    pairs, counted = texts("xlsx", tmp_path / "x.xlsx", "en,de")
    assert pairs == [("a cat", "eine Katze"), ("7", "7"), ("two lines", "zwei Zeilen")]
    assert counted == {
        "blank line": 1,
        "one side is empty": 2,
        "noted: sheets after the first, which are not read": 1,
    }


def test_columns_by_number_may_stand_beyond_a_title_in_the_first_row(tmp_path: Path) -> None:
    rows = [["Glossary of 2024"], ["1", "cat", "Katze"], ["2", "dog", "Hund"]]
    (tmp_path / "x.xlsx").write_bytes(workbook(rows))
    pairs, counted = texts("xlsx", tmp_path / "x.xlsx", "en,de", columns=("2", "3"))
    assert pairs == [("cat", "Katze"), ("dog", "Hund")]
    assert counted == {"both sides are empty": 1}
    with pytest.raises(DataError, match=r"x.xlsx has no column '4'; its first row has 'Glossary of 2024'"):
        texts("xlsx", tmp_path / "x.xlsx", "en,de", columns=("2", "4"))


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_translation_objects_with_codes_of_another_standard(tmp_path: Path, form: str) -> None:
    rows = [{"translation": {"en": f"line {n}", "amh": "ለ" * n}} for n in range(1, 4)]
    lines = "\n".join(map(json.dumps, rows)) if form == "jsonl" else json.dumps(rows)
    (tmp_path / "x.json").write_text(lines)
    pairs, counted = texts(form, tmp_path / "x.json", "en,am")
    assert pairs == [(f"line {n}", "ለ" * n) for n in range(1, 4)]
    assert not counted


DEEP = "<g>" * 60_000 + "x" + "</g>" * 60_000
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefghi", "bcdefghij", strict=True)
) + "]>"  # fmt: skip
GOOD = xliff_text([both("good", "gut")])

# name of the file, its content, and the answer behind its path.
HOSTILE: dict[str, tuple[str, str | bytes, str]] = {
    "po with a quote that is open": (
        "x.po", PO + 'msgid "a\nmsgstr "b"\n',
        ":31 cannot be read on: its syntax is not that of gettext. Fetch or repair the file.",
    ),
    "po with an escape at its end": (
        "x.po", PO + 'msgid "a\\"\nmsgstr "b"\n',
        ":31 cannot be read on: its syntax is not that of gettext. Fetch or repair the file.",
    ),
    "po in another encoding than it says": (
        "x.po", PO.encode().replace(b"Dwie", b"\xff\xfe"),
        ":11 cannot be read on: bytes are not UTF-8. Fetch or repair the file.",
    ),
    "po in an unknown encoding": (
        "x.po", PO.replace("UTF-8", "x-nothing").replace("\u2028", " ").encode("iso-8859-2"),
        " names the encoding 'x-nothing', which is not known here. Convert it to UTF-8.",
    ),
    "po without translations": (
        "x.po", po_text([("a", ""), ("b", "")], Language="de"),
        " holds no translation that is finished, in 2 units.",
    ),
    "compiled po": (
        "x.mo", b"\xde\x12\x04\x95\0\0\0\0",
        " is no plain text, but binary, XML or JSON.",
    ),
    "xliff cut short": (
        "x.xlf", GOOD[:120],
        ":2 cannot be read on: XML ends too early.",
    ),
    "xliff with entities that grow": (
        "x.xlf", GOOD.replace('<?xml version="1.0"?>', BOMB).replace("good", "&j;"),
        ":2 cannot be read on: XML is not well-formed.",
    ),
    "xliff without targets": (
        "x.xlf", xliff_text(["<source>a</source>"]),
        " holds no translation that is finished, in 1 units.",
    ),
    "xliff without languages": (
        "x.xlf", xliff_text([both("a", "b")], ""),
        " has source (unknown), target (unknown): not every language can be told by name or text. Name two columns "
        "with --columns, or their languages in this order with --languages.",
    ),
    "workbook cut short": (
        "x.xlsx", workbook(table("en,de", ["a"], ["b"]))[:2000],
        " is no zip file, or is cut short (File is not a zip file). Fetch it again.",
    ),
    "workbook without a row": ("x.xlsx", workbook([]), " is an Excel workbook without a row."),
    "workbook without its sheets": (
        "x.xlsx", zipped({"xl/workbook.xml": "<workbook/>"}),
        ' is no Excel workbook, or is damaged ("There is no item named \'[Content_Types].xml\' in the archive"). Fetch',
    ),
    "old workbook": ("x.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", " is no plain text, but binary"),
    "tar cut short": (
        "x.tar.gz", tarred({"a.en": "text " * 90_000, "a.de": "x\n"})[:400],
        " is no tar file, or is cut short (Compressed file ended before the end-of-stream marker was reached). Fetch",
    ),
    "tar of one language": (
        "x.tar.gz", tarred({"a.en": "a\n", "._a.de": "b\n"}),
        " is an archive without two files that end in a language, as those of OPUS have (x.en, x.de).",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_answered_in_a_sentence(tmp_path: Path, name: str) -> None:
    file, content, answer = HOSTILE[name]
    path = tmp_path / file
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(XalignError) as caught:
        look_at_pairs([str(path)])
    assert str(caught.value).startswith(f"{path}{answer}"), str(caught.value)


def test_a_unit_of_xliff_may_be_as_deep_as_it_likes(tmp_path: Path) -> None:
    (tmp_path / "x.xlf").write_text(xliff_text([both(DEEP, "tief")]))
    assert texts("xliff", tmp_path / "x.xlf", "en,de")[0] == [("x", "tief")]


def test_without_openpyxl_a_workbook_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    (tmp_path / "x.xlsx").write_bytes(workbook(table("en,de", ["a"], ["b"])))
    with pytest.raises(XalignError, match=r"openpyxl reads: pip install 'xalign-ray\[excel\]'\. Or save its sheet as"):
        look_at_pairs([str(tmp_path / "x.xlsx")])
