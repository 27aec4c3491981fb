"""Reads what translation programs write: TMX and XLIFF, streamed, and PO, the catalogues of gettext."""

from __future__ import annotations

import codecs
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from xml.etree.ElementTree import Element

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.errors import DataError
from xalign_ray.sources.language_id import fits, language_of_file, language_of_name, without_region
from xalign_ray.sources.open import NOT_UTF8, BrokenFileError, Chunks, broken_file
from xalign_ray.sources.records import list_some
from xalign_ray.sources.tables import ROWS, SourceRow, SourceTable, TableFile, one_line
from xalign_ray.sources.xml import find_decoder, local_name, stream_elements

if TYPE_CHECKING:
    from polib import POEntry, POFile


_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})  # their content is markup of the program the text is from
SIDES = ("source", "target")  # in place of languages that a file does not name
ONE_LANGUAGE, OTHER_LANGUAGES = "unit in one language only", "unit in other languages"


def open_tmx(file: TableFile) -> SourceTable:
    """Units of a TMX file, numbered from 1, by languages.

    `en` takes a unit's EN, en_US or en-GB, the first of them; `en-GB` takes that alone. White space is made one blank.
    Units with fewer than two of the languages are skipped: in a memory of several that is no fault. Reading raises:
        BrokenFileError: XML that breaks off or is not well-formed.
        DataError: no unit has two of the languages; lists those that there are.
    """

    def read(languages: Sequence[str]) -> Iterator[SourceRow]:
        number, fits, seen = 0, False, set[str]()
        for number, unit in enumerate(stream_elements(file.chunks, ("tu",)), start=1):
            texts = unit_texts(unit)
            seen.update(texts)
            cells = [choose_text(texts, code) for code in languages]
            if sum(cell is not None for cell in cells) < min(2, len(languages)):
                yield SourceRow(number, skipped=OTHER_LANGUAGES if len(texts) > 1 else ONE_LANGUAGE)
                continue
            fits = True
            yield SourceRow(number, cells)
        if number and not fits:
            raise DataError(_explain_languages(file.path, "has no unit with both", languages, seen))

    def languages() -> list[str]:
        units = islice(stream_elements(file.chunks, ("tu",)), ROWS)
        codes = Counter(without_region(code) for unit in units for code in dict.fromkeys(unit_texts(unit)))
        names = [code for code, _ in codes.most_common() if code]
        if not names:
            raise DataError(f"{file.path} has no unit with a language. Check that it is a whole TMX file.")
        names_of_languages = [name for name in names if is_language(name)]
        if len(names_of_languages) < 2 <= len(names):
            unknown = ", ".join(f"'{name}'" for name in names if name not in names_of_languages)
            raise DataError(
                f"{file.path} calls a language {unknown}, which is no code. Write a code (xml:lang) in its place."
            )
        return names_of_languages

    return SourceTable(file.path, (), read, languages=languages)


def _explain_languages(path: str, lack: str, languages: Sequence[str], seen: Collection[str]) -> str:
    named = list_some(sorted(filter(None, seen))) or "none"
    return f"{path} {lack} {' and '.join(languages)}; its languages are {named}."


def unit_texts(unit: Element) -> dict[str, str]:
    """The text of each language of a unit, the first where there are several."""
    texts: dict[str, str] = {}
    for variant in unit.iter():
        if local_name(variant) == "tuv":
            segment = next((child for child in variant if local_name(child) == "seg"), None)
            texts.setdefault(written_code(variant.get(_LANG) or variant.get("lang") or ""), segment_text(segment))
    return texts


@lru_cache(maxsize=1024)
def written_code(written: str) -> str:
    """The canonical code of a language as a program wrote it (`de_DE`); unchanged if it is none."""
    written = written.strip().replace("_", "-")
    return check_language(written) if is_language(written) else written


def segment_text(segment: Element | None) -> str:
    """The text of a segment on one line, without the inline codes of the program it is from."""
    return " ".join("".join(_words(segment)).split()) if segment is not None else ""


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


def choose_text(texts: Mapping[str, str], code: str) -> str | None:
    """The text in a language, or in the first of its regions and scripts: `en` takes en-GB; None if there is none."""
    if code in texts:
        return texts[code]
    return next((text for language, text in texts.items() if fits(language, code)), None)


# Reads XLIFF, the exchange format of translation programs: units with a source and a target, streamed.

UNTRANSLATED, UNFINISHED, NOT_FOR_TRANSLATION = "not translated", "translation is not finished", "not to be translated"
_UNITS = ("trans-unit", "segment")  # of XLIFF of version 1, and of 2


class Unit(NamedTuple):
    """A unit of an XLIFF file: source and target, their languages (empty where the file names none), and why it is
    left out, if it is.
    """

    languages: tuple[str, str]
    texts: tuple[str, str]
    skipped: str


