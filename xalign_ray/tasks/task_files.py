"""Files of every task: how they are found, which language a name means, and tables of Hugging Face data sets."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import langcodes
from huggingface_hub.constants import REPOCARD_NAME

from xalign_ray.config.language_codes import check_language
from xalign_ray.config.sources import Dictionary
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources import open as opening
from xalign_ray.sources.columnar import open_arrow_file, open_parquet_file
from xalign_ray.sources.hub import SPLITS, config_names, data_files, saved_files, saved_splits
from xalign_ray.sources.language_id import codes_in_name, language_of_name
from xalign_ray.sources.open import CR, NOT_UTF8, NUL, OVER_LONG
from xalign_ray.sources.records import BadRow, Entry

_PARTS = {  # of the names of files
    "{split}": "(?P<split>train|dev|val|test)",
    "{flores}": "(?P<language>[a-z]{3}_[A-Z][a-z]{3})",
    "{first}": "(?P<first>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)",
    "{second}": "(?P<second>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)",
    "*": r"\w+",
    ".": r"\.",
}
_LANGUAGE = "[a-z]{2,3}(?:-[A-Za-z0-9]+)*"
MAX_NAMED = 5  # files that a message names
_CONVERT = "convert the file to UTF-8 with LF line ends"
_HINTS = {NOT_UTF8: _CONVERT, NUL: _CONVERT, CR: _CONVERT, OVER_LONG: "this is no file of a task's lines"}


def read_lines(path: Path) -> list[str]:
    """The lines of a file without their ends; empty lines at its end are none.

    Only LF and CRLF end a line: U+2028 and its like belong to the text.

    Raises:
        DataError: the file is missing, is no text (see `file_checks`), or has a line that is not UTF-8, or longer
            than 16 MB (named by its number, from 1).
    """
    if not path.is_file():
        raise DataError(f"{path} is missing; give the folder or file that holds the task's data.")
    lines = []
    for number, text, fault in opening.read_lines(str(path), json_lines=True):
        if fault:
            raise DataError(f"{path}, line {number}: {fault}; {_HINTS[fault]}.")
        lines.append(text)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def name_language(code: str, path: Path) -> str:
    """The language that a code in a file's name means, in canonical form: `deu` is `de`; DataError if it means none.

    A code of Flores has its script only where that is not the usual one: `deu_Latn` is `de`.
    """
    try:
        return without_usual_script(check_language(code)) if "_" in code else check_language(code)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from None


def name_pattern(name: str, codes: Iterable[str] = ()) -> re.Pattern[str]:
    """The regular expression of a name of files, such as `{language}/{split}.tsv`.

    Args:
        name: `{split}` is train, dev, val or test; `{language}` a code or one of `codes`; `{flores}` one such as
            deu_Latn; `{first}` and `{second}` two codes; `*` letters, digits and `_`. A slash parts folder and file.
        codes: other names of languages in files.
    """
    language = "|".join([*map(re.escape, filter(None, codes)), _LANGUAGE])
    parts = {**_PARTS, "{language}": f"(?P<language>{language})"}
    return re.compile(re.sub(r"\{\w+\}|[.*]", lambda part: parts[part[0]], name))


def split_of(name: str) -> str:
    """The split that a file's name holds: train, dev (also called val) or test; test if it holds none."""
    match = re.search("train|dev|val|test", name)
    return {"val": "dev"}.get(match[0], match[0]) if match else "test"


def example_of(name: str, split: str = "train", language: str = "en") -> str:
    """A file's name as a message shows it."""
    parts = {"split": split, "language": language, "flores": "eng_Latn", "first": language, "second": "de"}
    return re.sub(r"\{(\w+)\}", lambda part: parts[part[1]], name)


def matching_files(
    folder: Path, names: Iterable[str], codes: Iterable[str] = ()
) -> Iterator[tuple[str, dict[str, str], Path]]:
    """The files of a folder whose names fit one of `names`, sorted, with that name and its parts (`name_pattern`)."""
    patterns = {name: name_pattern(name, codes) for name in names}
    depths = {name.count("/") for name in patterns}
    for path in sorted(path for depth in depths for path in folder.glob("/".join("*" * (depth + 1)))):
        shown = path.relative_to(folder).as_posix()
        fitting = ((name, match) for name, pattern in patterns.items() if (match := pattern.fullmatch(shown)))
        name, match = next(fitting, ("", None))
        if match and not path.is_dir():  # yo/train is a file of WikiAnn's, and a folder of a saved data set
            yield name, match.groupdict(), path


