"""Reads what translation programs write: TMX and XLIFF, streamed, and PO, the catalogues of gettext."""

from __future__ import annotations

import codecs
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree.ElementTree import Element

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.errors import DataError
from xalign_ray.sources.language_id import fits, language_of_file, language_of_name, without_region
from xalign_ray.sources.open import NOT_UTF8, REFETCH, BrokenFileError, Chunks
from xalign_ray.sources.records import list_some
from xalign_ray.sources.tables import ROWS, SourceRow, SourceTable, TableFile, one_line
from xalign_ray.sources.xml import find_decoder, local_name, stream_elements

if TYPE_CHECKING:
    from polib import POEntry, POFile


SIDES = ("source", "target")  # in place of languages that a file does not name
ONE_LANGUAGE, OTHER_LANGUAGES = "unit in one language only", "unit in other languages"


class Unit(NamedTuple):
    """A unit: its texts by language code, as written or by `_named`, and the reason if it is skipped."""

    number: int
    texts: Mapping[str, str]
    skipped: str = ""


def _table_of_units(path: str, units: Callable[[Sequence[str]], Iterator[Unit]]) -> SourceTable:
    """Units by languages, in any order: `en` takes a text in EN, en_US or en-GB, the first of them, `en-GB` that alone.

    Units with fewer than two of the languages are skipped: in a file of several that is no fault.

    Args:
        units: of the languages that are wanted; of all if empty.

    Raises:
        BrokenFileError: reading it, that it cannot be read on.
        DataError: reading it, that no unit has two of the languages; lists those that there are.
    """

    def read(languages: Sequence[str]) -> Iterator[SourceRow]:
        is_fitting, seen = False, set[str]()
        for number, texts, skipped in units(languages):
            seen.update(texts)
            cells = [choose_text(texts, code) for code in languages]
            if sum(cell is not None for cell in cells) < min(2, len(languages)):
                yield SourceRow(number, skipped=OTHER_LANGUAGES if len(texts) > 1 else ONE_LANGUAGE)
                continue
            is_fitting = True
            yield SourceRow(number, cells, skipped=skipped)
        if seen and not is_fitting:
            named = list_some(sorted(filter(None, seen))) or "none"
            raise DataError(f"{path} has no unit with both {' and '.join(languages)}; its languages are {named}.")

    def languages() -> list[str]:
        first = list(islice(units(()), ROWS))
        full = [unit.texts for unit in first if not unit.skipped]
        if not full:
            raise DataError(f"{path} holds no translation that is finished, in {len(first):,} units.")
        names = [name for name, _ in Counter(without_region(code) for texts in full for code in texts).most_common()]
        if "" in names:
            return [*SIDES]
        unknown = [name for name in names if not is_language(name)]
        if len(names) - len(unknown) < 2 <= len(names):
            listed = ", ".join(f"'{name}'" for name in unknown)
            raise DataError(
                f"{path} calls a language {listed}, which is no code. Write a code (xml:lang) in its place."
            )
        return [name for name in names if name not in unknown]

    return SourceTable(path, (), read, languages=languages)


def choose_text(texts: Mapping[str, str], code: str) -> str | None:
    """The text in a language, or in the first of its regions and scripts: `en` takes en-GB; None if there is none."""
    if code in texts:
        return texts[code]
    return next((text for language, text in texts.items() if fits(language, code)), None)


def _named(codes: Sequence[str], languages: Sequence[str]) -> Sequence[str]:
    """The codes of a source and its translation: one that the file does not name is the language that is left."""
    if tuple(languages) == SIDES:
        return languages
    left = [language for language in languages if not any(fits(code, language) for code in codes if code)]
    return [code or (left.pop(0) if left else "") for code in codes]


@lru_cache(maxsize=1024)
def written_code(written: str) -> str:
    """The canonical code of a language as a program wrote it (`de_DE`); unchanged if it is none."""
    written = written.strip().replace("_", "-")
    return check_language(written) if is_language(written) else written


# TMX, whose units have a text in each of several languages.

_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})  # their content is markup of the program the text is from


