"""OPUS zips: members found by language, whatever else lies beside them, and zips that are not whole."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path

import pytest

from tests.unit.sources.broken import read_until_broken
from xalign_ray.errors import DataError
from xalign_ray.sources.formats import read
from xalign_ray.sources.open import CHECKSUM
from xalign_ray.sources.records import BadRow, Pair


def write(path: Path, stored: int = zipfile.ZIP_DEFLATED, **members: str) -> str:
    with zipfile.ZipFile(path, "w", stored) as archive:
        archive.writestr("README", "Corpus Name: Mini")
        archive.writestr("Mini.en-zh.xml", "<cesAlign/>")
        for code, text in members.items():
            archive.writestr(f"Mini.en-zh.{code}", text)
    return str(path)


def test_the_members_of_the_languages_are_paired(tmp_path: Path) -> None:
    path = write(tmp_path / "en-zh.txt.zip", en="a cat\na dog\n", zh_CN="\u732b\n\n", ids="1\n2\n")
    assert list(read("opus", [path], ["zh", "en"])) == [
        Pair(("zh", "en"), ("\u732b", "a cat"), f"{path}:Mini.en-zh.zh_CN", 1),
        BadRow(f"{path}:Mini.en-zh.zh_CN", 2, "one side is empty"),
    ]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            {"en": "a\n"},
            "{path} has no member whose name ends in .zh; it holds README, Mini.en-zh.xml, Mini.en-zh.en.",
        ),
        (
            {"en": "a\n", "zh_CN": "b\n", "zh_TW": "c\n"},
            "{path} has 2 members whose name ends in .zh; it holds Mini.en-zh.zh_CN, Mini.en-zh.zh_TW.",
        ),
        (
            {"en": "a\n", "zh": "b\nc\n"},
            "{path}:Mini.en-zh.en and {path}:Mini.en-zh.zh do not have the same rows (from row 2 on), so that no row "
            "can be trusted to translate the other. Fetch or write them together again.",
        ),
    ],
)
def test_a_zip_without_one_member_a_language_is_refused(tmp_path: Path, members: dict[str, str], message: str) -> None:
    path = write(tmp_path / "en-zh.txt.zip", **members)
    with pytest.raises(DataError) as caught:
        list(read("opus", [path], ["en", "zh"]))
    assert str(caught.value) == message.format(path=path)


def test_a_zip_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zip", en="a\n", zh="b\n")
    Path(path).write_bytes(Path(path).read_bytes()[:-30])
    with pytest.raises(DataError, match=r"a\.zip is no zip file, or is cut short \(.*\)\. Fetch it again\."):
        list(read("opus", [path], ["en", "zh"]))


@pytest.mark.parametrize("stored", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_read_up_to_the_damage(tmp_path: Path, stored: int) -> None:
    rng = random.Random(0)
    lines = "".join(f"{rng.randbytes(40).hex()}\n" for _ in range(30_000))
    path = write(tmp_path / "a.zip", stored, en=lines, zh=lines)
    content = bytearray(Path(path).read_bytes())
    middle = len(content) // 4
    content[middle : middle + 64] = b"\n" + b"x" * 63
    Path(path).write_bytes(content)
    _, broken = read_until_broken(read("opus", [path], ["en", "zh"]))
    assert (broken.path, broken.reason, broken.size) == (f"{path}:Mini.en-zh.en", CHECKSUM, len(lines))


def test_an_encrypted_zip_and_one_of_an_unknown_packing_are_sentences(tmp_path: Path) -> None:
    for place, value, said in ((6, 1, "encrypted"), (8, 77, "compression method")):
        path = write(tmp_path / "a.zip", en="a\n", zh="b\n")
        content = bytearray(Path(path).read_bytes())
        for head, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
            at = content.find(head)
            while at >= 0:
                content[at + place + shift] = value
                at = content.find(head, at + 4)
        Path(path).write_bytes(content)
        with pytest.raises(DataError, match=rf"a\.zip cannot be unpacked here: .*{said}.* read it with format moses\."):
            list(read("opus", [path], ["en", "zh"]))
