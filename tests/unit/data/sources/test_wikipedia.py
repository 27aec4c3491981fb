"""Wikipedia dumps: which pages are articles, any schema and encoding, and dumps that break off."""

from __future__ import annotations

import bz2
import gzip
import random
import tracemalloc
from collections import Counter
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from xalign_ray.data.sources.records import BadRow, Document
from xalign_ray.data.sources.registry import read

SITE = """<siteinfo><dbname>dewiki</dbname><namespaces>
<namespace key="0" case="first-letter" /><namespace key="1" case="first-letter">Diskussion</namespace>
<namespace key="6" case="first-letter">Datei</namespace><namespace key="14" case="first-letter">Kategorie</namespace>
</namespaces></siteinfo>"""


def page(text: str, title: str = "Titel", ns: str | None = "0", extra: str = "", model: str = "wikitext") -> str:
    space = f"<ns>{ns}</ns>" if ns is not None else ""
    return (
        f"<page><title>{escape(title)}</title>{space}<id>7</id>{extra}<revision><id>9</id><model>{model}</model>"
        f'<text xml:space="preserve">{escape(text)}</text></revision></page>\n'
    )


def dump(*pages: str, version: str = "0.10") -> str:
    return f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/">\n{SITE}\n{"".join(pages)}</mediawiki>\n'


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def test_only_articles_are_read_and_the_rest_is_counted_not_quarantined(tmp_path: Path) -> None:
    path = write(
        tmp_path / "dewiki.xml",
        dump(
            page("Erster '''Satz'''.\n\n[[Kategorie:A]] Zweiter [[Satz|Absatz]]."),
            page("#WEITERLEITUNG [[Ziel]]", extra='<redirect title="Ziel" />'),
            page("Wer sagt das?", title="Diskussion:A", ns="1"),
            page("{}", model="json"),
            page("Letzter Satz."),
            page("{{Nur eine Vorlage}}"),
        ).encode(),
    )
    skipped: Counter[str] = Counter()
    assert list(read("wikipedia", [path], ["deu"], skipped)) == [
        Document("de", ("Erster Satz.", "Zweiter Absatz."), path, 1),
        Document("de", ("Letzter Satz.",), path, 5),
        BadRow(path, 6, "document is empty"),
    ]
    assert skipped == {"redirect": 1, "page of another namespace": 1, "page that is not wikitext": 1}


def test_old_schemas_without_ns_and_redirect_elements_are_understood(tmp_path: Path) -> None:
    pages = [
        page("Text.", ns=None),
        page("#REDIRECT [[Ziel]]", ns=None),
        page(" #weiterleitung:[[Ziel]]", ns=None),
        page("Rede.", title="Diskussion:Text", ns=None),
        page("Ein Film.", title="Alien: Resurrection", ns=None),
        page("# Eins [[a]]\n# Zwei", ns=None),
    ]
    path = write(tmp_path / "old.xml", dump(*pages, version="0.3").encode())
    skipped: Counter[str] = Counter()
    documents = [record for record in read("wikipedia", [path], ["de"], skipped) if isinstance(record, Document)]
    assert [document.paragraphs for document in documents] == [("Text.",), ("Ein Film.",), ("Eins a", "Zwei")]
    assert skipped == {"redirect": 2, "page of another namespace": 1}


@pytest.mark.parametrize("version", ["0.3", "0.10", "0.11", "9.9"])
def test_any_schema_version_and_a_leading_comment_are_read(tmp_path: Path, version: str) -> None:
    path = write(tmp_path / "a.xml", b"<!-- a sample -->\n" + dump(page("Text."), version=version).encode())
    assert list(read("wikipedia", [path], ["de"])) == [Document("de", ("Text.",), path, 1)]


def test_packed_multistream_and_utf16_dumps_give_the_same_articles(tmp_path: Path) -> None:
    whole = dump(page("Първа \u4e2d."), page("Втора."))
    cut = whole.index("<page>", whole.index("<page>") + 1)
    head, tail = whole[:cut].encode(), whole[cut:].encode()
    paths = [
        write(tmp_path / "plain.xml", whole.encode()),
        write(tmp_path / "multistream.xml.bz2", bz2.compress(head) + bz2.compress(tail)),
        write(tmp_path / "packed.xml.gz", gzip.compress(whole.encode())),
        write(tmp_path / "little.xml", b"\xff\xfe" + whole.encode("utf-16-le")),
        write(tmp_path / "big.xml.bz2", bz2.compress(b"\xfe\xff" + whole.encode("utf-16-be"))),
    ]
    for path in paths:
        assert list(read("wikipedia", [path], ["bg"])) == [
            Document("bg", ("Първа \u4e2d.",), path, 1),
            Document("bg", ("Втора.",), path, 2),
        ]


def test_several_files_of_a_dump_are_read_one_after_the_other(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"a{i}.xml", dump(page(f"Text {i}.")).encode()) for i in range(3)]
    documents = list(read("wikipedia", [str(tmp_path / "a*.xml")], ["de"]))
    assert documents == [Document("de", (f"Text {i}.",), path, 1) for i, path in enumerate(paths)]


def test_a_truncated_dump_yields_its_whole_pages_and_one_bad_row(tmp_path: Path) -> None:
    rng = random.Random(0)
    whole = dump(*(page(f"Artikel {i} " + rng.randbytes(600).hex() + "\u00e4" * i) for i in range(400))).encode()
    packed = bz2.compress(whole, compresslevel=1)
    path = write(tmp_path / "a.xml.bz2", packed[: len(packed) * 2 // 3])
    *documents, last = read("wikipedia", [path], ["de"])
    assert len(documents) > 100
    assert [document.line for document in documents] == list(range(1, len(documents) + 1))
    assert last == BadRow(path, len(documents) + 1, "truncated archive")

    path = write(tmp_path / "a.xml", whole[: len(whole) // 2])
    *documents, last = read("wikipedia", [path], ["de"])
    assert len(documents) > 100
    assert last == BadRow(path, len(documents) + 1, "XML ends too early")


@pytest.mark.parametrize("broken", [b"plain text, no dump\n", dump(page("Text.")).encode() + b"<page>", b"<a><b></a>"])
def test_what_is_not_well_formed_is_told_after_what_could_be_read(tmp_path: Path, broken: bytes) -> None:
    path = write(tmp_path / "a.xml", broken)
    *documents, last = read("wikipedia", [path], ["de"])
    assert last == BadRow(path, len(documents) + 1, "XML is not well-formed")
    assert len(documents) == broken.count(b"Text.")


def test_memory_does_not_grow_with_the_dump(tmp_path: Path) -> None:
    pages = page("Wort " * 200, ns="1") * 500
    peaks = []
    for repeat in (4, 16):
        path = write(tmp_path / f"{repeat}.xml", dump(pages * repeat, page("Text.")).encode())
        tracemalloc.start()
        count = sum(1 for _ in read("wikipedia", [path], ["de"]))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == 1
    assert peaks[1] < peaks[0] * 1.2
