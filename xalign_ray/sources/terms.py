"""Reads bilingual dictionaries of every form, several files in a zip too; finds which form a file has."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from xalign_ray.config.language_codes import check_language, is_language
from xalign_ray.config.sources import DictionaryFormat
from xalign_ray.errors import DataError
from xalign_ray.sources.first_rows import decoded, find_terms, is_workbook, table_suffix
from xalign_ray.sources.html import has_markup
from xalign_ray.sources.language_id import fits, language_of_name
from xalign_ray.sources.open import Chunks, Line, number_lines
from xalign_ray.sources.records import BadRow, Entry, Noted, Part, Record, Skipped
from xalign_ray.sources.table_pairs import (
    DELIMITERS,
    OTHER_SHEETS,
    CsvRow,
    csv_rows,
    find_delimiter,
    named_delimiter,
    open_rows,
)
from xalign_ray.sources.text import is_zip, member_names, open_member, unpack
from xalign_ray.sources.translation_files import written_code
from xalign_ray.vocabulary.dictionary import trim_punctuation
from xalign_ray.vocabulary.words import BLANKS
from xalign_ray.work.file_checks import HEAD_BYTES

ONE_TERM = "dictionary line has one column"
NO_TERM = "term is empty"
BLANK = "blank line"
NO_TRANSLATION = "entry without a translation into the other language"
OTHER_LANGUAGES = "entry in other languages"
PUNCTUATION = "dictionary lines with punctuation around a word, taken off"
BRACKETS = "terms with notes in brackets, taken off"
NOTES = "parts of speech and notes, not read"
LISTS, _LIST = "terms with a comma or semicolon in them, each read as one term", re.compile("[,;\uff0c\uff1b\u3001]")
UNDERSCORES = "terms with underscores between their words, read as blanks"
MARKUP = "term has HTML tags or entities"
UID = "term is PanLex's number of a language"
_UNDERSCORE = re.compile(r"(?<=[^\W_])_+(?=[^\W_])")
_UID = re.compile(r"[a-z]{3}-\d{3}")
_BRACKETED = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|<[^<>]*>|\([^()]*\)")
_LETTER = "[A-Za-z\u00c0-\u024f\u0370-\u052f]"  # Latin, Greek, Cyrillic; Chinese has no blanks between words
_OPTIONAL = re.compile(rf"\(({_LETTER}+)\)(?={_LETTER})")  # within a word: (in)valid
_NOT_TERMS = re.compile(r"(^|/)(readme|licen[sc]e|copying)\b|\.(md|pdf|html?|dtd|rng|xsd|sch|css|xsl)$", re.IGNORECASE)


class _Member(Chunks):
    """The bytes of a file within a zip."""

    def __init__(self, archive: str, name: str) -> None:
        super().__init__(f"{archive}:{name}")
        self._archive, self._name = archive, name

    def __iter__(self) -> Iterator[bytes]:
        with ExitStack() as stack:
            member = open_member(self._archive, self._name, stack)
            self._size = member.size
            for chunk in unpack(member, self.path):
                self._begin, self._end = self._end, self._end + len(chunk)
                yield chunk


def files_of(path: str) -> Iterator[Chunks]:
    """A file, or those within a zip but for its licence and notes; their `path` is zip:member."""
    if not is_zip(path):
        yield Chunks(path)
        return
    for name in sorted(member_names(path)):
        if not _NOT_TERMS.search(name):
            yield _Member(path, name)


def entries(
    languages: Sequence[str], lefts: Iterable[str], rights: Iterable[str], source: str, line: int
) -> Iterator[Record | Noted]:
    """Each term of the first language with each of the second, without notes in brackets and outer punctuation.

    An underscore between words is a blank: running text has no other. A term that is brackets and punctuation alone
    stays as it is. Without a term on either place, or with one that is none, it is a bad row.
    """
    first, second = languages
    lefts, rights = [*lefts], [*rights]
    for fault, is_faulty in ((MARKUP, has_markup), (UID, _UID.fullmatch)):
        if any(map(is_faulty, (*lefts, *rights))):
            yield BadRow(source, line, fault)
            return
    if underscores := sum(bool(_UNDERSCORE.search(term)) for term in (*lefts, *rights)):
        yield Noted(UNDERSCORES, underscores)
    cleaned: list[list[str]] = []
    is_trimmed = False
    for terms in (lefts, rights):
        bare = [one for term in terms if (one := " ".join(_UNDERSCORE.sub(" ", term).split()))]
        plain = [" ".join(_BRACKETED.sub(" ", _OPTIONAL.sub(r"\1", term)).split()) or term for term in bare]
        trimmed = [trim_punctuation(term) for term in plain]
        if brackets := sum(a != b for a, b in zip(bare, plain, strict=True)):
            yield Noted(BRACKETS, brackets)
        is_trimmed |= plain != trimmed
        cleaned.append(list(dict.fromkeys(trimmed)))
    if is_trimmed:
        yield Noted(PUNCTUATION, 1)
    if lists := sum(bool(_LIST.search(term)) for terms in cleaned for term in terms):
        yield Noted(LISTS, lists)
    if not all(cleaned):
        yield BadRow(source, line, NO_TERM)
    for left, right in product(*cleaned):
        yield Entry((first, second), (left, right), source, line)


# Reads dictionaries in tables and lines: MUSE, TSV, CSV, PanLex, kaikki's JSON; finds which form a file has.

HEADER = "header"
COMMENT = "comment at the beginning"
_COMMENT = re.compile(r"#(?!\w[^\t]*\t|[\t,;|])")  # not `#MeToo\t#MeToo` and `#\tnumber sign`
_DIRECTION = re.compile(r"#\s*([A-Z]{2}-[A-Z]{2}) vocabulary database")  # as dict.cc writes
LOOKED_AT = 200  # lines by which the delimiter is found
MORE = "dictionary line has more than two columns"


def _without_comments(lines: Iterator[Line]) -> tuple[list[Line], Iterator[Line]]:
    """The comments and blank lines that a file begins with, and its other lines, from a header after `#` on."""
    head: list[Line] = []
    for line in lines:
        is_header = "\t" in line.text and all(map(language_of_name, line.text.lstrip("# ").split("\t")))
        if line.fault or is_header or (line.text.strip() and not _COMMENT.match(line.text)):
            return head, chain([line], lines)
        head.append(line)
    return head, iter(())


def _count_comments(head: Sequence[Line]) -> Iterator[Skipped]:
    return (Skipped(COMMENT if line.text.strip() else BLANK) for line in head)


def _is_said_turned(head: Sequence[Line], languages: Sequence[str]) -> bool:
    """Whether comments say that the second language stands first: `# EN-DE vocabulary database` for de and en."""
    said = (found[1].lower().split("-") for line in head if (found := _DIRECTION.match(line.text)))
    return any(all(map(is_language, codes)) and [*map(check_language, codes)] == [*languages][::-1] for codes in said)


def read_muse(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of a dictionary, in the order of the file (MUSE: by frequency of the source word).

    Words are parted by any white space, as MUSE's own code does; where a line has a tab, by that alone, so that a term
    may be of several words. Punctuation around a word is taken off and counted: the words of a text have none, so that
    it would never be found.
    """
    for file in files_of(part.paths[0]):
        comments, lines = _without_comments(number_lines(file, file.path))
        yield from _count_comments(comments)
        first, second = (1, 0) if _is_said_turned(comments, languages) else (0, 1)
        for line in lines:
            words = muse_words(line.text)
            if line.fault:
                yield BadRow(file.path, line.number, line.fault)
            elif not words:
                yield Skipped(BLANK)
            elif len(words) != 2:
                yield BadRow(file.path, line.number, ONE_TERM if len(words) == 1 else MORE)
            else:
                yield from entries(languages, [words[first]], [words[second]], file.path, line.number)


