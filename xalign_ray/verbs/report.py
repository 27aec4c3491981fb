"""The verbs `report` and `word-map`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from xalign_ray.verbs.arguments import Out, OutDir, PathLike, as_model, as_path, codes
from xalign_ray.work.status_line import say, say_next


def report(
    *runs: Annotated[
        PathLike,
        str,
        typer.Argument(metavar="RUN", help="folders of runs or studies, mlflow:EXPERIMENT or mlflow:RUN_ID"),
    ],
    out: Out = None,
    by: Annotated[
        Sequence[str] | str,
        str,
        typer.Option(metavar="NAMES", help="task,language,family,size,dictionary: the first in the terminal"),
    ] = "",
    sizes: Annotated[
        PathLike | None, Path, typer.Option(metavar="FILE", help="CSV of each Wikipedia's size: language,megabytes")
    ] = None,
    baseline: Annotated[str | None, typer.Option(metavar="LABEL", help="compared with, instead of the first")] = None,
    tracking: Annotated[str, typer.Option(metavar="URI", help="where MLflow is; sqlite: runs/mlflow.db")] = "sqlite",
) -> Path:
    """One page on a run, or on several compared.

    Writes the numbers beside it as CSV, into `<run>/report` of one run, `report` of several if no folder is named.

    Returns:
        The page.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: a folder is not a run, or is damaged.
        TrackingError: MLflow does not answer, or has no such runs.
    """
    from xalign_ray.results import page

    path = page.report([as_model(run) for run in runs], as_path(out), codes(by), as_path(sizes), baseline, tracking)
    say_next("open the page in a browser")
    return path


def word_map(
    models: Annotated[
        Sequence[PathLike],
        list[str],
        typer.Argument(metavar="MODEL", help="runs, exports or hub ids: a panel each"),
    ],
    data: Annotated[PathLike, Path, typer.Option(metavar="PATH", help="a MUSE file; its first 20 pairs are drawn")],
    out: OutDir,
) -> Path:
    """Draw how near words lie to their translations (t-SNE), with mean cosine and reciprocal rank."""
    from xalign_ray.verbs.word_figure import FIGURE, draw_words

    words = draw_words([as_model(model) for model in models], as_path(data), as_path(out))
    means = words.groupby("model", sort=False)[["cosine", "reciprocal_rank"]].mean()
    for model, cosine, rank in means.itertuples():
        say(f"{model}: cosine {cosine:.3f}, reciprocal rank {rank:.3f}")
    return as_path(out) / FIGURE
