"""The verb `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xalign_ray.verbs.arguments import Out, RunFolder, Trust, as_path
from xalign_ray.work.local_paths import quoted
from xalign_ray.work.status_line import say_next


def export(
    run: RunFolder,
    step: Annotated[int | None, typer.Option(help="of a kept checkpoint; 0 is the run's untrained control")] = None,
    out: Out = None,
    trust: Trust = False,
) -> Path:
    """Export a run's newest checkpoint again, or the weights of another step.

    Returns:
        The folder: `<run>/export` if none is named, for a step `<run>/export_step_<step>`.

    Raises:
        ConfigError: there is no such run.
        DataError: there is no such checkpoint, or the run's folder is damaged.
        LockError: another process writes the folder, or has taken it over.
    """
    from xalign_ray import exports

    folder = exports.export(as_path(run), step, as_path(out), trust)
    say_next(f"xalign evaluate {quoted(folder)} --task tatoeba --data FOLDER")
    return folder