def name_others(found: Mapping[str, Mapping[str, Path]], folders: Sequence[Path]) -> str:
    """A sentence on the files that have no name of the task, behind a blank; empty if there are none."""
    used = {path for split in found.values() for path in split.values()}
    there = {path for folder in folders for shape in ("*", "*/*") for path in folder.glob(shape) if path.is_file()}
    others = sorted(str(path) for path in there - used if not path.name.startswith("."))
    if not others:
        return ""
    named = ", ".join(others[:MAX_NAMED]) + (f" and {len(others) - MAX_NAMED} more" if others[MAX_NAMED:] else "")
    return f" Not read, since no name of the task fits: {len(others)} file{'s' * (len(others) > 1)}, {named}."


def choose_languages(
    found: Collection[str],
    asked: Collection[str] | None,
    where: object,
    canonical: Callable[[str], str] = check_language,
) -> list[str]:
    """The languages to score, in alphabetical order: those asked for, or all that were found.

    Raises:
        DataError: a language was asked for that the data lacks; or ConfigError: it is none.
    """
    wanted = {canonical(code) for code in asked or found}
    if missing := sorted(wanted - set(found)):
        raise DataError(f"{where} has no {', '.join(missing)}; it has {', '.join(sorted(found)) or 'none'}.")
    return sorted(wanted)


# Task files that are Hugging Face data sets: a folder or configuration a language, a Parquet or Arrow file a split.

SUFFIXES = (".parquet", ".arrow", ".jsonl", ".jsonl.gz")
DOWNLOAD = "Download one of the hub first: hf download ORG/NAME --repo-type dataset --local-dir DIR"


def find_tables(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Language, split (train, dev or test) and file of the data sets in a folder; none if there are none.

    A folder that `save_to_disk` wrote is called by its language; so are folders of these below `folder`, and the
    configurations that the README of a copy from the hub lists.

    Raises:
        DataError: a split has several files.
    """
    for saved in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        for split, path in saved_splits(saved).items():
            yield from _table(saved.name, split, saved_files(path), str(saved))
    readme = folder / REPOCARD_NAME
    if readme.is_file() and "\nconfigs:" in readme.read_text(encoding="utf-8", errors="replace").split("\n---", 1)[0]:
        for name in config_names(str(folder)):
            kind, by_split = data_files(str(folder), name)
            if kind in ("parquet", "arrow", "json", "csv"):  # csv is the kind of TSV too
                for split, files in by_split.items():
                    yield from _table(name.rsplit(".", 1)[-1], split, files, f"{folder}, configuration {name}")


def _table(name: str, split: str, files: Sequence[str], what: str) -> Iterator[tuple[str, str, Path]]:
    language = plain_language(name)
    if not language or not files or split.lower() not in SPLITS:  # no files: this part of a copy was not fetched
        return
    if len(files) > 1:
        raise DataError(f"{what}: the split {split} lies in {len(files)} files. Save it again as one (num_shards=1).")
    if files[0].endswith((*SUFFIXES, ".tsv")):  # a task reads TSV as its own
        yield language, SPLITS[split.lower()], Path(files[0])


# Codes of FLORES and WikiANN that are words in the names of columns: Bashkir, Catalan, Minangkabau, Serbo-Croatian.
_ALSO_CODES = ("bak", "cat", "min", "sh")


def plain_language(name: str) -> str:
    """The language that a name means, without the script that it usually has: `yor_Latn` is yo; empty if none."""
    return without_usual_script(check_language(name) if name in _ALSO_CODES else language_of_name(name))


def without_usual_script(code: str) -> str:
    """A language's code without the script that it usually has: `yo-Latn` is yo."""
    if code.count("-") != 1:
        return code
    language, script = code.split("-")
    usual = langcodes.Language.get(language).maximize().script
    return language if script == usual else code


def is_table(path: Path) -> bool:
    """Whether a task file is one of a data set."""
    return path.name.endswith(SUFFIXES)


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    first: dict[str, Any] | None = None
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number} is not JSON ({error}).") from None
        if not isinstance(row, dict) or row.keys() != (first or row).keys():
            raise DataError(f"{path}, line {number} is no object with the columns of the first row.")
        first = row
        yield row


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, with the names of labels in place of their numbers where the file has these.

    Raises:
        DataError: it cannot be read.
    """
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return list(_objects(path))
    if path.suffix == ".parquet":
        with open_parquet_file(str(path)) as file:
            table, schema = file.read().to_pylist(), file.schema_arrow
    else:
        with open_arrow_file(str(path)) as (schema, batches):
            table = [row for batch in batches for row in batch.to_pylist()]
    named = {name: _names(feature) for name, feature in _features(schema).items()}
    return [{key: _named(value, named.get(key)) for key, value in row.items()} for row in table]


def _features(schema: Any) -> dict[str, Any]:
    """What `datasets` wrote of the columns into the file."""
    written = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    return written.get("info", {}).get("features") or {}


def _names(feature: Any) -> list[str] | None:
    """The names of a ClassLabel, or of those in a list."""
    if not isinstance(feature, dict):
        return None
    return feature["names"] if feature.get("_type") == "ClassLabel" else _names(feature.get("feature"))


def _named(value: Any, names: Sequence[str] | None) -> Any:
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    return names[value] if names and isinstance(value, int) and 0 <= value < len(names) else value


def read_table(
    path: Path, columns: Sequence[str], optional: Sequence[str] = (), quoted: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a table with the columns that are read; others are left alone.

    A table is JSON lines, Parquet, Arrow, or text whose columns are parted by tabs (by commas in a .csv). Text without
    these names in its first line has exactly these columns, in this order.

    Args:
        path: of the table; its rows are numbered from 1.
        columns: their names; `a|b` is called either.
        optional: columns that may be missing, from the rows too.
        quoted: whether cells may be quoted as in CSV, and then hold tabs and line ends; in a .csv they always may.

    Yields:
        File and place of a row, for messages; and each value below its column as it was asked for.

    Raises:
        DataError: a column is missing, a row has other columns, or a value is null; names file and row.
    """
    in_lines = not is_table(path)
    if in_lines:
        names, rows = _split_lines(path, columns, quoted)
    else:
        table = read_rows(path)
        names = [*(table[0] if table else ())]
        rows = enumerate(([row[name] for name in names] for row in table), 1)
    places = {column: index for column in (*columns, *optional) if (index := _place(column, names)) is not None}
    if names and (lacking := [column for column in columns if column not in places]):
        where = (
            f"{path}, line 1: no header, and no row of {', '.join(map(_shown, columns))}:" if in_lines else f"{path}:"
        )
        hint = " XTREME's own test files lack the label: take those of the data set itself."
        raise DataError(
            f"{where} there is no column {_shown(lacking[0])}, only {', '.join(names)}."
            f"{hint * (in_lines and len(names) == len(columns) - 1)}"
        )
    for number, cells in rows:
        where = f"{path}, {'line' if in_lines else 'row'} {number}"
        if len(cells) != len(names):
            raise DataError(f"{where}: {len(cells)} columns; {len(names)} were expected, {', '.join(names)}.")
        row = {column: cells[index] for column, index in places.items()}
        if nulls := [names[places[column]] for column in columns if row[column] is None]:
            raise DataError(f"{where}: {nulls[0]} is null.")
        yield where, row


