"""The end of `xalign continue`: the comparison with the base, the report, the lines that are printed."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xalign_ray.config.saved import open_saved
from xalign_ray.continuing.comparison import KeptText, compare_with_base, write_comparison
from xalign_ray.continuing.files import as_sentences, read_tests, read_text
from xalign_ray.continuing.recipe import ROOT, Continuation
from xalign_ray.evaluation import publish_scores
from xalign_ray.planning.estimate import read_prices
from xalign_ray.results.continued import comparison_text, read_continued
from xalign_ray.results.page import PAGE, report
from xalign_ray.results.run import RETRIEVAL, read_log
from xalign_ray.track.follower import open_command, resolve_uri, runs_page
from xalign_ray.work.artifacts import finished_run
from xalign_ray.work.job import open_job
from xalign_ray.work.local_paths import quoted, shown_path
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.run_folder import CARD, RunFolder
from xalign_ray.work.status_line import say


def closing_lines(run: Path, width: int | None = None) -> str:
    """The table, where things are, and what to do next."""
    comparison = read_continued(run)
    assert comparison is not None, "a finished run has been compared"
    folder = RunFolder(run)
    paths = {
        "encoder": shown_path(folder.export),
        "card": shown_path(folder.export / CARD),
        "report": shown_path(folder.report / PAGE),
        **_mlflow(run),
    }
    table = comparison_text(comparison, width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else 80))
    return "\n".join([table, "", *(f"{name:<8} {path}" for name, path in paths.items())])


def next_commands(run: Path) -> Sequence[str]:
    """What a user may do with the encoder."""
    export = quoted(RunFolder(run).export)
    return (
        f"xalign evaluate {export} --task retrieval --data PAIRS",
        f"xalign tune {export} --task TASK --data FOLDER",
    )


def close(found: Continuation, run: Path) -> None:
    """Compares a run with its base and reports it, unless that is done."""
    if os.environ.get("RANK", "0") == "0" and read_continued(run) is None:
        _compare(found, run)
        publish_scores(run)
        report([str(run)])


def _compare(found: Continuation, run: Path) -> None:
    say(f"Comparing {shown_path(run)} with {found.encoder.name} on the test.")
    root = Path(ROOT)
    comparison = compare_with_base(
        found.encoder.name,
        str(RunFolder(run).export),
        read_tests(run),
        as_sentences(found.kept, root),
        [KeptText(one.language, read_text(one, root), Path(one.paths[0]).name) for one in found.kept_text],
        found.recipe.config.languages,
        cache=Path(found.recipe.config.output) / "vectors",
    )
    with open_job(run, "comparison"):
        write_comparison(RunFolder(run).comparison, comparison, _facts(found, run))


def _facts(found: Continuation, run: Path) -> Mapping[str, Any]:
    config, log = found.recipe.config, read_log(RunFolder(run).events)
    scored = log.points.loc[(log.points.series == RETRIEVAL) & (log.points.language != "")].sort_values("step")
    prices = list(read_prices(found.lines.price).values())
    return {
        "base": found.encoder.name,
        "run": run.name,
        "steps": (finished_run(run) or {}).get("steps", config.train.max_steps),
        "seconds": log.seconds,
        "device_hours": log.seconds * config.parallel.workers / 3600,
        "price": prices[0] if len(prices) == 1 else None,
        "methods": [found.tree["extends"].removeprefix("continue/")],
        "during": {language: own.value.tolist() for language, own in scored.groupby("language", sort=False)},
    }


def _mlflow(run: Path) -> dict[str, str]:
    config = open_saved(run)[0].config
    if config.track.mlflow == "off":
        return {}
    uri = resolve_uri(config.track.mlflow, local_folder(config.output))
    command, _, page = open_command(uri, runs_page(uri, config.track.experiment)).partition(", then ")
    return {"MLflow": command, **({"": page} if page else {})}