def open_tmx(file: TableFile) -> SourceTable:
    """Units of a TMX file, numbered from 1, by languages. White space is made one blank."""

    def units(_: Sequence[str]) -> Iterator[Unit]:
        for number, unit in enumerate(stream_elements(file.chunks, ("tu",)), start=1):
            texts: dict[str, str] = {}  # of each language the first
            for variant in unit.iter():
                code = written_code(variant.get(_LANG) or variant.get("lang") or "")
                if local_name(variant) == "tuv" and code:
                    segment = next((child for child in variant if local_name(child) == "seg"), None)
                    texts.setdefault(code, segment_text(segment))
            yield Unit(number, texts)

    return _table_of_units(file.path, units)


def segment_text(segment: Element | None) -> str:
    """The text of a segment on one line, without the inline codes of the program it is from."""
    return one_line("".join(_words(segment))) if segment is not None else ""


def _words(segment: Element) -> Iterator[str]:
    """The text in the order in which it stands, however deep."""
    waiting: list[Element | str] = [segment]
    while waiting:
        element = waiting.pop()
        if isinstance(element, str):
            yield element
            continue
        yield element.text or ""
        for child in reversed(element):
            waiting.append(child.tail or "")
            if local_name(child) not in _CODES:
                waiting.append(child)
            if any(child.get(key, "").lower().rpartition(":")[2] == "lb" for key in ("ctype", "type", "subType")):
                waiting.append(" ")  # a line break


# XLIFF, the exchange format of translation programs: units with a source and a target.

UNTRANSLATED, UNFINISHED, NOT_FOR_TRANSLATION = "not translated", "translation is not finished", "not to be translated"
_UNITS = ("trans-unit", "segment")  # of XLIFF of version 1, and of 2


def open_xliff(file: TableFile) -> SourceTable:
    """Units of an XLIFF file, numbered from 1, by languages, whichever is the source.

    Units without a target and with one that is not finished by its state are skipped.
    """

    def units(languages: Sequence[str]) -> Iterator[Unit]:
        codes, translated, number = ["", ""], True, 0
        for element in stream_elements(file.chunks, _UNITS, ("xliff", "file", "unit")):
            name = local_name(element)
            if name in ("xliff", "file"):
                keys = ("srcLang", "trgLang") if name == "xliff" else ("source-language", "target-language")
                codes = [written_code(element.get(key, "")) or above for key, above in zip(keys, codes, strict=True)]
            elif name == "unit":
                translated = element.get("translate") != "no"
            else:
                number += 1
                children = {local_name(child): child for child in element}
                target = children.get("target")
                texts = segment_text(children.get("source")), segment_text(target)
                state = (target.get("state") if target is not None else None) or element.get("state") or ""
                skipped = UNFINISHED if state in ("new", "initial", "rejected") or state.startswith("needs-") else ""
                skipped = skipped if texts[1] else UNTRANSLATED
                if not translated or element.get("translate") == "no":
                    skipped = NOT_FOR_TRANSLATION
                yield Unit(number, dict(zip(_named(codes, languages), texts, strict=True)), skipped)

    return _table_of_units(file.path, units)


# PO files, the catalogues of gettext: each entry is a text and its translation, by polib.

SOURCE = "en"  # of a catalogue that names no language of its texts: gettext's own convention
FUZZY, OBSOLETE, PLURAL = "fuzzy translation", "obsolete entry", "entry with plural forms"
SYNTAX = "its syntax is not that of gettext"
_CHARSET = re.compile(rb'"Content-Type:[^"]*?charset=([\w.:-]+)', re.IGNORECASE)
_ENTRY = re.compile(r'^msgid\s+"', re.MULTILINE)
_TRANSLATION = re.compile(r'^msgstr(\[0\])?\s+"', re.MULTILINE)
_LINE = re.compile(r"""\s*(#.*|((msgctxt|msgid|msgid_plural|msgstr(\[\d+\])?)\s*)?"(?:[^"\\]|\\.)*")?\s*""")
_OWN_COMMENT = re.compile(r"^[^\S\n]*#(?![.:,|~\s])", re.MULTILINE)  # `#msgid`, a comment to gettext and not to polib
_SCRIPTS = {"latin": "Latn", "cyrillic": "Cyrl", "devanagari": "Deva", "arabic": "Arab", "iqtelif": "Latn"}


