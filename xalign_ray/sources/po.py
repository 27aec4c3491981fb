"""Reads PO files, the catalogues of gettext: each entry is a text and its translation, by polib."""

from __future__ import annotations

import codecs
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_ray.errors import DataError
from xalign_ray.sources.column_languages import language_of_file, language_of_name
from xalign_ray.sources.jsonl import one_line
from xalign_ray.sources.moses import check_texts
from xalign_ray.sources.open import NOT_UTF8, BrokenFile, BrokenFileError, Chunks
from xalign_ray.sources.parts import Part
from xalign_ray.sources.records import BadRow, Pair, Record, Skipped
from xalign_ray.sources.xml_pairs import UNTRANSLATED, match_languages

if TYPE_CHECKING:
    from polib import POEntry, POFile

SOURCE = "en"  # of a catalogue that names no language of its texts: gettext's own convention
FUZZY, OBSOLETE = "fuzzy translation", "obsolete entry"
SYNTAX = "its syntax is not that of gettext"
_CHARSET = re.compile(rb'"Content-Type:[^"]*?charset=([\w.:-]+)', re.IGNORECASE)
_ENTRY = re.compile(r'^msgid\s+"', re.MULTILINE)
_TRANSLATION = re.compile(r'^msgstr(\[0\])?\s+"', re.MULTILINE)
_LINE = re.compile(r"""\s*(#.*|((msgctxt|msgid|msgid_plural|msgstr(\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*")?\s*""")
_OWN_COMMENT = re.compile(r"^[^\S\n]*#(?![.:,|~\s])", re.MULTILINE)  # `#msgid`, a comment to gettext and not to polib
_ONE_FORM = re.compile(r"nplurals\s*=\s*1\b")


def is_po(head: str) -> bool:
    """Whether the beginning of a file is that of a PO file."""
    return bool(_ENTRY.search(head) and _TRANSLATION.search(head))


def read_po(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped]:
    """Pairs of text and translation; `line` is that of the entry.

    The language that the file is translated into is that of its header, else of its name or folder, else the second.
    Entries without a translation, fuzzy and obsolete ones are skipped and counted. Of plural forms the first is taken,
    with the singular, or, where the language has one form only, with the plural.

    Raises:
      BrokenFileError: it is no PO file from some line on; none of it is read.
      DataError: it is translated into a third language.
    """
    (path,) = part.paths
    first, second = languages
    catalogue = open_po(path)
    codes = po_languages(path, catalogue.metadata)
    places = match_languages(codes, (first, second))
    if places is None:
        raise DataError(f"{path} is translated into '{codes[1]}', which is neither {first} nor {second}.")
    for entry in catalogue:
        if why := _left_out(entry):
            yield Skipped(why)
            continue
        texts = po_texts(entry, catalogue.metadata)
        pair = (texts[places[0]], texts[places[1]])
        fault = check_texts(pair)
        line = entry.linenum or 0
        yield BadRow(path, line, fault) if fault else Pair((first, second), pair, path, line)


def open_po(path: str) -> POFile:
    """A catalogue, packed or not, in UTF-8 if its bytes are that, else in the encoding of its header.

    Many files were converted and kept their header; text in another encoding is UTF-8 by chance only where it is ASCII.

    Raises:
      BrokenFileError: it cannot be read.
    """
    import polib

    chunks = Chunks(path)
    raw = b"".join(chunks)
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raw = raw.decode("utf-16", "replace").encode()
    charset = _CHARSET.search(raw)
    encoding = charset[1].decode("ascii") if charset and charset[1] != b"CHARSET" else "utf-8"
    try:
        text = raw.decode("utf-8-sig" if _is_utf8(raw) or encoding.lower() in ("utf-8", "utf8") else encoding)
    except LookupError:
        raise DataError(
            f"{path} names the encoding '{encoding}', which is not known here. Convert it to UTF-8."
        ) from None
    except UnicodeDecodeError as error:
        fault = NOT_UTF8 if encoding.lower() == "utf-8" else f"its bytes are not {encoding}"
        line = raw.count(b"\n", 0, error.start) + 1
        raise _broken(path, f"{fault} (line {line})", raw) from None
    text = re.sub(r"\r\n?", "\n", text)
    for number, line in enumerate(text.split("\n"), start=1):
        if not _LINE.fullmatch(line):  # polib takes a quote that is not closed for an empty text
            raise _broken(path, f"{SYNTAX} (line {number})", raw)
    # polib parts the lines of a file as gettext does, those of a text at U+2028 too.
    with tempfile.NamedTemporaryFile("w", suffix=".po", encoding="utf-8", newline="") as file:
        file.write(_OWN_COMMENT.sub("# ", text))
        file.flush()
        try:
            return polib.pofile(file.name, encoding="utf-8")
        except (OSError, ValueError, UnicodeError) as error:  # OSError is polib's for syntax
            line = re.search(r"line (\d+)", str(error))
            raise _broken(path, SYNTAX + (f" (line {line[1]})" if line else ""), raw) from None


def _is_utf8(raw: bytes) -> bool:
    """Whether bytes are UTF-8 with characters beyond ASCII."""
    try:
        return not raw.isascii() and bool(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _broken(path: str, reason: str, raw: bytes) -> BrokenFileError:
    return BrokenFileError(BrokenFile(path, reason, 0, len(raw), 1.0))


def _left_out(entry: POEntry) -> str:
    if entry.obsolete:
        return OBSOLETE
    if entry.fuzzy:
        return FUZZY
    translated = entry.msgstr_plural.get(0) if entry.msgid_plural else entry.msgstr
    return "" if translated and translated.strip() else UNTRANSLATED


def po_texts(entry: POEntry, metadata: Mapping[str, str]) -> tuple[str, str]:
    """The text of an entry and its translation, each on one line; no translation of one that is left out."""
    source, target = entry.msgid, entry.msgstr
    if entry.msgid_plural:
        source = entry.msgid_plural if _ONE_FORM.search(metadata.get("Plural-Forms", "")) else entry.msgid
        target = entry.msgstr_plural.get(0, "")
    return one_line(source), "" if _left_out(entry) else one_line(target)


def po_languages(path: str, metadata: Mapping[str, str]) -> tuple[str, str]:
    """The languages of the texts and of the translations, empty where nothing tells them.

    By the header, else by the file's name (`de.po`) or a folder above (`de/LC_MESSAGES/django.po`).
    """
    target = _code(metadata.get("Language", "")) or language_of_file(path)[0] or _of_folder(path)
    return _code(metadata.get("X-Source-Language", "")), target


@cache
def _code(written: str) -> str:
    """`pt_BR`, `sr@latin`, `de_DE.UTF-8`."""
    return language_of_name(re.split(r"[@.]", written.strip())[0])


def _of_folder(path: str) -> str:
    parts = Path(path).parts
    above = next((parts[n - 1] for n, name in enumerate(parts) if n and name == "LC_MESSAGES"), "")
    return _code(above)
