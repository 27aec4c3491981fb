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

from tests.unit.sources.broken import Broken, read_until_broken
from xalign_ray.sources.formats import read
from xalign_ray.sources.records import Document, Record

SITE = """<siteinfo><dbname>dewiki</dbname><namespaces>
<namespace key="0" case="first-letter" /><namespace key="1" case="first-letter">Diskussion</namespace>
<namespace key="-2" case="first-letter">Medium</namespace>
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


def test_only_articles_are_read_and_the_rest_is_counted_not_bad(tmp_path: Path) -> None:
    path = write(
        tmp_path / "dewiki.xml",
        dump(
            page("Erster '''Satz'''.\n\n[[Kategorie:A]] Zweiter [[Medium:a.ogg|Absatz]]."),
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
    ]
    assert skipped == {
        "redirect": 1,
        "page of another namespace": 1,
        "page that is not wikitext": 1,
        "empty after markup": 1,
    }


def test_of_several_revisions_the_newest_is_read_wherever_it_stands(tmp_path: Path) -> None:
    revisions = [
        f"<revision><timestamp>20{year}-01-01T00:00:00Z</timestamp><text>Of {year}.</text></revision>"
        for year in ("24", "23")
    ]
    pages = [f"<page><title>T</title><ns>0</ns>{''.join(order)}</page>" for order in (revisions, revisions[::-1])]
    path = write(tmp_path / "all.xml", dump(*pages).encode())
    assert [one.paragraphs for one in read("wikipedia", [path], ["de"]) if isinstance(one, Document)] == [
        ("Of 24.",),
        ("Of 24.",),
    ]


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


@pytest.mark.parametrize(
    ("text", "is_redirect"),
    [
        ("#REDIRECT [[The Beatles]]", True),
        ("#WEITERLEITUNG [[Ziel]] {{R from move}}", True),
        ("\n #перенаправление: [[Цель#Часть|x]]\n\n[[Kategorie:A]]", True),
        ("#REDIRECT[[Ziel]]", True),
        ("\ufeff#REDIRECT [[Ziel]]", True),
        ("<!-- a -->#REDIRECT [[Ziel]]", True),
        ("#WEITERLEITUNG [[Ziel]] <!-- a -->", True),
        ("#REDIRECT [[X]] [[Category:Foo]]", True),
        ("#REDIRECT [[X]][[de:Y]]", True),
        ("#redirect [[X]]__NOTOC__", True),
        ("#REDIRECT [[X]]. moved text", True),
        ("#Redirect: [[X]]\n# [[Y]]", True),
        ("#WEITERLEITUNG [[X]] [[Kategorie:A]]__KEIN_INHALTSVERZEICHNIS__", True),
        ("#Weiterleitung [[X]]. Mehr Text", False),
        ("# REDIRECT [[X]]", False),
        ("# Eins [[a]]\n# Zwei", False),
        ("#Eins [[a]]\n#Zwei [[b]]", False),
        ("#Eins [[a]] und mehr", False),
    ],
)
def test_redirects_are_known_by_their_text_where_no_element_says_so(
    tmp_path: Path, text: str, is_redirect: bool
) -> None:
    path = write(tmp_path / "a.xml", dump(page(text), page("Ein Artikel.")).encode())
    skipped: Counter[str] = Counter()
    documents = list(read("wikipedia", [path], ["de"], skipped))
    assert len(documents) == 2 - is_redirect
    assert skipped == ({"redirect": 1} if is_redirect else {})


def test_what_was_left_out_of_pages_is_counted_by_name(tmp_path: Path) -> None:
    pages = [
        "Davor steht etwas. Ein {{xyz}} Wort.",
        "Ein {{xyz}} Wort mit {{convert|5}}! Nicht ohne [[ Klammern.",
        "{|\n| a\n\nText.",
        "{{PAGENAME}}, ja.",
    ]
    path = write(tmp_path / "a.xml", dump(*(page(text, title="Ort") for text in pages)).encode())
    skipped: Counter[str] = Counter()
    documents = list(read("wikipedia", [path], ["de"], skipped))
    assert skipped == {
        "noted: templates and formulas left out of a sentence": 3,
        "noted: sentences left out, in which a word would be missing": 2,
        "noted: markup left in the text: [[": 1,
        "noted: tables that are never closed": 1,
    }
    assert isinstance(documents[3], Document)
    assert documents[3].paragraphs == ("Ort, ja.",)


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


def read_broken(path: str) -> tuple[list[Record], Broken]:
    records, broken = read_until_broken(read("wikipedia", [path], ["de"]))
    assert broken.path == path
    return records, broken


def test_a_truncated_dump_yields_its_whole_pages_then_says_where_it_ends(tmp_path: Path) -> None:
    rng = random.Random(0)
    whole = dump(*(page(f"Artikel {i} " + rng.randbytes(600).hex() + "\u00e4" * i) for i in range(400))).encode()
    packed = bz2.compress(whole, compresslevel=1)
    path = write(tmp_path / "a.xml.bz2", packed[: len(packed) * 2 // 3])
    documents, what = read_broken(path)
    assert len(documents) > 100
    assert [document.line for document in documents if isinstance(document, Document)] == list(
        range(1, len(documents) + 1)
    )
    assert what.reason == "truncated archive"

    path = write(tmp_path / "a.xml", whole[: len(whole) // 2])
    documents, what = read_broken(path)
    assert len(documents) > 100
    assert (what.reason, what.offset) == ("XML ends too early", whole[: len(whole) // 2].count(b"\n") + 1)


WHOLE_DUMP = dump(page("Text.")).encode()


@pytest.mark.parametrize(
    ("broken", "line"),
    [(b"plain text, no dump\n", 1), (WHOLE_DUMP + b"<page>", WHOLE_DUMP.count(b"\n") + 1), (b"<a><b>\n</a>", 2)],
)
def test_what_is_not_well_formed_is_told_after_what_could_be_read(tmp_path: Path, broken: bytes, line: int) -> None:
    documents, what = read_broken(write(tmp_path / "a.xml", broken))
    assert (what.reason, what.offset) == ("XML is not well-formed", line)
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
    assert peaks[1] < peaks[0] * 2  # of a dump 4 times as long
