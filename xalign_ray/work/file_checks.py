"""Checks that a file is data: a plain file whose first bytes are not a Git LFS pointer, an error page or an archive."""

from __future__ import annotations

import codecs
import errno
import json
import os
import re
import stat
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

# Beginnings of files that are no data in any format: of Git LFS, xet, git-annex, DVC, of web pages, of S3 and Azure.
_NOT_DATA = re.compile(
    rb"version https?://(git-lfs\.github\.com|hawser\.github\.com|git-media\.io)/|# xet version \d"
    rb"|(\.\./)+blobs/[0-9a-f]{32,64}\s*\Z|(\.\./)*(\.git)?/?annex/objects/"
    rb"|(outs|deps):\s*\n\s*- (md5|hash|etag|size|path):"
    rb"|(<\?xml[^>]*>\s*)?(<!--(?s:.*?)-->\s*)*(?i:<(!doctype\s+html|(html|head|body|title|meta|script)[\s>]))"
    rb"|(<\?xml[^>]*>\s*)?<(\w+:)?Error(Response)?[\s>]"
)
# zip, xz, lzma, 7z, rar, lz4, lzip, compress and tar.
_ARCHIVE = re.compile(
    rb"PK\x03\x04|\xfd7zXZ|\x5d\x00\x00|7z\xbc\xaf|Rar!\x1a\x07|\x04\x22\x4d\x18|LZIP|\x1f\x9d|(?s:.{257})ustar"
)
# gzip, bzip2 and zstd; Parquet and Arrow; documents, data bases, old Office and compiled PO files, images, arrays,
# programs; WikiExtractor's output; XML.
_NOT_TEXT = re.compile(
    rb"\x1f\x8b|BZh[1-9]1AY&SY|\x28\xb5\x2f\xfd|PAR1|ARROW1|(?s:\xff{4}..\x00\x00\x10\x00\x00\x00)|%PDF-|\{\\rtf|%!PS"
    rb"|SQLite format 3\x00|\xd0\xcf\x11\xe0"
    rb"|\xde\x12\x04\x95|\x95\x04\x12\xde|\x89PNG|\x89HDF|\xff\xd8\xff|\x93NUMPY|\x80[\x02-\x05]|\x7fELF"
    rb"|(?i:<doc(\s[^>]*)?>|<(\?xml|!doctype|!--|mediawiki|tmx|srcset|refset|tstset|xliff|tei|cesdoc))"
)
_JSON = re.compile(rb'\[?\s*\{\s*"(?:[^"\\\n]|\\.)*"\s*:')
# Tags, subtitles, PO files, treebanks and numbered lines.
_NOT_SENTENCES = re.compile(
    rb"<[A-Za-z][\w.:-]*(\s+[\w.:-]+\s*=[^<>\n]*)?>[ \t]*\r?\n|1\r?\n\d\d:\d\d:\d\d,\d{3} --> |WEBVTT\s"
    rb'|(#[^\n]*\n)*\s*msgid\s+"|(#[^\n]*\n)*1\t[^\t\n]+(\t[^\t\n]*){8}\n|(\d+\t[^\n]*\n){2}\d+\t'
)


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
        DataError: it is one of these.
    """
    _refuse(
        path,
        head,
        _NOT_DATA,
        f"is a pointer to the file, a web page or a server's message, not the file itself. {_REFETCH} `git lfs pull` "
        "and `dvc pull` get what their pointers name.",
    )


def check_archive(path: str | Path, head: bytes) -> None:
    """Refuses archives of the kinds that are not unpacked here; `head` as of check_first_bytes, packed or not.

    Raises:
        DataError: it is one.
    """
    _refuse(
        path,
        head,
        _ARCHIVE,
        "is an archive, which is not read here. Unpack it, or pack it as .gz, .bz2 or .zst. A zip or tar of Moses "
        "files is read with format opus.",
    )


def check_text(path: str | Path, head: bytes, *, json_lines: bool = False) -> None:
    """Refuses content without lines of text: archives, binary files, XML, JSON, and all that check_first_bytes refuses.

    Args:
        head: as of check_first_bytes.
        json_lines: the file may hold JSON.

    Raises:
        DataError: it is one of these.
    """
    check_first_bytes(path, head)
    check_archive(path, head)
    nuls = [offset % 2 for offset, byte in enumerate(head) if not byte]
    if len(nuls) > UTF16_NULS * len(head) and len(set(nuls)) == 1:
        order = "LE" if nuls[0] else "BE"
        raise DataError(
            f"{path} is UTF-16 without a byte-order mark. Convert it: iconv -f UTF-16{order} -t UTF-8 OLD > NEW"
        )
    for kind in (_NOT_TEXT,) if json_lines else (_NOT_TEXT, _JSON):
        _refuse(
            path,
            head,
            kind,
            "is no plain text, but binary, XML or JSON. Read it with the format that fits (jsonl of WikiExtractor "
            "--json), or take the text out of it.",
        )


def check_sentences(path: str | Path, head: bytes) -> None:
    """Refuses lines of text that are no sentences: tags, subtitles, PO files, treebanks, numbered lines.

    Raises:
        DataError: it is one of these.
    """
    _refuse(
        path,
        head,
        _NOT_SENTENCES,
        "is no text of a sentence a line. Read it with the format that fits (po, conllu), or take tags, times and "
        "numbers out of it.",
    )


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


def _refuse(path: str | Path, head: bytes, kind: re.Pattern[bytes], what: str) -> None:
    if any(map(kind.match, (head, head.removeprefix(codecs.BOM_UTF8).lstrip()))):
        raise DataError(what, path, shown=head)
