"""Damages files one at a time, and keeps the count of what verbs did with them: for walks over everything we write.

A verb then ends with the results of the undamaged files, or with a sentence that names the damaged file or its folder;
never with a traceback, never with other results.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.exits import exit_code
from xalign_ray.work.run_folder import PREDICTIONS

NOISE = random.Random(7).randbytes(300)
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda _: None,
    "emptied": lambda _: b"",
    "halved": lambda content: content[: len(content) // 2],
    "emptied to {}": lambda _: b"{}",
    "noise": lambda _: NOISE,
}
FEW = ("halved", "emptied to {}")  # not a file of its form, and one without what it must have


def files_of(folder: Path) -> list[Path]:
    """All of them, links left out."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def each_damaged(files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Files in damaged states, one at a time. The first of a kind is in all states; others, which the same code reads,
    are in those of FEW."""
    seen: set[str] = set()
    for file in files:
        kind = file.suffix if file.suffix == ".parquet" or file.parent.name == PREDICTIONS else file.name
        for name in damaged(file, FEW if kind in seen else tuple(DAMAGES)):
            yield file, name
        seen.add(kind)


def damaged(path: Path, names: Sequence[str] = tuple(DAMAGES)) -> Iterator[str]:
    """The file in damaged states, one after the other; it is as it was when the iterator ends."""
    content = path.read_bytes()
    try:
        for name in names:
            path.unlink(missing_ok=True)
            if (left := DAMAGES[name](content)) is not None:
                path.write_bytes(left)
            yield name
    finally:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@dataclass
class Walk:
    """Counts what verbs did with damaged files, and keeps what they should not have done."""

    capsys: pytest.CaptureFixture[str]
    counted: Counter[str]
    wrong: list[str]

    def call(self, file: Path, damage: str, verb: str, do: Callable[[], Any], right: Any) -> None:
        """A verb on a damaged file: its right result, or a sentence that names the file (or the folder it is of)."""
        result: list[Any] = []
        try:
            code = exit_code(lambda: result.append(do()))
        except Exception as error:  # what a user would see as a traceback
            self.wrong.append(f"{verb}, {file.name} {damage}: {type(error).__name__}: {error}")
            return
        said = self.capsys.readouterr().err
        self.counted["right" if code == 0 else "told"] += 1
        if code == 0 and result != [right]:
            self.wrong.append(f"{verb}, {file.name} {damage}: other results")
        if code != 0 and (code not in (1, 2) or "Traceback" in said or not _names(said, file)):
            self.wrong.append(f"{verb}, {file.name} {damage}: {code} {said}")


def _names(said: str, file: Path) -> bool:
    return any(str(path) in said for path in (file, file.parent, file.parent.parent))
