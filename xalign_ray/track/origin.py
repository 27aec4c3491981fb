"""Where an attempt runs, as far as it can be known: git commit, user, host, versions."""

from __future__ import annotations

import getpass
import platform
import socket
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("xalign-ray", "torch", "deepspeed", "transformers", "ray")


@cache
def origin() -> dict[str, Any]:
    """Who runs what and where, as far as it can be known: a start event says it."""
    found = {"host": socket.gethostname(), "python": platform.python_version(), "versions": _versions()}
    with suppress(OSError, KeyError):  # a container's user may have no name
        found["user"] = getpass.getuser()
    if commit := _commit(Path.cwd()) or _commit(Path(__file__).parent):
        found["commit"] = commit
    return found


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _commit(folder: Path) -> str | None:
    """Of the git checkout around a folder, None outside of one or without git."""
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        return asked.stdout.strip()
    return None
