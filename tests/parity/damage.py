"""Damages files one at a time, and keeps the count of what verbs did with them: for walks over everything we write.

A verb then ends with the results of the undamaged files, or with a sentence that names the damaged file or its folder;
never with a traceback, never with other results.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from xalign_ray import cli

NOISE = random.Random(7).randbytes(300)
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda _: None,
    "emptied": lambda _: b"",
    "halved": lambda content: content[: len(content) // 2],
    "emptied to {}": lambda _: b"{}",
    "noise": lambda _: NOISE,
}


def files_of(folder: Path) -> list[Path]:
    """All of them, links left out."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def damaged(path: Path) -> Iterator[str]:
    """The file in each damaged state, one after the other; it is as it was when the iterator ends."""
    content = path.read_bytes()
    try:
        for name, damage in DAMAGES.items():
            path.unlink(missing_ok=True)
            if (left := damage(content)) is not None:
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
            code = cli._run(lambda: result.append(do()))
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
