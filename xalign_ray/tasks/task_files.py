"""Files of every task: how they are found, which language a name means, and tables of Hugging Face data sets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import langcodes
from huggingface_hub.constants import REPOCARD_NAME

from xalign_ray.config.language_codes import check_language
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources import open as opening
from xalign_ray.sources.columnar import open_arrow, open_parquet
from xalign_ray.sources.hub import SPLITS, config_names, data_files, saved_files, saved_splits
from xalign_ray.sources.language_id import language_of_name
from xalign_ray.sources.open import CR, NOT_UTF8, NUL, OVER_LONG, read_as

LANGUAGE = r"(?P<language>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)"  # a part of the patterns of many tasks
SPLIT = r"(?P<split>train|dev|test)"
MAX_NAMED = 5  # files that a message names
_CONVERT = "convert the file to UTF-8 with LF line ends"
_HINTS = {NOT_UTF8: _CONVERT, NUL: _CONVERT, CR: _CONVERT, OVER_LONG: "this is no file of a task's lines"}
_SPLITS = {"train": "train", "dev": "dev", "val": "dev", "test": "test", "": "test"}


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
            raise DataError(f"{path}, line {number}: {fault}{read_as(str(path), number, fault)}; {_HINTS[fault]}.")
        lines.append(text)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def name_language(code: str, path: Path) -> str:
    """The language that a code in a file's name means, in canonical form: `deu` is `de`; DataError if it means none."""
    try:
        return check_language(code)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from None


def find_split_files(
    folders: Sequence[Path],
    patterns: Sequence[re.Pattern[str]],
    what: str,
    examples: Sequence[str],
    languages_of: Callable[[str, Path], Collection[str]],
) -> dict[str, dict[str, Path]]:
    """The files whose names have a split and a language, by split, then language. Contents are not read.

    Args:
        folders: count as one.
        patterns: of whole names with groups `split` (train, dev or val, test; empty for sets that are for testing only)
            and `language`; a pattern with a slash is of folder and file.
        what: the files in one word, for messages, such as "XNLI".
        examples: names of such files, for messages.
        languages_of: the languages that a name's `language` means.

    Raises:
        DataError: a folder is missing, there is nothing in any (what there is instead is named), or two files are the
            same split of one language.
    """
    found: dict[str, dict[str, Path]] = {"train": {}, "dev": {}, "test": {}}
    depths = sorted({pattern.pattern.count("/") for pattern in patterns})
    for folder in folders:
        if not folder.is_dir():
            raise DataError(
                f"{folder} is not a folder; give the folder of {what} files such as {examples[0]}, or of Hugging Face "
                f"data sets. {DOWNLOAD}"
            )
        for language, split, path in find_tables(folder):
            if (known := found[split].setdefault(language, path)) != path:
                raise DataError(f"{path} and {known} are both {split} of {language}; keep one.")
        for path in sorted(path for depth in depths for path in folder.glob("/".join("*" * (depth + 1)))):
            name = path.relative_to(folder).as_posix()
            match = next((match for pattern in patterns if (match := pattern.fullmatch(name))), None)
            if match is None or path.is_dir():  # yo/train is a file of WikiAnn's, and a folder of a saved data set
                continue
            split = _SPLITS[match["split"]]
            for language in languages_of(match["language"], path):
                if not (known := found[split].setdefault(language, path)).samefile(path):  # a README may name it too
                    raise DataError(f"{path} and {known} are both {split} of {language}; keep one.")
    if not any(found.values()):
        named = " or ".join(filter(None, (", ".join(examples[:-1]), examples[-1])))
        where = ", ".join(map(str, folders))
        raise DataError(f"{where}: no {what} files; they are called {named}.{name_others(found, folders)}")
    return found


def name_others(found: Mapping[str, Mapping[str, Path]], folders: Sequence[Path]) -> str:
    """A sentence on the files that have no name of the task, behind a blank; empty if there are none."""
    taken = {path for split in found.values() for path in split.values()}
    there = {path for folder in folders for shape in ("*", "*/*") for path in folder.glob(shape) if path.is_file()}
    others = sorted(str(path) for path in there - taken if not path.name.startswith("."))
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
        with open_parquet(str(path)) as file:
            table, schema = file.read().to_pylist(), file.schema_arrow
    else:
        with open_arrow(str(path)) as (schema, batches):
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
        return [_named(one, names) for one in value]
    return names[value] if names and isinstance(value, int) and 0 <= value < len(names) else value


def column_in(path: Path, rows: Sequence[dict[str, Any]], wanted: Sequence[str]) -> str:
    """The first of some columns that is there.

    Raises:
        DataError: none is; names those that there are.
    """
    there = list(rows[0]) if rows else []
    found = next((name for name in wanted if name in there), "")
    if not found:
        raise DataError(f"{path} has no column {' or '.join(wanted)}; it has {', '.join(there) or 'no rows'}.")
    for number, row in enumerate(rows, 1):
        if row[found] is None:
            raise DataError(f"{path}, row {number}: {found} is null.")
    return found
