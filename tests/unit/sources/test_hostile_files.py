"""Hostile dumps, memories and JSON lines: what can be read is read, the rest is answered in one sentence."""

from __future__ import annotations

import bz2
import gzip
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from xalign_ray.errors import XalignError
from xalign_ray.sources.formats import read
from xalign_ray.sources.records import BadRow

NESTED = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
ENTITIES = f'<!DOCTYPE a [<!ENTITY e0 "aaaaaaaaaa">{NESTED}]>'
OUTSIDE = '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/hostname">]>'


def dump(*texts: str, head: str = "", end: str = "</mediawiki>") -> str:
    pages = "".join(
        f"<page><title>T</title><ns>0</ns><id>1</id><revision><text>{text}</text></revision></page>\n" for text in texts
    )
    return f"{head}<mediawiki>\n{pages}{end}"


def memory(*texts: str, head: str = "", end: str = "</body></tmx>") -> str:
    units = "".join(
        f'<tu tuid="1"><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"><seg>{text}</seg></tuv></tu>\n'
        for text in texts
    )
    return f"{head}<tmx><body>\n{units}{end}"


def lines(*texts: str) -> str:
    return "".join(f'{{"id": 1, "text": "{text}"}}\n' for text in texts)


def plain(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(text.encode())


def raw(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def loop(path: Path) -> None:
    path.symlink_to(path)


FORMATS = {"wikipedia": dump, "tmx": memory, "jsonl": lines}
MANY = [f"word {n} of many {n * 7919 % 1000}" for n in range(12_000)]
CASES: dict[tuple[str, str], Callable[[Path], object]] = {}
for form, make in FORMATS.items():
    CASES |= {
        (form, "gzip cut short"): raw(gzip.compress(make(*MANY).encode())[:-5000]),
        (form, "bzip2 cut short"): raw(bz2.compress(make(*MANY).encode())[:-5000]),
        (form, "gzip with a wrong sum"): raw(gzip.compress(make("one", "two").encode())[:-8] + b"\0" * 8),
        (form, "Latin-1"): raw(make("one", "zw\u00f6lf", "two").encode("latin-1")),
        (form, "mark of UTF-8"): raw(make("zw\u00f6lf").encode("utf-8-sig")),
        (form, "UTF-16"): raw(make("zw\u00f6lf").encode("utf-16")),
        (form, "NUL"): plain(make("one", "t\0wo", "three")),
        (form, "mixed line ends"): plain(make("one", "two", "three").replace("\n", "\r\n", 2)),
        (form, "half a surrogate pair"): plain(make("one", "\\ud800" if form == "jsonl" else "&#xD800;", "two")),
        (form, "the same id"): plain(make("one", "one")),
        (form, "empty"): plain(""),
        (form, "blank"): plain("\n \n"),
        (form, "folder"): Path.mkdir,
        (form, "link to itself"): loop,
        (form, "pipe"): os.mkfifo,
        (form, "cut short"): plain(make("one", "two", "three")[:-40]),
    }
for form, make in (("wikipedia", dump), ("tmx", memory)):
    CASES |= {
        (form, "a billion laughs"): plain(make("one", "&e9;", head=ENTITIES)),
        (form, "an entity outside"): plain(make("one", "&e;", head=OUTSIDE)),
        (form, "nested deep"): plain(make("one", "<b>" * 50_000 + "</b>" * 50_000, "two")),
    }
CASES["jsonl", "nested deep"] = plain(lines("one") + "[" * 100_000 + "]" * 100_000 + "\n" + lines("two"))
CASES["jsonl", "the same key"] = plain('{"text": "one", "text": "two"}\n')
# How many records are read, how many are bad rows, and what is said; of XML and of lines where these differ.
WHOLE: tuple[int, int, str] = (1, 0, "")
BROKEN = r":\d+ cannot be read on: XML is not well-formed\. "
ENDS = r":\d+ cannot be read on: XML ends too early\. "
CUT = r"cannot be read from byte [\d,]+ of [\d,]+ on: truncated archive\. "
NOTHING = r"holds no documents\. Check that it is the right file and that the format fits\."
XML = {
    "gzip cut short": (1, 0, CUT),
    "bzip2 cut short": (1, 0, CUT),
    "gzip with a wrong sum": (0, 0, "cannot be read from byte .* on: its checksum is wrong"),
    "Latin-1": (1, 0, BROKEN),
    "mark of UTF-8": WHOLE,
    "UTF-16": WHOLE,
    "NUL": (1, 0, BROKEN),
    "mixed line ends": (3, 0, ""),
    "half a surrogate pair": (1, 0, BROKEN),
    "the same id": (2, 0, ""),
    "empty": (0, 0, ENDS),
    "blank": (0, 0, ENDS),
    "folder": (0, 0, r"is a folder\. Name the files in it, for example "),
    "link to itself": (0, 0, r"cannot be opened: Too many levels of symbolic links\."),
    "pipe": (0, 0, r"is a named pipe, not a plain file\. Give a file that holds the data\."),
    "cut short": (2, 0, ENDS),
    "a billion laughs": (1, 0, BROKEN),
    "an entity outside": (1, 0, BROKEN),
    "nested deep": (2, 0, ""),
}
LINES = XML | {
    "gzip cut short": (1, 0, CUT),
    "bzip2 cut short": (0, 0, CUT),
    "Latin-1": (2, 1, "bytes are not UTF-8"),
    "NUL": (2, 1, "line holds NUL characters"),
    "half a surrogate pair": (2, 1, "'text' holds half a surrogate pair"),
    "empty": (0, 0, NOTHING),
    "blank": (0, 0, NOTHING),
    "cut short": (1, 1, "line is not JSON"),
    "nested deep": (2, 1, "line is not JSON"),
    "the same key": WHOLE,
}


@pytest.mark.parametrize(("form", "name"), CASES)
def test_hostile_file_is_read_as_far_as_it_goes(tmp_path: Path, form: str, name: str) -> None:
    path = tmp_path / "a"
    CASES[form, name](path)
    good, bad, said = (LINES if form == "jsonl" else XML)[name]
    if (form, name) == ("tmx", "nested deep"):
        bad, said = 1, "one side is empty"
    read_good, reasons, message = read_all(form, path)
    assert len(reasons) == bad
    assert good <= read_good < len(MANY) if "2 cut" in name or "gzip cut" in name else read_good == good
    assert re.match(said, (message.removeprefix(str(path)).lstrip() or "".join(reasons))), message
    assert "\n" not in message


def read_all(form: str, path: Path) -> tuple[int, list[str], str]:
    """How many good records there are, why others are bad, and the error at the end."""
    good, reasons = 0, []
    try:
        for record in read(form, [str(path)], ["en", "de"] if form == "tmx" else ["en"]):
            if isinstance(record, BadRow):
                reasons.append(record.reason)
            else:
                good += 1
    except XalignError as error:
        return good, reasons, str(error)
    return good, reasons, ""


@pytest.mark.parametrize(
    ("form", "good", "said"),
    [
        ("wikipedia", 1, "an element is longer than 64 MB"),
        ("tmx", 1, "an element is longer than 64 MB"),
        ("jsonl", 2, "line or document is longer than 16 MB"),
    ],
)
def test_text_of_200_megabytes_without_an_end_takes_bounded_memory(
    tmp_path: Path, form: str, good: int, said: str
) -> None:
    path = tmp_path / "a.gz"
    begin, end = FORMATS[form]("one", "WORDS", "two").split("WORDS")
    with gzip.open(path, "wb", 1) as file:
        file.write(begin.encode())
        for _ in range(200):
            file.write(b"word " * 209_715)
        file.write(end.encode())
    tracemalloc.start()
    try:
        read_good, reasons, message = read_all(form, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (read_good, said in message + "".join(reasons)) == (good, True), message
    assert peak < 300 << 20
