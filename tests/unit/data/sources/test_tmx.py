"""TMX: languages however they are written, codes of programs left out, and files that break off."""

from __future__ import annotations

import gzip
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from xalign_ray.data.sources import open as opening
from xalign_ray.data.sources.broken import BrokenFileError, held_back
from xalign_ray.data.sources.formats import read
from xalign_ray.data.sources.records import BadRow, Pair
from xalign_ray.errors import DataError

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


def test_missing_and_empty_sides_are_set_aside_and_other_languages_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", unit(en="alone"), unit(en="a", fr="b"), unit(en="a", de=" "), unit(en="a", de="b"))
    skipped: Counter[str] = Counter()
    assert list(read("tmx", [path], ["en", "de"], skipped)) == [
        BadRow(path, 1, "unit has one language only"),
        BadRow(path, 3, "one side is empty"),
        Pair(("en", "de"), ("a", "b"), path, 4),
    ]
    assert skipped == {"unit in other languages": 1}


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
    broken: list[BrokenFileError] = []
    assert list(held_back(read("tmx", [path], ["en", "de"]), broken)) == [Pair(("en", "de"), ("a", "b"), path, 1)]
    assert [(one.what.source, one.what.reason, one.what.after) for one in broken] == [(path, reason, "unit 1")]


def test_wrong_bytes_end_the_file_there(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    text = HEAD + unit(en="a", de="b") + unit(en="caf\u00e9", de="b")
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BrokenFileError) as caught:
        list(read("tmx", [str(path)], ["en", "de"]))
    assert (caught.value.what.offset, caught.value.what.reason) == (text.index("\u00e9"), "XML is not well-formed")


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