def muse_words(line: str) -> list[str]:
    """The columns of a line of a MUSE dictionary: what white space parts, or tabs alone where it has one."""
    words = line.split("\t") if "\t" in line.strip() else line.split()
    if len(words) > 2 and len(by_blanks := line.strip(BLANKS).split(" ")) == 2:
        words = by_blanks  # a no-break space within a term
    return [bare for word in words if (bare := " ".join(word.split()))]


def read_csv_terms(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of two columns: those that a header calls by the languages or as a pair, else the first two.

    They stand between tabs, or in CSV, whose delimiter is found by looking. What stands in other columns, such as parts
    of speech, is counted and not read.
    """
    for file in files_of(part.paths[0]):
        comments, lines = _without_comments(number_lines(file, file.path))
        head: list[Line] = list(islice(lines, LOOKED_AT))
        delimiter = "\t"
        if part.format != "tsv_terms":
            delimiter, head = named_delimiter(head) or (find_delimiter([line for line in head if not line.fault]), head)
        yield from _entries(file.path, csv_rows(chain(head, lines), delimiter), languages, part.columns, comments)


def read_xlsx_terms(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """As read_csv_terms, of the first sheet of an Excel workbook that holds rows."""
    (path,) = part.paths
    with open_rows(path) as (rows, others):
        if others:
            yield Noted(OTHER_SHEETS, others)
        yield from _entries(path, (CsvRow(number, cells, "") for number, cells in rows), languages, part.columns)


def _entries(
    path: str,
    rows: Iterator[CsvRow],
    languages: Sequence[str],
    columns: Sequence[str] | None,
    comments: Sequence[Line] = (),
) -> Iterator[Record | Skipped | Noted]:
    """Raises DataError where it is not clear which two of several columns are the terms."""
    yield from _count_comments(comments)
    head = list(islice(rows, LOOKED_AT))
    full = [row.cells for row in head if not row.fault and any(cell.strip() for cell in row.cells)]
    places: tuple[int, int] | None = None
    for number, cells, fault, note in chain(head, rows):
        if note:
            yield Noted(note, 1)
        if fault:
            yield BadRow(path, number, fault)
            continue
        if not any(cell.strip() for cell in cells):
            yield Skipped(BLANK)
            continue
        if places is None:
            places, is_header = find_terms(path, full, languages, columns)
            if not columns and not is_header and _is_said_turned(comments, languages):
                places = places[1], places[0]
            if is_header:
                yield Skipped(HEADER)
                continue
        if len(cells) <= max(places):
            yield BadRow(path, number, ONE_TERM)
            continue
        if notes := sum(bool(cell.strip()) for place, cell in enumerate(cells) if place not in places):
            yield Noted(NOTES, notes)
        yield from entries(languages, [cells[places[0]]], [cells[places[1]]], path, number)


# Reads PanLex's snapshot in CSV: expressions of two languages that share a meaning of the same source.

_TABLES = {  # the columns that are read of each
    "langvar": ("id", "lang_code"),
    "expr": ("id", "langvar", "txt"),
    "denotation": ("meaning", "expr"),
}


def read_panlex(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of all varieties of the two languages, meaning by meaning; `line` is the number of the meaning.

    Holds the expressions of the two languages in memory, and the meanings that have any.

    Raises:
      DataError: a table or a column is missing.
    """
    files = [file for path in part.paths for file in files_of(path)]
    tables = {name: _find_table(files, name, part.paths[0]) for name in _TABLES}
    bad: list[BadRow] = []
    varieties: dict[str, int] = {}
    for number, code in _rows(tables["langvar"], "langvar", bad):
        language = written_code(code)
        for place, asked in enumerate(languages):
            if fits(language, asked):
                varieties[number] = place
    texts: dict[str, tuple[int, str]] = {}
    for number, variety, text in _rows(tables["expr"], "expr", bad):
        if variety in varieties:
            texts[number] = (varieties[variety], text)
    meanings: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for meaning, expression in _rows(tables["denotation"], "denotation", bad):
        if expression in texts:
            place, text = texts[expression]
            meanings[meaning][place].append(text)
    yield from bad
    source = tables["denotation"].path
    for meaning, both in meanings.items():
        if all(both):
            yield from entries(languages, *both, source, int(meaning) if meaning.isdecimal() else 0)
        else:
            yield Skipped(NO_TRANSLATION)


def _find_table(files: Sequence[Chunks], name: str, path: str) -> Chunks:
    found = [file for file in files if file.path.replace(":", "/").rsplit("/", 1)[-1].split(".")[0] == name]
    if len(found) != 1:
        raise DataError(
            f"{path} has {len(found) or 'no'} table called {name}.csv. Format panlex reads langvar.csv, expr.csv and "
            "denotation.csv of PanLex's snapshot, or the zip that holds them."
        )
    return found[0]


def _rows(file: Chunks, name: str, bad: list[BadRow]) -> Iterator[tuple[str, ...]]:
    lines = number_lines(file, file.path)
    first = next(lines, None)
    header = next(csv.reader([first.text]), []) if first else []
    if missing := [column for column in _TABLES[name] if column not in header]:
        raise DataError(f"{file.path} has no column '{missing[0]}'; its columns are {', '.join(header) or 'none'}.")
    places = [header.index(column) for column in _TABLES[name]]
    for line in lines:
        cells = [] if line.fault else next(csv.reader([line.text]), [])
        if len(cells) == len(header):
            yield tuple(cells[place] for place in places)
        elif line.fault or line.text.strip():
            bad.append(BadRow(file.path, line.number, line.fault or "row has not the columns of its header"))


# Reads dictionaries of Wiktionary as kaikki.org has them: JSON lines of wiktextract, a word and its translations.

NOT_A_WORD = "line is no JSON object with a word"


def read_kaikki(part: Part, languages: Sequence[str]) -> Iterator[Record | Skipped | Noted]:
    """Entries of words in either language that have translations into the other; `line` is that of the word.

    Translations stand under the word, or under its senses. Parts of speech, senses and romanisations are counted and
    not read.
    """
    for file in files_of(part.paths[0]):
        for line in number_lines(file, file.path, json_lines=True):
            if not line.fault and not line.text.strip():
                yield Skipped(BLANK)
                continue
            value, fault = ({}, line.fault) if line.fault else _parsed(line.text)
            if fault:
                yield BadRow(file.path, line.number, fault)
                continue
            code = _code(value.get("lang_code"))
            turned = not fits(code, languages[0])
            if turned and not fits(code, languages[1]):
                yield Skipped(OTHER_LANGUAGES)
                continue
            found = [_word_of(one) for one in _kaikki_translations(value) if fits(_code_of(one), languages[not turned])]
            words = [word for word in found if word]
            if notes := sum(key in value for key in ("pos", "tags", "categories", "etymology_text")):
                yield Noted(NOTES, notes)
            if words:
                first, second = (words, [value["word"]]) if turned else ([value["word"]], words)
                yield from entries(languages, first, second, file.path, line.number)
            else:
                yield Skipped(NO_TRANSLATION)


def _parsed(text: str) -> tuple[dict[str, Any], str]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}, "line is not JSON"
    is_word = isinstance(value, dict) and isinstance(value.get("word"), str)
    return (value, "") if is_word else ({}, NOT_A_WORD)