def is_po(head: str) -> bool:
    """Whether the beginning of a file is that of a PO file."""
    return bool(_ENTRY.search(head) and _TRANSLATION.search(head))


def open_po(file: TableFile) -> SourceTable:
    """Entries of a PO file, numbered by their lines: text and translation, by languages.

    The language that the file is translated into is that of its header, else of its name or folder, else the one that
    is left. Entries without a translation, with plural forms, fuzzy and obsolete ones are skipped.

    Raises:
        BrokenFileError: it is no PO file from some line on; none of it is read.
    """
    catalogue = read_catalogue(file.chunks)
    source = _code(catalogue.metadata.get("X-Source-Language", ""))
    parts = Path(file.path).parts
    above = next((parts[n - 1] for n, name in enumerate(parts) if n and name == "LC_MESSAGES"), "")
    target = _code(catalogue.metadata.get("Language", "")) or language_of_file(file.path)[0] or _code(above)

    def units(languages: Sequence[str]) -> Iterator[Unit]:
        codes = _named((source, target), languages or [SOURCE] * bool(target))
        for entry in catalogue:
            texts = one_line(entry.msgid), one_line(entry.msgstr)
            yield Unit(entry.linenum or 0, dict(zip(codes, texts, strict=True)), _left_out(entry))

    return _table_of_units(file.path, units)


def read_catalogue(chunks: Chunks) -> POFile:
    """A catalogue, packed or not, in UTF-8 if its bytes are that, else in the encoding of its header.

    Many files were converted and kept their header; text in another encoding is UTF-8 by chance only where it is ASCII.

    Raises:
      BrokenFileError: it cannot be read.
    """
    import polib

    path, raw = chunks.path, b"".join(chunks)
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raw = raw.decode("utf-16", "replace").encode()
    charset = _CHARSET.search(raw)
    encoding = charset[1].decode("ascii") if charset and charset[1] != b"CHARSET" else "utf-8"
    with suppress(UnicodeDecodeError):
        encoding = encoding if raw.isascii() else raw.decode("utf-8") and "utf-8"
    is_utf8 = encoding.lower() in ("utf-8", "utf8")
    try:
        text = find_decoder("utf-8-sig" if is_utf8 else encoding).decode(raw, final=True)
    except LookupError:
        raise DataError(
            f"{path} names the encoding '{encoding}', which is not known here. Convert it to UTF-8."
        ) from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _broken(path, NOT_UTF8 if is_utf8 else f"its bytes are not {encoding}", line) from None
    text = re.sub(r"\r\n?", "\n", text)
    for number, line in enumerate(text.split("\n"), start=1):
        if not _LINE.fullmatch(line):  # polib takes a quote that is not closed for an empty text
            raise _broken(path, SYNTAX, number)
    # polib splits the lines of a file as gettext does, and lines of a text at U+2028 too.
    with tempfile.NamedTemporaryFile("w", suffix=".po", encoding="utf-8", newline="") as file:
        file.write(_OWN_COMMENT.sub("# ", text))
        file.flush()
        try:
            return polib.pofile(file.name, encoding="utf-8")
        except (OSError, ValueError, UnicodeError) as error:  # OSError is polib's for syntax
            line = re.search(r"line (\d+)", str(error))
            raise _broken(path, SYNTAX, int(line[1]) if line else 1) from None


def _broken(path: str, reason: str, line: int) -> BrokenFileError:
    return BrokenFileError(f"cannot be read on: {reason}. {REFETCH}", path, line)


def _left_out(entry: POEntry) -> str:
    if entry.obsolete:
        return OBSOLETE
    if entry.fuzzy:
        return FUZZY
    if entry.msgid_plural:
        return PLURAL
    return "" if entry.msgstr.strip() else UNTRANSLATED


@cache
def _code(written: str) -> str:
    """`pt_BR`, `sr@latin`, `de_DE.UTF-8`."""
    name, _, variant = re.sub(r"\.[^@]*", "", written.strip()).partition("@")
    code, script = language_of_name(name), next((s for end, s in _SCRIPTS.items() if variant.endswith(end)), "")
    return check_language(f"{code.partition('-')[0]}-{script}") if code and script else code
