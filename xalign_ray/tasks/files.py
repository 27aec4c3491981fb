"""What the files of every task share: how lines end, which language a name means, which languages are scored."""

from __future__ import annotations

import codecs
from collections.abc import Collection
from pathlib import Path

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.text.languages import check_language


def read_lines(path: Path) -> list[str]:
    """The lines of a file without their ends. Only LF and CRLF end a line: U+2028 and its like belong to the text.

    Raises:
        DataError: the file is missing, or a line is not UTF-8 (named by its number, from 1).
    """
    if not path.is_file():
        raise DataError(f"{path} is missing; give the folder or file that holds the task's data.")
    rows = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    if not rows[-1]:
        rows.pop()
    return [_decode(row, path, number) for number, row in enumerate(rows, 1)]


def name_language(code: str, path: Path) -> str:
    """The language that a code in a file's name means, in canonical form: `deu` is `de`.

    Raises:
        DataError: it means none.
    """
    try:
        return check_language(code)
    except ConfigError as error:
        raise DataError(f"{path}: {error}") from None


def choose_languages(found: Collection[str], asked: Collection[str] | None, where: object) -> list[str]:
    """The languages to score, in alphabetical order: those asked for, or all that were found.

    Raises:
        DataError: a language was asked for that the data lacks.
        ConfigError: what was asked for is no language.
    """
    wanted = {check_language(code) for code in asked or found}
    if missing := sorted(wanted - set(found)):
        raise DataError(f"{where} has no {', '.join(missing)}; it has {', '.join(sorted(found)) or 'none'}.")
    return sorted(wanted)


def _decode(row: bytes, path: Path, number: int) -> str:
    try:
        return row.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8.") from None
