"""Reads a study's folder: its cells, and the choices that were made on development scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import read_json
from xalign_ray.errors import DataError

STUDY, CHOICES = "study.json", "choices.json"
HINT = "Give the `xalign study` or `xalign tune` that made it again: it writes it anew and repeats no finished cell."
_PLAIN = "english"
_CELL = frozenset({"name", "kind", "label", "folder", "state"})


@dataclass(frozen=True, eq=False)
class Study:
    """A declared grid and how far it is.

    Attributes:
        name, notes: as declared.
        baseline: label of the column that the others are compared with.
        labels: of the columns, in their order.
        cells: as study.json has them.
        choices: the candidates of each search and the one that was chosen.
    """

    name: str
    notes: str
    baseline: str | None
    labels: tuple[str, ...]
    cells: tuple[Mapping[str, Any], ...]
    choices: tuple[Mapping[str, Any], ...]

    def counts(self, cell: Mapping[str, Any]) -> bool:
        """Whether a cell's scores are shown: it has ended, and no other setting was chosen over its own."""
        return cell["state"] == "finished" and cell["name"] not in tried(self.choices) - kept(self.choices).keys()


def read_study(folder: Path) -> Study:
    """The study of a folder.

    Raises:
        DataError: study.json or choices.json is missing or damaged.
    """
    record = read_json(folder / STUDY, HINT, "name", "baseline", "labels", "cells")
    cells = tuple(record["cells"])
    if not all(isinstance(cell, dict) and cell.keys() >= _CELL for cell in cells):
        raise DataError(f"{folder / STUDY} is damaged: a cell lacks one of {', '.join(sorted(_CELL))}. {HINT}")
    name, notes, baseline = record["name"], record.get("notes") or "", record["baseline"]
    return Study(name, notes, baseline, tuple(record["labels"]), cells, read_choices(folder))


def read_choices(folder: Path) -> tuple[Mapping[str, Any], ...]:
    """The choices of a study's folder.

    Raises:
        DataError: the file is missing or damaged.
    """
    choices = read_json(folder / CHOICES, HINT)
    try:
        _ = kept(choices), tried(choices)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise DataError(f"{folder / CHOICES} is damaged: it holds no choices ({error!r}). {HINT}") from None
    return tuple(choices)


def tried(choices: Iterable[Mapping[str, Any]]) -> set[str]:
    """The cells that competed."""
    return {name for choice in choices for candidate in choice["candidates"] for name in candidate["development"]}


def kept(choices: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The kind of training of each cell that was chosen, empty where it is the plain one, by the cell's name."""
    return {
        name: "" if choice["training"] in (None, _PLAIN) else choice["training"]
        for choice in choices
        if choice["chosen"] is not None
        for name in choice["candidates"][choice["chosen"]]["development"]
    }
