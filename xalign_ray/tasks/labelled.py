"""Reads tables of labelled texts or pairs of texts: columns by their header's names, or in their order."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.tasks.files import read_lines

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text with a label, or a pair of texts.

    Attributes:
        key: equal in a file and in its translation.
        texts: one or two.
        languages: of each text.
        label: a class of the task.
    """

    key: str
    texts: tuple[str, ...]
    languages: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table are read, by name; others are left alone.

    Attributes:
        texts: one or two.
        label: of the class.
        key: of what is equal in a translation's row; if there is none, that is the number of the row.
        language: of a code; rows of other languages than the file's are left out.
        header: whether the file's first line says the names; if not, it has exactly these columns in this order.
    """

    texts: tuple[str, ...]
    label: str
    key: str | None = None
    language: str | None = None
    header: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Of all that are read."""
        return tuple(name for name in (self.key, *self.texts, self.label, self.language) if name)


def read_table(
    path: Path, language: str, layouts: Sequence[Columns], classes: Sequence[str], spellings: Mapping[str, str]
) -> list[LabelledText]:
    """The rows of a table whose columns are parted by tabs.

    Args:
        path: of the file.
        language: of its texts.
        layouts: which the file may have; the first one whose header is there, else the one without a header.
        classes: what labels may be.
        spellings: other spellings of classes.

    Raises:
        DataError: no layout fits, a row is malformed or its label unknown (named by file and line), or there is no row.
    """
    lines = read_lines(path)
    columns, places, width = _lay_out(path, lines, layouts)
    examples: list[LabelledText] = []
    for number, line in enumerate(lines[columns.header :], 1 + columns.header):
        cells = line.split("\t")
        if len(cells) != width:
            hint = (
                "" if columns.header else "; XTREME's own test files lack the label: take those of the data set itself"
            )
            raise DataError(
                f"{path}, line {number}: {len(cells)} columns; {width} were expected, with {', '.join(places)}{hint}."
            )
        row = {name: cells[place] for name, place in places.items()}
        if columns.language and row[columns.language].strip() != language:
            continue
        texts = tuple(_unquote(row[name]).strip() for name in columns.texts)
        label = check_label(row[columns.label].strip(), path, number, classes, spellings)
        key = row[columns.key].strip() if columns.key else str(len(examples))
        examples.append(make_example(path, number, key, texts, language, label))
    return check_examples(path, examples, classes)


def check_label(
    label: str, path: Path, number: int, classes: Sequence[str], spellings: Mapping[str, str] | None = None
) -> str:
    """The class that a label means.

    Raises:
        DataError: it means none.
    """
    named = (spellings or {}).get(label, label)
    if named not in classes:
        raise DataError(f"{path}, line {number}: the label {label!r} is none of {', '.join(classes)}.")
    return named


def make_example(path: Path, number: int, key: str, texts: tuple[str, ...], language: str, label: str) -> LabelledText:
    """An example of texts in one language.

    Raises:
        DataError: there is no text at all; one side of a pair may be empty, as machine translations leave some.
    """
    if not any(texts):
        raise DataError(f"{path}, line {number}: there is no text.")
    return LabelledText(key, texts, (language,) * len(texts), label)


def check_examples(path: Path, examples: list[LabelledText], classes: Collection[str]) -> list[LabelledText]:
    """The examples of a file; a class that none of them has is warned about, as the mark of a file that was cut badly.

    Raises:
        DataError: there is no example, or two have the same key.
    """
    if not examples:
        raise DataError(f"{path} holds no example.")
    seen: set[str] = set()
    for example in examples:
        if example.key in seen:
            raise DataError(f"{path}: two rows have the id {example.key}.")
        seen.add(example.key)
    if missing := sorted(set(classes) - {example.label for example in examples}):
        log.warning("%s: no row has the label %s; other files may", path, ", ".join(missing))
    return examples


def _lay_out(path: Path, lines: Sequence[str], layouts: Sequence[Columns]) -> tuple[Columns, dict[str, int], int]:
    """The layout of the file, the place of each column, and how many columns there are."""
    header = lines[0].split("\t") if lines else []
    for columns in layouts:
        if not columns.header:
            return columns, {name: place for place, name in enumerate(columns.names)}, len(columns.names)
        if set(columns.names) <= set(header):
            return columns, {name: header.index(name) for name in columns.names}, len(header)
    raise DataError(f"{path}, line 1: not a header with the columns {', '.join(layouts[0].names)}.")


def _unquote(cell: str) -> str:
    """Undoes CSV's quotes, which XTREME's script puts around a text that holds quotes: `"a ""b"" c"` is `a "b" c`."""
    inner = cell[1:-1]
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else cell
