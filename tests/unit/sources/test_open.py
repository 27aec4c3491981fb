"""Opening raw files: lines, their numbers and faults; archives that break off."""

from __future__ import annotations

import bz2
import gzip
import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest

from tests.unit.sources.broken import read_until_broken
from xalign_ray.errors import DataError
from xalign_ray.sources.open import (
    CHECKSUM,
    CHUNK_BYTES,
    CR,
    DAMAGED,
    MAX_LINE_BYTES,
    NOT_UTF8,
    OVER_LONG,
    TRUNCATED,
    BrokenFileError,
    Chunks,
    Line,
    Span,
    read_lines,
)


def zstd(content: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def noise_lines(count: int) -> list[str]:
    rng = random.Random(0)
    return [f"{rng.randbytes(40).hex()} \u00e9\u4e2d" for _ in range(count)]


@pytest.mark.parametrize("suffix", PACK)
def test_text_that_is_named_as_if_it_were_packed_is_read_as_it_is(tmp_path: Path, suffix: str) -> None:
    """As servers leave it that unpack what they send; what is neither text nor packed stays damaged."""
    text = "é" * 3000 + "\ntwo\n"
    assert [line.text for line in read_lines(write(tmp_path / f"a{suffix}", text.encode()))] == ["é" * 3000, "two"]
    with pytest.raises(BrokenFileError):
        list(read_lines(write(tmp_path / f"b{suffix}", b"\xfa\xce" + text.encode())))
    with pytest.raises(DataError, match="is a pointer to the file, a web page"):
        list(read_lines(write(tmp_path / f"c{suffix}", b"<!DOCTYPE html><html></html>")))


def test_lines_are_numbered_and_end_with_lf_or_crlf_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\r\ntwo\u2028still two\x85\x0c\n\nfour\rfour".encode())
    assert list(read_lines(path)) == [
        Line(1, "one", ""),
        Line(2, "two\u2028still two\x85\x0c", ""),
        Line(3, "", ""),
        Line(4, "", CR),
    ]


@pytest.mark.parametrize("pack", [bytes, *PACK.values()])
def test_file_whose_lines_end_in_cr_alone_is_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    for content in (b"one\rtwo\rthree\r", b"one\rtwo", b"\r".join(line.encode() for line in noise_lines(20_000))):
        path = write(tmp_path / "a.txt", pack(content))
        with pytest.raises(DataError) as caught:
            list(read_lines(path))
        assert str(caught.value) == (
            f"{path} has lines that end in a carriage return (CR) alone. Convert them: tr '\\r' '\\n' < OLD > NEW"
        )


def test_lines_behind_which_a_file_of_cr_alone_was_joined_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\r\ntwo\r\r\nthree\rfour\rfive\r")
    assert list(read_lines(path)) == [Line(1, "one", ""), Line(2, "two", ""), Line(3, "", CR)]


def test_a_byte_order_mark_is_dropped_at_the_beginning_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert [line.text for line in read_lines(path)] == ["one", "\ufefftwo"]


def test_bytes_that_are_not_utf8_are_told_with_their_line_and_the_others_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"good\n\xff\xfe bad\ncaf\xe9\ngood again\n")
    assert list(read_lines(path)) == [
        Line(1, "good", ""),
        Line(2, "", NOT_UTF8),
        Line(3, "", NOT_UTF8),
        Line(4, "good again", ""),
    ]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["one\ntwo\n", "\u4e2d\u6587\u4e2d\u6587\n" * 9])
def test_utf16_without_a_mark_is_refused_with_its_name(tmp_path: Path, encoding: str, text: str) -> None:
    path = write(tmp_path / "a.txt", text.encode(encoding))
    with pytest.raises(DataError, match=f"UTF-16 without a byte-order mark. .* iconv -f {encoding[:-3].upper()}"):
        list(read_lines(path))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("pack", [bytes, *PACK.values()])
def test_utf16_with_its_mark_is_read_as_utf8(tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]) -> None:
    lines = ["one", "\u4e2d\U0001f600", "", *noise_lines(4_000)]
    path = write(tmp_path / "a", pack(("\ufeff" + "\r\n".join(lines)).encode(encoding)))
    assert list(read_lines(path)) == [Line(number, text, "") for number, text in enumerate(lines, start=1)]


def test_utf16_with_a_half_pair_or_a_half_character_loses_these_lines_only(tmp_path: Path) -> None:
    broken = "\ufeffone\nb\ud83dd\nthree\nfour".encode("utf-16-le", "surrogatepass") + b"x"
    path = write(tmp_path / "a.txt", broken)
    assert list(read_lines(path)) == [
        Line(1, "one", ""),
        Line(2, "", NOT_UTF8),
        Line(3, "three", ""),
        Line(4, "", NOT_UTF8),
    ]