def open_xliff(file: TableFile) -> SourceTable:
    """Units of an XLIFF file, numbered from 1, by languages, whichever is the source.

    Units without a target, with one that is not finished by its state, and those of files in other languages are
    skipped. `en` takes en-US as well. A language that the file does not name is the one that is left. Reading raises:
        BrokenFileError: XML that breaks off or is not well-formed.
        DataError: no unit is in both languages; lists the languages that there are.
    """

    def read(languages: Sequence[str]) -> Iterator[SourceRow]:
        number, fits, seen = 0, False, set[str]()
        for number, unit in enumerate(read_units(file.chunks), start=1):
            seen.update(unit.languages)
            cells = cells_of(unit.languages, unit.texts, languages)
            fits = fits or cells is not None
            yield SourceRow(number, cells or (), skipped=OTHER_LANGUAGES if cells is None else unit.skipped)
        if number and not fits:
            raise DataError(_explain_languages(file.path, "has no unit in", languages, seen))

    def languages() -> list[str]:
        units = list(islice(read_units(file.chunks), ROWS))
        full = [unit.languages for unit in units if not unit.skipped]
        if not full:
            raise DataError(f"{file.path} holds no translation that is finished, in {len(units):,} units.")
        codes = [without_region(code) if code else "" for both in full for code in both]
        return [*dict.fromkeys(codes)] if all(codes) else [*SIDES]

    return SourceTable(file.path, (), read, languages=languages)


def cells_of(codes: Sequence[str], texts: Sequence[str], languages: Sequence[str]) -> list[str | None] | None:
    """The texts of a source and its translation by languages, None if they are in others.

    Args:
        codes: of the two texts; one that is not known fits any language.
        languages: two of them, in any order, or more; or SIDES.
    """
    if tuple(languages) == SIDES:
        return [*texts]
    if len(languages) > 2:
        cells = [choose_text(dict(zip(codes, texts, strict=True)), code) for code in languages]
        return cells if any(cells) else None
    for first, second in ((0, 1), (1, 0)):
        pairs = ((codes[first], languages[0]), (codes[second], languages[1]))
        if all(not code or fits(code, language) for code, language in pairs):
            return [texts[first], texts[second]]
    return None


def read_units(file: Chunks) -> Iterator[Unit]:
    """The units of a file, each with the languages of the `<file>` or `<xliff>` that it lies in."""
    codes = ["", ""]
    translated = True
    for element in stream_elements(file, _UNITS, ("xliff", "file", "unit")):
        name = local_name(element)
        if name in ("xliff", "file"):
            written = [element.get("srcLang", ""), element.get("trgLang", "")] if name == "xliff" else []
            written = written or [element.get("source-language", ""), element.get("target-language", "")]
            codes = [written_code(code) or default for code, default in zip(written, codes, strict=True)]
        elif name == "unit":
            translated = element.get("translate") != "no"
        else:
            yield _unit(element, codes, translated)


def _unit(element: Element, codes: Sequence[str], translated: bool) -> Unit:
    children = {local_name(child): child for child in element}
    target = children.get("target")
    texts = segment_text(children.get("source")), segment_text(target)
    state = (target.get("state") if target is not None else None) or element.get("state") or ""
    skipped = UNFINISHED if state in ("new", "initial", "rejected") or state.startswith("needs-") else ""
    skipped = skipped if texts[1] else UNTRANSLATED
    if not translated or element.get("translate") == "no":
        skipped = NOT_FOR_TRANSLATION
    return Unit((codes[0], codes[1]), texts, skipped)


# Reads PO files, the catalogues of gettext: each entry is a text and its translation, by polib.

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
        DataError: reading it, that it is translated into a third language.
    """
    catalogue = read_catalogue(file.chunks)
    codes = _languages(file.path, catalogue.metadata)

    def read(languages: Sequence[str]) -> Iterator[SourceRow]:
        for entry in catalogue:
            cells = cells_of(codes, (one_line(entry.msgid), one_line(entry.msgstr)), languages)
            if cells is None:
                raise DataError(
                    f"{file.path} is translated into '{codes[1]}', which is neither {' nor '.join(languages)}."
                )
            yield SourceRow(entry.linenum or 0, cells, skipped=_left_out(entry))

    def languages() -> list[str]:
        source, target = codes
        return [without_region(source) or SOURCE, without_region(target)] if target else [*SIDES]

    return SourceTable(file.path, (), read, languages=languages)


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
    try:
        is_utf8 = _is_utf8(raw) or encoding.lower() in ("utf-8", "utf8")
        text = find_decoder("utf-8-sig" if is_utf8 else encoding).decode(raw, final=True)
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
    # polib splits the lines of a file as gettext does, and lines of a text at U+2028 too.
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
    return broken_file(path, reason, 0, len(raw))


def _left_out(entry: POEntry) -> str:
    if entry.obsolete:
        return OBSOLETE
    if entry.fuzzy:
        return FUZZY
    if entry.msgid_plural:
        return PLURAL
    return "" if entry.msgstr.strip() else UNTRANSLATED


def _languages(path: str, metadata: Mapping[str, str]) -> tuple[str, str]:
    """The languages of the texts and of the translations, empty where they are unknown.

    By the header, else by the file's name (`de.po`) or a folder above (`de/LC_MESSAGES/django.po`).
    """
    target = _code(metadata.get("Language", "")) or language_of_file(path)[0] or _of_folder(path)
    return _code(metadata.get("X-Source-Language", "")), target


@cache
def _code(written: str) -> str:
    """`pt_BR`, `sr@latin`, `de_DE.UTF-8`."""
    name, _, variant = re.sub(r"\.[^@]*", "", written.strip()).partition("@")
    code, script = language_of_name(name), next((s for end, s in _SCRIPTS.items() if variant.endswith(end)), "")
    return check_language(f"{code.partition('-')[0]}-{script}") if code and script else code


def _of_folder(path: str) -> str:
    parts = Path(path).parts
    above = next((parts[n - 1] for n, name in enumerate(parts) if n and name == "LC_MESSAGES"), "")
    return _code(above)
