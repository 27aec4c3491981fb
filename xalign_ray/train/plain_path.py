"""Paths that DeepSpeed can read: it takes the folder of a checkpoint for a glob pattern and a regular expression."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_READ_OTHERWISE = re.compile(r"[][*?(){}+^$|\\]")  # by glob or by re


@contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """The folder, or inside the block a temporary link to it where its path has characters such as `[` or `*`."""
    folder = folder.absolute()
    if not _READ_OTHERWISE.search(str(folder)):
        yield folder
        return
    temporary = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(dir="/tmp" if _READ_OTHERWISE.search(temporary) else temporary) as place:
        link = Path(place) / "folder"
        link.symlink_to(folder)
        yield link
