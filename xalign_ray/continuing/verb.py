"""The verb `continue`: an encoder and data in; trained, exported, compared with itself before, and reported."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xalign_ray import pipeline
from xalign_ray.artifacts import finished_run
from xalign_ray.config.saved import open_saved
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.continuing.recipe import ROOT, Continuation, resolve
from xalign_ray.continuing.table import as_text
from xalign_ray.local_paths import quoted, shown_path
from xalign_ray.mirror import local_folder, written
from xalign_ray.report.continued import read_continued
from xalign_ray.run_folder import RunFolder
from xalign_ray.status_line import say

BY_CSLS, BY_COSINE = "retrieval_csls", "retrieval"


def plan(lines: FiveLines) -> str:
    """What was found in the data, and what the run will need; starts and writes nothing."""
    found = resolve(lines)
    return "\n".join([*found.notes, "", pipeline.plan(found.recipe)])


def show_recipe(lines: FiveLines) -> str:
    """The recipe behind the lines, as the text of a file for `xalign pretrain`."""
    return resolve(lines).as_yaml


def continue_encoder(lines: FiveLines, local: bool = False, trust: bool = False, rehash: bool = False) -> Path:
    """Trains what the lines say, exports it, and compares it with the encoder that it began from.

    Args:
        local: train in this process; the data are prepared on Ray all the same.
        trust: whether the files of a checkpoint that it resumes from may run code.
        rehash: read all input files again.

    Returns:
        The folder of the run; a finished one as it is.

    Raises:
        ConfigError: lines, data and encoder do not fit together.
        DataError: a file is missing or damaged.
        TrainingError: training cannot go on.
        LockError: another process writes the run.
    """
    say(f"Continuing {lines.model}: looking at the encoder and the data.")
    found = resolve(lines)
    for note in found.notes:
        say(note)
    if local:
        pipeline.prepare(found.recipe, rehash=rehash)
    run = pipeline.pretrain(found.recipe, found.out, local, trust, rehash and not local)
    if read_continued(run) is None:
        _compare(found, run)
        _report(run)
    return run


def closing_lines(run: Path, width: int | None = None) -> str:
    """The table, where things are, and what to do next."""
    comparison = read_continued(run)
    assert comparison is not None, "a finished run has been compared"
    folder = RunFolder(run)
    paths = {
        "encoder": shown_path(folder.export),
        "report": shown_path(folder.report / "index.html"),
        "card": shown_path(folder.export / "README.md"),
        **_mlflow(run),
    }
    table = as_text(comparison, width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else 80))
    return "\n".join([table, "", *(f"{name:<8} {path}" for name, path in paths.items())])


def next_commands(run: Path) -> Sequence[str]:
    """What a user may do with the encoder."""
    export = quoted(RunFolder(run).export)
    return (
        f"xalign evaluate {export} --task retrieval --data PAIRS",
        f"xalign tune {export} --task TASK --data FOLDER",
    )


def _compare(found: Continuation, run: Path) -> None:
    from xalign_ray.continuing.comparison import KeptText, compare, write_comparison
    from xalign_ray.continuing.files import as_sentences, read_tests, read_text

    say(f"Comparing {shown_path(run)} with {found.encoder.name} on the test.")
    root = Path(ROOT)
    comparison = compare(
        found.encoder.name,
        str(RunFolder(run).export),
        read_tests(run),
        as_sentences(found.kept, root),
        [KeptText(one.language, read_text(one, root), Path(one.paths[0]).name) for one in found.kept_text],
        found.recipe.config.languages,
        cache=Path(found.recipe.config.output) / "vectors",
    )
    with written(run, "comparison"):
        write_comparison(RunFolder(run).comparison, comparison, _facts(found, run))


def _facts(found: Continuation, run: Path) -> Mapping[str, Any]:
    from xalign_ray.report.log import read_log

    config, log = found.recipe.config, read_log(RunFolder(run).events)
    return {
        "base": found.encoder.name,
        "run": run.name,
        "steps": (finished_run(run) or {}).get("steps", config.train.max_steps),
        "seconds": log.seconds,
        "device_hours": log.seconds * config.parallel.workers / 3600,
        "methods": [found.tree["extends"].removeprefix("continue/")],
    }


def _report(run: Path) -> None:
    from xalign_ray.evaluation import publish_scores
    from xalign_ray.report.verb import report

    publish_scores(run)
    report([str(run)])


def _mlflow(run: Path) -> dict[str, str]:
    config = open_saved(run)[0].config
    if config.track.mlflow == "off":
        return {}
    from xalign_ray.track.follower import open_command, resolve_uri, runs_page

    uri = resolve_uri(config.track.mlflow, local_folder(config.output))
    return {"MLflow": open_command(uri, runs_page(uri, config.track.experiment))}
