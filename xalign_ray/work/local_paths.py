"""Local paths as users write them, made absolute once: `~` is the home folder; URLs, hub ids and names stay.

Workers of Ray Train and Ray Tune run in folders of their own, where a relative path leads elsewhere.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TypeVar

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # also one that a Path took a slash from
Written = TypeVar("Written", str, Path)


def expand_home(written: str) -> str:
    """The path with the home folder in place of a leading `~`."""
    return os.path.expanduser(written)


def absolute_path(written: Written) -> Written:
    """The path of a local file or folder, absolute; a URL as it is. Links are kept."""
    text = str(written)
    return written if _URL.match(text) else type(written)(os.path.abspath(expand_home(text)))


def absolute_model(written: str) -> str:
    """A model as a user names it: a folder that exists as absolute path, a hub id or URL as it is."""
    expanded = expand_home(written)
    return absolute_path(expanded) if os.path.isdir(expanded) else expanded


def quoted(path: Path) -> str:
    """The path as a word of a command that is shown, as `shown_path` has it."""
    return shlex.quote(shown_path(path))


def is_folder_name(written: str) -> bool:
    """Whether a model's name can only be that of a local folder; what is left can be the id of a hub model."""
    organisation = written.rpartition("/")[0]
    below_folder = organisation != "" and os.path.isdir(organisation)
    return written.startswith((".", "/", "~")) or "/" in organisation or below_folder


def shown_path(path: Path) -> str:
    """The path for a message: relative inside the current folder, else absolute."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
