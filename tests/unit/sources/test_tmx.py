"""TMX: languages however they are written, codes of programs left out, and files that break off."""

from __future__ import annotations

import codecs
import gzip
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.sources.broken import read_until_broken
from xalign_ray.errors import DataError
from xalign_ray.sources import open as opening
from xalign_ray.sources.formats import read
from xalign_ray.sources.open import BrokenFileError
from xalign_ray.sources.records import BadRow, Pair

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "no-such-file.dtd">\n'
    '<tmx version="1.4"><header/><body>'
)


def unit(**texts: str) -> str:
    variants = (f'<tuv xml:lang="{code.replace("_", "-")}"><seg>{text}</seg></tuv>' for code, text in texts.items())
    return f"<tu>{''.join(variants)}</tu>\n"


def write(path: Path, *units: str, end: str = "</body></tmx>") -> str:
    path.write_text(HEAD + "".join(units) + end, encoding="utf-8")
    return str(path)


def test_units_become_pairs_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", unit(en="A cat.", ca="Un  gat.\n"), unit(ca="Un gos &amp; tu", en="A dog"))
    assert list(read("tmx", [path], ["cat", "en"])) == [
        Pair(("ca", "en"), ("Un gat.", "A cat."), path, 1),
        Pair(("ca", "en"), ("Un gos & tu", "A dog"), path, 2),
    ]


def test_case_and_region_of_a_language_do_not_matter_unless_a_region_is_asked_for(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.tmx",
        unit(EN_US="color", DE_de="Farbe"),
        unit(en_GB="colour", en_US="color", de="Farbe"),
        '<tu><tuv lang="EN_GB"><seg>lift</seg></tuv><tuv lang="de-AT"><seg>Lift</seg></tuv></tu>',
    )
    pairs = [record for record in read("tmx", [path], ["en", "de"]) if isinstance(record, Pair)]
    assert [pair.texts for pair in pairs] == [("color", "Farbe"), ("colour", "Farbe"), ("lift", "Lift")]
    british = [record for record in read("tmx", [path], ["en-GB", "de"]) if isinstance(record, Pair)]
    assert [pair.texts for pair in british] == [("colour", "Farbe"), ("lift", "Lift")]


def test_codes_of_programs_are_left_out_and_highlights_kept(tmp_path: Path) -> None:
    marked = (
        'Press <bpt i="1">&lt;b&gt;<sub>alt</sub></bpt>the <hi>red</hi> key<ept i="1">&lt;/b&gt;</ept> now<ph>{0}</ph>.'
    )
    path = write(tmp_path / "a.tmx", unit(en=marked, ca="Ara."))
    (pair,) = read("tmx", [path], ["en", "ca"])
    assert isinstance(pair, Pair)
    assert pair.texts[0] == "Press the red key now."


def test_empty_side_is_a_bad_row_and_units_without_both_languages_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", unit(en="alone"), unit(en="a", fr="b"), unit(en="a", de=" "), unit(en="a", de="b"))
    skipped: Counter[str] = Counter()
    assert list(read("tmx", [path], ["en", "de"], skipped)) == [
        BadRow(path, 3, "one side is empty"),
        Pair(("en", "de"), ("a", "b"), path, 4),
    ]
    assert skipped == {"unit in other languages": 1, "unit in one language only": 1}


