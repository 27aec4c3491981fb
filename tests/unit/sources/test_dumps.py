"""Big dumps: cut at pages into parts that are read on their own, and together hold every article once."""

from __future__ import annotations

import bz2
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.sources.broken import read_until_broken
from tests.unit.sources.test_wikipedia import SITE, page
from xalign_ray.sources import wikipedia
from xalign_ray.sources.formats import parts, read, read_part
from xalign_ray.sources.open import WHOLE
from xalign_ray.sources.records import BadRow, Document, Part

HEAD = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">\n{SITE}\n'
TAIL = "</mediawiki>\n"


def articles(count: int, first: int = 0) -> list[str]:
    rng = random.Random(first)
    return [page(f"Artikel {n} {rng.randbytes(300).hex()} [[Datei:a.xyz|weg]]") for n in range(first, first + count)]


def multistream(streams: list[list[str]]) -> bytes:
    """As Wikimedia writes it: the head, pages in streams of their own, the closing tag."""
    return b"".join(bz2.compress(text.encode()) for text in (HEAD, *("".join(pages) for pages in streams), TAIL))


def texts(cut: list[Part]) -> list[str]:
    records = [record for part in cut for record in read_part(part, ["de"])]
    assert all(isinstance(record, Document) for record in records), records
    return [record.paragraphs[0] for record in records if isinstance(record, Document)]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "PACKED_PART_BYTES", 20_000)
    monkeypatch.setattr(wikipedia, "PART_BYTES", 50_000)


def whole(path: Path) -> list[str]:
    return texts([Part("wikipedia", (str(path),), (WHOLE,))])


def test_a_multistream_dump_is_cut_where_streams_begin(tmp_path: Path) -> None:
    streams = [articles(20, first=20 * n) for n in range(20)]
    path = tmp_path / "dewiki-latest-pages-articles-multistream.xml.bz2"
    path.write_bytes(multistream(streams))
    cut = parts("wikipedia", [str(path)])
    assert len(cut) > 3
    assert texts(cut) == whole(path)
    assert len(whole(path)) == 400


def test_the_pages_of_a_part_know_its_file_and_byte_and_its_wiki(tmp_path: Path) -> None:
    streams = [articles(20, first=20 * n) for n in range(6)]
    streams[3][5] = page("{{Nur eine Vorlage}}")
    path = tmp_path / "a.xml.bz2"
    path.write_bytes(multistream(streams))
    second = parts("wikipedia", [str(path)])[1]
    offset = second.spans[0].start
    first_record = next(iter(read_part(second, ["de"])))
    assert (first_record.source, first_record.line) == (f"{path}@{offset}", 1)
    assert isinstance(first_record, Document)
    assert "weg" not in first_record.paragraphs[0]  # Datei: is known from the siteinfo at the head of the file
    skipped: Counter[str] = Counter()
    assert not [record for record in read("wikipedia", [str(path)], ["de"], skipped) if isinstance(record, BadRow)]
    assert skipped == {"empty after markup": 1}


def test_a_multistream_dump_that_breaks_off_is_read_to_there(tmp_path: Path) -> None:
    streams = [articles(20, first=20 * n) for n in range(10)]
    path = tmp_path / "a.xml.bz2"
    path.write_bytes(multistream(streams)[:-9_000])
    records, broken = read_until_broken(read("wikipedia", [str(path)], ["de"]))
    assert 140 <= len(records) < 200
    assert (broken.path, broken.reason) == (str(path), "truncated archive")


def test_a_damaged_stream_is_an_error_of_its_part(tmp_path: Path) -> None:
    content = bytearray(multistream([articles(20, first=20 * n) for n in range(10)]))
    path = tmp_path / "a.xml.bz2"
    path.write_bytes(content)
    cut = parts("wikipedia", [str(path)])
    damage = cut[1].spans[0].start + 12_000
    content[damage : damage + 64] = bytes(64)
    path.write_bytes(content)
    assert parts("wikipedia", [str(path)]) == cut
    _, broken = read_until_broken(read_part(cut[1], ["de"]))
    assert broken.reason == "damaged archive"
    assert cut[1].spans[0].start <= broken.offset <= damage
    assert list(read_part(cut[2], ["de"]))


def test_streams_that_begin_elsewhere_than_at_a_page_are_one_part(tmp_path: Path) -> None:
    text = (HEAD + "".join(articles(400)) + TAIL).encode()
    path = tmp_path / "a.xml.bz2"
    path.write_bytes(b"".join(bz2.compress(text[at : at + 9_001]) for at in range(0, len(text), 9_001)))
    assert parts("wikipedia", [str(path)]) == [Part("wikipedia", (str(path),), (WHOLE,))]
    assert len(whole(path)) == 400


@pytest.mark.parametrize("chunk", [97, 1 << 20])
def test_a_plain_dump_is_cut_at_pages_even_if_the_mark_lies_across_two_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(wikipedia, "CHUNK_BYTES", chunk)
    path = tmp_path / "a.xml"
    path.write_text(HEAD + "".join(articles(400)) + TAIL, encoding="utf-8")
    cut = parts("wikipedia", [str(path)])
    assert len(cut) > 4
    assert texts(cut) == whole(path)


def test_a_plain_dump_in_utf16_is_one_part(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(("\ufeff" + HEAD + "".join(articles(200)) + TAIL).encode("utf-16-le"))
    assert len(parts("wikipedia", [str(path)])) == 1
    assert len(whole(path)) == 200
