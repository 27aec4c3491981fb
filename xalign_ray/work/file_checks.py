"""Checks that a file is data: a plain file whose first bytes are not a Git LFS pointer, an error page or an archive."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from xalign_ray.errors import DataError

UTF16_NULS = 0.02  # share of NUL bytes, all at even or all at odd offsets: blanks and line ends of any script have them
HEAD_BYTES = 4096  # bytes that the checks read; an error message of a server is shorter
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
_REFETCH = "Fetch the file again, and check its address and your access to it."

# Beginnings of files that are no data in any format, and the way out.
_NOT_DATA = (
    (
        rb"version https?://(git-lfs\.github\.com|hawser\.github\.com|git-media\.io)/|# xet version \d",
        "a Git LFS pointer, not the file itself. Run `git lfs pull` in the clone it lies in.",
    ),
    (
        rb"(\.\./)+blobs/[0-9a-f]{32,64}\s*\Z|(\.\./)*(\.git)?/?annex/objects/"
        rb"|(outs|deps):\s*\n\s*- (md5|hash|etag|size|path):",
        "a pointer to the file, not the file itself. Get it by the tool that wrote the pointer (`git annex get`, "
        "`dvc pull`), or copy what a link leads to (cp -rL).",
    ),
    (
        rb"(?is)(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|(html|head|body|title|meta|script)[\s>])",
        f"an HTML page, not the file. {_REFETCH}",
    ),
    (rb"(<\?xml[^>]*>\s*)?<(\w+:)?Error(Response)?[\s>]", f"an error message of a store, not the file. {_REFETCH}"),
)
_ARCHIVES = {
    "zip": rb"PK\x03\x04",
    "xz": rb"\xfd7zXZ|\x5d\x00\x00",
    "7z": rb"7z\xbc\xaf",
    "rar": rb"Rar!\x1a\x07",
    "lz4": rb"\x04\x22\x4d\x18",
    "lzip": rb"LZIP",
    "compress": rb"\x1f\x9d",
    "tar": rb"(?s).{257}ustar",
}
# Beginnings of data that are no lines of text.
_NOT_TEXT = (
    (rb"\x1f\x8b|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd", "packed twice. Unpack it once."),
    (rb"PAR1", "a Parquet file, not lines of text. Read it with format parquet."),
    (rb"(?s)ARROW1|\xff{4}..\x00\x00\x10\x00\x00\x00", "an Arrow file, not lines of text. Write it as Parquet."),
    (rb"%PDF-|\{\\rtf|%!PS", "a document of a word processor or printer. Save it as plain text in UTF-8."),
    (rb"SQLite format 3\x00|\x89PNG|\x89HDF|\xff\xd8\xff|\x93NUMPY|\x80[\x02-\x05]|\x7fELF", "binary, not text."),
    (
        rb"(?i)<doc(\s[^>]*)?>",
        "text between <doc> lines, as WikiExtractor writes it, not plain text. Run WikiExtractor with --json and read "
        "its output with format jsonl.",
    ),
    (
        rb"(?i)<(\?xml|!doctype|!--|mediawiki|tmx|srcset|refset|tstset|xliff|tei|cesdoc)",
        "XML or SGML, not plain text. Read it with the format that fits (wikipedia, tmx, xliff), or take the text out "
        "of it.",
    ),
)
# Beginnings of text that is no sentences.
_NOT_SENTENCES = (
    (
        rb"<[A-Za-z][\w.:-]*(\s+[\w.:-]+\s*=[^<>\n]*)?>[ \t]*\r?\n",
        "text between tags, as corpora in SGML or in vertical form are, not plain text. Take the tags out of it.",
    ),
    (
        rb"1\r?\n\d\d:\d\d:\d\d,\d{3} --> |WEBVTT\s",
        "subtitles with their times, not plain text. Take the times and numbers out of them.",
    ),
    (rb'(#[^\n]*\n)*\s*msgid\s+"', "a PO file, not plain text. Read it with format po, as pairs."),
    (
        rb"(#[^\n]*\n)*1\t[^\t\n]+(\t[^\t\n]*){8}\n",
        "a treebank in CoNLL-U, not plain text. Read it with format conllu.",
    ),
    (rb"(\d+\t[^\n]*\n){2}\d+\t", "numbered lines, not plain text. Take the numbers off: cut -f2- OLD > NEW"),
)
_JSON = re.compile(rb'\[?\s*\{\s*"(?:[^"\\\n]|\\.)*"\s*:')


def open_file(path: str | Path) -> BinaryIO:
    """Opens a local file to read and seek in.

    Raises:
        DataError: it is no plain file, cannot be opened, or is a pointer or an error message in the file's place.
    """
    check_plain(path)
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            head = file.read(HEAD_BYTES)
        except OSError as error:
            raise DataError(f"{path} cannot be opened: {error.strerror}.") from None
        check_first_bytes(path, head)
        file.seek(0)
        stack.pop_all()
    return file


def read_plain(path: Path) -> str:
    """The text of a file that this program wrote, in UTF-8.

    Raises:
        DataError: it is there, but is no plain file.
        FileNotFoundError: it is not there.
    """
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))  # also where its folder is a file
    check_plain(path)
    return path.read_text(encoding="utf-8")


def check_plain(path: str | Path) -> None:
    """Refuses pipes, devices and the like: reading them may never end.

    Raises:
        DataError: it is a pipe, a device, a socket or a folder, or cannot be looked up.
    """
    try:
        kind = stat.S_IFMT(Path(path).stat().st_mode)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise DataError(f"{path} cannot be opened: {getattr(error, 'strerror', error)}.") from None
    if kind != stat.S_IFREG:
        raise DataError(f"{path} is {_KINDS.get(kind, 'no file')}, not a plain file. Give a file that holds the data.")


def check_first_bytes(path: str | Path, head: bytes) -> None:
    """Refuses content that no format reads: pointers, HTML pages and error messages of a store in place of the file.

    Args:
        head: the first HEAD_BYTES bytes of the file, unpacked; all of it if there are fewer.

    Raises:
        DataError: it is one of these; names the way out.
    """
    _refuse(path, head, _NOT_DATA)


def check_archive(path: str | Path, head: bytes) -> None:
    """Refuses archives of the kinds that are not unpacked here; `head` as of check_first_bytes, packed or not.

    Raises:
        DataError: it is one; names the kind.
    """
    if kind := next((kind for kind, pattern in _ARCHIVES.items() if re.match(pattern, head)), None):
        hint = f" A {kind} of Moses files is read with format opus." if kind in ("zip", "tar") else ""
        raise DataError(
            f"{path} is a {kind} archive, which is not read here. Unpack it, or pack it as .gz, .bz2 or .zst.{hint}"
        )


def check_text(path: str | Path, head: bytes, *, json_lines: bool = False) -> None:
    """Refuses content without lines of text: archives, binary files, XML, JSON, and all that check_first_bytes refuses.

    Args:
        head: as of check_first_bytes.
        json_lines: the file may hold JSON.

    Raises:
        DataError: it is one of these; names the format that reads it.
    """
    check_first_bytes(path, head)
    check_archive(path, head)
    nuls = [offset % 2 for offset, byte in enumerate(head) if not byte]
    if len(nuls) > UTF16_NULS * len(head) and len(set(nuls)) == 1:
        order = "LE" if nuls[0] else "BE"
        raise DataError(
            f"{path} is UTF-16 without a byte-order mark. Convert it: iconv -f UTF-16{order} -t UTF-8 OLD > NEW"
        )
    _refuse(path, head, _NOT_TEXT)
    if not json_lines and _JSON.match(text := _without_mark(head)):
        shown = " ".join(text[:80].decode("utf-8", "replace").split())
        raise DataError(f"{path} is JSON, not plain text. Read JSON lines with format jsonl. It begins: {shown}")


def check_sentences(path: str | Path, head: bytes) -> None:
    """Refuses lines of text that are no sentences: tags, subtitles, PO files, treebanks, numbered lines.

    Raises:
        DataError: it is one of these; names the format that reads it.
    """
    _refuse(path, head, _NOT_SENTENCES)


def check_safetensors(path: str | Path) -> None:
    """Refuses a safetensors file that is cut short, or is something else: only its header and its size are read.

    Raises:
        DataError: its size is not the one in its header, or it has no such header.
    """
    with open_file(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length)) if 8 + length <= size else {}
            ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
            expected = 8 + length + max(ends, default=0) if header else None
        except (ValueError, KeyError, TypeError, AttributeError):
            expected = None
    if expected is None:
        raise DataError(f"{path} is no safetensors file, or its header is cut short ({size:,} bytes). {_REFETCH}")
    if size != expected:
        raise DataError(f"{path} has {size:,} bytes, its header says {expected:,}: it is not whole. {_REFETCH}")


def _refuse(path: str | Path, head: bytes, kinds: Sequence[tuple[bytes, str]]) -> None:
    heads = head, _without_mark(head)
    if what := next((what for pattern, what in kinds if any(re.match(pattern, head) for head in heads)), None):
        raise DataError(f"{path} is {what}")


def _without_mark(head: bytes) -> bytes:
    return head.removeprefix(codecs.BOM_UTF8).lstrip()