def _kaikki_translations(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    senses = value.get("senses")
    for holder in (value, *(senses if isinstance(senses, list) else ())):
        listed = holder.get("translations") if isinstance(holder, dict) else None
        yield from (one for one in (listed if isinstance(listed, list) else ()) if isinstance(one, dict))


def _code_of(translation: dict[str, Any]) -> str:
    return _code(translation.get("lang_code") or translation.get("code"))


def _word_of(translation: dict[str, Any]) -> str:
    word = translation.get("word")
    return word if isinstance(word, str) else ""


@lru_cache(maxsize=8192)
def _code(written: Any) -> str:
    return written_code(written) if isinstance(written, str) else ""


# Finds the form of a dictionary by looking at its first bytes and lines.

_JSON = re.compile(r'\{|\[\s*[\[{"]')
_TABLES_OF_BYTES = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
_AS_TABLE = "Write a word and its translation a line, with a tab between them."


def find_dictionary_form(path: str) -> DictionaryFormat:
    """The form of a dictionary, plain, packed or in a zip.

    kaikki's by JSON, PanLex by its tables, Excel by its members, else a table by tabs, by its name (.csv), or by one
    other delimiter in most lines; MUSE for two words a line.

    Raises:
        DataError: there is no file in the zip, or it is XML, Parquet or JSON of another kind.
    """
    if is_workbook(path):
        return "xlsx"
    files = list(files_of(path))
    if any(Path(file.path.rsplit(":", 1)[-1]).name == "expr.csv" for file in files):
        return "panlex"
    if not files:
        raise DataError(f"{path} holds no file of a dictionary.")
    start = next(iter(files[0]), b"")[:HEAD_BYTES]
    head = decoded(start).lstrip()
    if start.startswith(_TABLES_OF_BYTES):
        raise DataError(f"{path} is a Parquet or Arrow file, no dictionary. {_AS_TABLE}")
    if head.startswith("<"):
        raise DataError(f"{path} is XML: docs/how-to/data.md converts TBX, TEI and Apertium's dix. {_AS_TABLE}")
    if _JSON.match(head):
        if any(not _parsed(line.text)[1] for line in _first_lines(files[0])):
            return "kaikki"
        raise DataError(f"{path} is JSON, but no dictionary as kaikki.org has them. {_AS_TABLE}")
    if table_suffix(files[0].path) == ".csv":
        return "csv"
    full = [line.text for line in _without_comments(_first_lines(files[0]))[1] if line.text.strip()]
    if sum("\t" in line for line in full) * 2 > len(full):
        is_header = any(map(language_of_name, full[0].lstrip("# ").split("\t")))
        return "tsv" if is_header or any(len(line.split()) != 2 for line in full) else "muse"
    return "csv" if max(sum(_has_terms(line, one) for line in full) for one in DELIMITERS) * 2 > len(full) else "muse"


def _first_lines(file: Chunks) -> Iterator[Line]:
    return islice(number_lines(file, file.path, json_lines=True), LOOKED_AT)


def _has_terms(line: str, delimiter: str) -> bool:
    """Whether a line is two terms or more between delimiters."""
    return delimiter in line and all(map(str.strip, line.split(delimiter)))