def test_an_over_long_line_is_told_and_the_line_after_it_is_read(tmp_path: Path) -> None:
    long, longest = b"x" * (18 * CHUNK_BYTES + 5), b"y" * MAX_LINE_BYTES
    path = write(tmp_path / "a.txt", b"a\n" + long + b"\n" + longest + b"\nb\n" + long)
    lines = list(read_lines(path))
    assert [(line.number, len(line.text), line.fault) for line in lines] == [
        (1, 1, ""),
        (2, 0, OVER_LONG),
        (3, MAX_LINE_BYTES, ""),
        (4, 1, ""),
        (5, 0, OVER_LONG),
    ]


@pytest.mark.parametrize("suffix", PACK)
def test_packed_files_read_as_unpacked_ones_even_in_several_streams(tmp_path: Path, suffix: str) -> None:
    text = "\n".join(noise_lines(2000)).encode()
    pack = PACK[suffix]
    plain = write(tmp_path / "a.txt", text)
    packed = write(tmp_path / f"a.txt{suffix}", pack(text[:5001]) + pack(text[5001:]))
    nameless = write(tmp_path / "nameless", pack(text))
    assert list(read_lines(packed)) == list(read_lines(plain)) == list(read_lines(nameless))


@pytest.mark.parametrize(("suffix", "least"), [(".gz", 15_000), (".bz2", 8_000), (".zst", 15_000)])
def test_a_truncated_archive_yields_what_can_be_read_then_says_so(tmp_path: Path, suffix: str, least: int) -> None:
    lines = noise_lines(30_000)  # several bzip2 blocks
    packed = PACK[suffix]("\n".join(lines).encode())
    path = write(tmp_path / f"a.txt{suffix}", packed[: len(packed) * 2 // 3])
    good, broken = read_until_broken(read_lines(path))
    assert len(good) > least
    assert [line.text for line in good] == lines[: len(good)]
    size = Path(path).stat().st_size
    assert (broken.path, broken.reason, broken.offset, broken.size) == (path, TRUNCATED, size, size)


@pytest.mark.parametrize("suffix", PACK)
def test_a_damaged_archive_is_told_and_read_up_to_the_damage(tmp_path: Path, suffix: str) -> None:
    lines = noise_lines(30_000)
    packed = bytearray(PACK[suffix]("\n".join(lines).encode()))
    middle = len(packed) // 2
    packed[middle : middle + 200_000] = b"\xff" * 200_000  # more than a block of zstd, which may have no checksum
    good, broken = read_until_broken(read_lines(write(tmp_path / f"a{suffix}", bytes(packed))))
    assert [line.text for line in good[:8_000]] == lines[:8_000]
    assert broken.reason == (CHECKSUM if suffix == ".gz" else DAMAGED)  # noise can be unpacked, to other noise
    assert broken.offset == (len(packed) if suffix == ".gz" else pytest.approx(middle, abs=200_000))


def test_a_file_that_is_an_archive_by_name_only_is_told_as_damaged(tmp_path: Path) -> None:
    path = write(tmp_path / "a.bz2", b"\xfaplain text\n")
    assert read_until_broken(read_lines(path)) == ([], (path, 0, 12, DAMAGED))


def test_a_gzip_whose_checksum_is_wrong_does_not_say_that_it_was_read(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress("\n".join(noise_lines(400)).encode(), mtime=0))
    packed[-6] ^= 1
    path = write(tmp_path / "a.gz", bytes(packed))
    _, broken = read_until_broken(read_lines(path))
    assert len(packed) - 8 <= broken.offset <= len(packed)
    assert broken.reason == CHECKSUM


def test_a_broken_file_travels_between_processes(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError) as caught:
        list(read_lines(write(tmp_path / "a.bz2", b"\xfaplain text\n")))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (BrokenFileError, str(caught.value))


@pytest.mark.parametrize("name", ["nowhere", "self"])
def test_a_link_that_leads_nowhere_is_a_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match=rf"{name} cannot be opened: (No such file|Too many levels)"):
        list(read_lines(str(tmp_path / name)))


def test_an_archive_of_a_kind_that_is_not_read_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.zip", b"PK\x03\x04rest")
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value) == (
        f"{path} is an archive, which is not read here. Unpack it, or pack it as .gz, .bz2 or .zst."
        " A zip or tar of Moses files is read with format opus. It begins: 'PK\\x03\\x04rest'"
    )


def test_a_span_gives_its_bytes_and_goes_on_counting_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntwo\nthree\nfour\n")
    assert b"".join(Chunks(path, Span(4, 14))) == b"two\nthree\n"
    assert list(read_lines(path, Span(4, 14), first_line=2)) == [Line(2, "two", ""), Line(3, "three", "")]
