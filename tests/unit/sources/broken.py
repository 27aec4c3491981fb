"""What a reader yields before a file cannot be read on, and what its error says."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from xalign_ray.sources.open import BrokenFileError


class Broken(NamedTuple):
    """What stands in the sentence."""

    path: str
    offset: int  # of bytes, or the line where no byte is named
    size: int
    reason: str


def read_until_broken(records: Iterable[Any]) -> tuple[list[Any], Broken]:
    """What is yielded before the error, and the error's words; fails where there is none."""
    read: list[Any] = []
    with pytest.raises(BrokenFileError) as caught:
        deque(map(read.append, records), 0)  # keeps what came before the error
    found = re.fullmatch(
        r"(.+?)(?::(\d+))? cannot be read (?:from byte ([\d,]+) of ([\d,]+) )?on: (.+)\. Fetch or repair the file\.",
        str(caught.value),
    )
    assert found, str(caught.value)
    path, line, offset, size, reason = found.groups(default="0")
    return read, Broken(path, int(offset.replace(",", "")) or int(line), int(size.replace(",", "")), reason)
