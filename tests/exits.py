"""The exit code that the command line gives to work of this process."""

from __future__ import annotations

from collections.abc import Callable

from xalign_ray.cli import exit_codes


def exit_code(work: Callable[[], object]) -> int:
    """What the process would end with: 0 where the work comes to its end."""
    try:
        with exit_codes():
            work()
    except SystemExit as left:
        return int(left.code or 0)
    return 0