Cells = Iterator[tuple[int, list[str]]]


def _split_lines(path: Path, columns: Sequence[str], quoted: bool) -> tuple[list[str], Cells]:
    """The names of the columns of a table of lines, and the numbers and cells of its rows."""
    lines, is_csv = read_lines(path), path.suffix == ".csv"
    parted = enumerate((line.split("\t") for line in lines), 1)
    rows = _csv_cells(path, lines, "," if is_csv else "\t") if quoted or is_csv else parted
    number, first = next(rows, (0, []))
    if len(first) == len(columns) and any(_place(column, first) is None for column in columns):
        return [column.split("|")[0] for column in columns], chain([(number, first)], rows)
    return first, rows


def _shown(column: str) -> str:
    return " or ".join(dict.fromkeys(column.split("|")))


def _place(column: str, names: Sequence[str]) -> int | None:
    lowered = [name.lower() for name in names]
    return next((lowered.index(name) for name in column.lower().split("|") if name in lowered), None)


def _csv_cells(path: Path, lines: Sequence[str], delimiter: str) -> Cells:
    """The cells of each row, which may hold line ends, and the number of its first line."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        line = 1 + reader.line_num
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}, line {line}: a quoted field is malformed ({error}).") from None
        if cells is None:
            return
        yield line, cells


def read_entries(path: Path, left_out: Counter[str]) -> Iterator[Entry]:
    """The entries of a dictionary in any form whose name has its two languages; other rows are counted by reason."""
    from xalign_ray.sources.first_rows import find_dictionary_form
    from xalign_ray.sources.formats import read  # of every format, which tasks without a dictionary do without

    first, second = codes_in_name(str(path))
    source = Dictionary(format=find_dictionary_form(str(path)), languages=(first, second), paths=(str(path),))
    for record in read(source.format, source.paths, source.languages, left_out, kind="entries"):
        if isinstance(record, Entry):
            yield record
        elif isinstance(record, BadRow):
            left_out[record.reason] += 1