def test_a_file_without_the_two_languages_is_refused_with_those_it_has(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", unit(en="a", ca="b"))
    with pytest.raises(DataError) as caught:
        list(read("tmx", [path], ["en", "de"]))
    assert str(caught.value) == f"{path} has no unit with both en and de; its languages are ca, en."


def test_utf16_and_packed_files_read_the_same(tmp_path: Path) -> None:
    text = HEAD.replace("UTF-8", "UTF-16") + unit(en="caf\u00e9", ca="caf\u00e8") + "</body></tmx>"
    wide, packed = tmp_path / "wide.tmx", tmp_path / "packed.tmx.gz"
    wide.write_bytes(text.encode("utf-16"))
    packed.write_bytes(gzip.compress(text.replace("UTF-16", "UTF-8").encode()))
    for path in (wide, packed):
        assert list(read("tmx", [str(path)], ["en", "ca"])) == [
            Pair(("en", "ca"), ("caf\u00e9", "caf\u00e8"), str(path), 1)
        ]


@pytest.mark.parametrize(
    ("end", "reason"),
    [("<tu><tuv", "XML ends too early"), ("</wrong>", "XML is not well-formed"), ("\x01", "XML is not well-formed")],
)
def test_what_stands_before_a_fault_is_read(tmp_path: Path, end: str, reason: str) -> None:
    path = write(tmp_path / "a.tmx", unit(en="a", de="b"), end=end)
    pairs, broken = read_until_broken(read("tmx", [path], ["en", "de"]))
    assert pairs == [Pair(("en", "de"), ("a", "b"), path, 1)]
    assert (broken.path, broken.reason) == (path, reason)


def test_wrong_bytes_end_the_file_there(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    text = HEAD + unit(en="a", de="b") + unit(en="caf\u00e9", de="b")
    path.write_bytes(text.encode("latin-1"))
    _, broken = read_until_broken(read("tmx", [str(path)], ["en", "de"]))
    assert (broken.offset, broken.reason) == (text[: text.index("\u00e9")].count("\n") + 1, "XML is not well-formed")


def test_a_unit_whose_text_is_nested_thousands_deep_is_read_or_set_aside(tmp_path: Path) -> None:
    deep = "<hi>" * 20_000 + "deep" + "</hi>" * 20_000
    path = write(tmp_path / "a.tmx", unit(en="X", de="b").replace("X", deep), unit(en="a", de="b"))
    assert list(read("tmx", [path], ["en", "de"])) == [
        Pair(("en", "de"), ("deep", "b"), path, 1),
        Pair(("en", "de"), ("a", "b"), path, 2),
    ]


def test_memory_does_not_grow_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "CHUNK_BYTES", 1 << 14)
    peaks = []
    for count in (400, 20_000):
        path = write(tmp_path / f"{count}.tmx", *(unit(en="word " * 20, de="Wort " * 20) for _ in range(count)))
        tracemalloc.start()
        assert sum(1 for _ in read("tmx", [path], ["en", "de"])) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 5  # of a file 50 times as long; what else runs in this process is counted too


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb2312", "\u4f60\u597d\u9555"),  # the last is of gb18030 only, as in many files that are declared gb2312
        ("GBK", "\u4f60\u597d"),
        ("big5", "\u4f60\u597d"),
        ("Shift_JIS", "\u3053\u3093"),
        ("EUC-JP", "\u3053\u3093"),
        ("iso-2022-jp", "\u3053\u3093"),
        ("x-sjis", "\u2460"),  # these and the next few are of the larger encoding, too
        ("euc-kr", "\uc548\ub160"),
        ("ks_c_5601-1987", "\ub620"),
        ("Big5", "\u789a"),
        ("ISO-8859-1", "\u201cIt\u2019s\u201d \u2013 5 \u20ac"),
        ("iso-8859-9", "\u201c\u0131\u201d"),
        ("TIS-620", "\u201c\u0e01\u201d"),
        ("utf8", "\u4f60\u597d"),
        ("windows-1252", "caf\u00e9"),
        ("koi8-r", "\u043a\u043e\u0442"),
    ],
)
def test_encodings_that_the_declaration_names_are_read(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "a.tmx"
    content = HEAD.replace("UTF-8", encoding) + unit(en="Hello", zh=text) * 3 + "</body></tmx>"
    larger = {"gb2312": "gb18030", "x-sjis": "cp932", "euc-kr": "cp949", "ks_c_5601-1987": "cp949", "Big5": "cp950"}
    larger |= {"ISO-8859-1": "cp1252", "iso-8859-9": "cp1254", "TIS-620": "cp874"}
    written = larger.get(encoding, encoding)
    path.write_bytes(content.encode(written))
    pairs = [record.texts for record in read("tmx", [str(path)], ["en", "zh"]) if isinstance(record, Pair)]
    assert pairs == [("Hello", text)] * 3


KEPT = (
    '<?xml version="1.0" encoding="{}"?><tmx><body><tu><tuv xml:lang="en"><seg>a</seg></tuv>'
    '<tuv xml:lang="de"><seg>\u00e4</seg></tuv></tu></body></tmx>'
)


@pytest.mark.parametrize(
    ("declared", "mark", "written"),
    [
        ("iso-8859-1", codecs.BOM_UTF8, "utf-8"),
        ("windows-1252", codecs.BOM_UTF8, "utf-8"),
        ("utf-8", b"", "utf-16"),
        ("iso-8859-1", b"", "utf-16"),
        ("UTF-16", b"", "utf-8"),
    ],
)
def test_a_files_own_bytes_win_over_a_declaration_that_was_kept(
    tmp_path: Path, declared: str, mark: bytes, written: str
) -> None:
    (tmp_path / "a.tmx").write_bytes(mark + KEPT.format(declared).encode(written))
    (pair,) = read("tmx", [str(tmp_path / "a.tmx")], ["en", "de"])
    assert isinstance(pair, Pair)
    assert pair.texts == ("a", "\u00e4")


def test_encoding_that_nobody_knows_is_named(tmp_path: Path) -> None:
    for encoding in ("x-user-defined", "hex"):
        path = tmp_path / "a.tmx"
        path.write_text(HEAD.replace("UTF-8", encoding) + unit(en="a", de="b") + "</body></tmx>")
        with pytest.raises(DataError) as caught:
            list(read("tmx", [str(path)], ["en", "de"]))
        assert str(caught.value) == (
            f"{path} declares the encoding '{encoding}', which is not known here. Convert it to UTF-8 (iconv -f "
            f"{encoding} -t UTF-8) and change the encoding in its first line."
        )


def test_bytes_that_the_declared_encoding_lacks_end_the_file_there(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_bytes((HEAD.replace("UTF-8", "euc-kr") + unit(en="a", de="b")).encode() + b"\xff\xff</body></tmx>")
    with pytest.raises(BrokenFileError, match="its bytes are not cp949"):
        list(read("tmx", [str(path)], ["en", "de"]))
