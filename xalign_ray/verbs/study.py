"""The verbs `study` and `quickstart`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from xalign_ray.verbs.arguments import SCALES, Out, Rehash, StudyName, StudySettings, as_path, one_of
from xalign_ray.work.status_line import say_next

QUICKSTART = "quickstart"


def study(
    name: StudyName,
    *settings: StudySettings,
    out: Out = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="show the cells, what is done, what each needs; run none")
    ] = False,
    rehash: Rehash = False,
    scale: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="tiny, small or paper, of a study that has them", autocompletion=one_of(SCALES)
        ),
    ] = "",
) -> Path | str:
    """Run the cells of a study that have not ended, side by side, and report on all.

    Runs, data and report go below `runs` if no folder is named. A study that was interrupted goes on when it is called
    again.

    Returns:
        The report's page; with `plan` the cells as text.

    Raises:
        ConfigError: it cannot mean anything.
        DataError: input is missing, damaged, or worse than a recipe allows.
        TrainingError: cells failed; everything else has been done and is on disk.
        LockError: another process writes a folder of it, or has taken it over.
    """
    from xalign_ray.studies.study import run_study, show_plan

    full = f"{os.fspath(name)}/{scale}" if scale else os.fspath(name)
    return show_plan(full, as_path(out), settings) if plan else run_study(full, as_path(out), settings, rehash)


def quickstart(out: Out = None) -> None:
    """The whole way on the embedded world: MLM against ALIGN-MLM, in a few minutes on two cores."""
    from xalign_ray.studies.study import run_study

    run_study(QUICKSTART, as_path(out))
    say_next("open the report in a browser", "xalign study demo-pos --plan", "docs/tutorials/your_languages.md")
