"""The verb `continue`: an encoder and data in; trained, exported, compared with itself before, and reported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xalign_ray.config.explain import check_folder
from xalign_ray.continuing.five_lines import FiveLines, options_named, read_five_lines
from xalign_ray.errors import ConfigError
from xalign_ray.verbs.arguments import PathLike, as_model, as_path, codes, filled
from xalign_ray.verbs.opened_run import Run
from xalign_ray.work.mirror import check_lasting
from xalign_ray.work.run_folder import RUNS
from xalign_ray.work.status_line import say, say_next
from xalign_ray.work.storage import is_folder_name, is_url

FILES = ("pairs", "test", "dev", "dictionary", "text", "keep")
Files = PathLike | Sequence[PathLike]


def continue_encoder(
    model: PathLike,
    pairs: Files = (),
    test: Files = (),
    dev: Files = (),
    keep_best: bool | None = None,
    method: str = "",
    teacher: PathLike | None = None,
    dictionary: Files = (),
    text: Files = (),
    keep: Files = (),
    margin: float | None = None,
    replay: float | None = None,
    languages: Sequence[str] | str | None = "",
    columns: Sequence[str] | str | None = "",
    where: str = "",
    allow_unknown: float | None = None,
    out: PathLike | None = None,
    steps: int | None = None,
    hours: float | None = None,
    budget: float | None = None,
    price: Sequence[str] = (),
    workers: int | None = None,
    settings: Sequence[str] = (),
    plan: bool = False,
    show_recipe: bool = False,
    local: bool = False,
    trust: bool = False,
    rehash: bool = False,
) -> Run | str:
    """Continues an encoder on your pairs, dictionary or text, and shows what it gained.

    Trains, exports, compares with the encoder that it began from, and reports. A finished run is only opened. Data are
    prepared on Ray, also with `local`.

    Args:
        model: folder or hub id (ID@REVISION), or a YAML file of these options.
        pairs: sentence pairs: CSV, TSV, JSON lines, Parquet, TMX, two plain files.
        test: pairs to score; a tenth of the pairs by default.
        dev: pairs that choose the checkpoint; 5 % of the pairs by default.
        keep_best: export the checkpoint that is best on dev, not the last.
        method: a name of `xalign_ray.continuing.five_lines.METHODS`; chosen by data and encoder if empty.
        teacher: folder or hub id, for distill: the encoder learns its vectors.
        dictionary: files with a word and its translation a line, for align.
        text: text for masked LM, such as "de.txt" or "de=FILE".
        keep: pairs or text in languages that must not get worse.
        margin: a loss that is surely smaller than these points is `kept`; 1 by default.
        replay: share of rows that are text; 0.1 with `text` and a head.
        languages: codes of the two sides of the pairs: "en,de".
        columns: names of the two columns of the pairs.
        where: condition on rows of tables: "label=1", "score>=0.8", or "all".
        allow_unknown: share of a language's pieces that may be unknown; 0.05 by default.
        out: the run folder; below `runs` if not given.
        steps: optimizer steps; by default one pass.
        hours: train so long, by the plan's estimate.
        budget: train for so much money, with `price`.
        price: `DEVICE=NUMBER` each, of an hour of a device, such as "H100=2.5".
        workers: training processes; 1 by default.
        settings: `key=value` each, overrides of keys of the recipe.
        plan: say what it will need, and train nothing.
        show_recipe: give the full recipe's file, and train nothing.
        local: train in this process without Ray.
        trust: load checkpoint files that can run code: only those of people you trust.
        rehash: read all inputs again instead of trusting cached hashes.

    Returns:
        The run, whose folder holds export/, report/index.html and comparison.json; with `plan` what it will need, with
        `show_recipe` the recipe's file, as text.

    Raises:
        ConfigError: model, data and method do not fit together.
        DataError: input is missing, damaged, or worse than the recipe allows.
        TrainingError: training cannot go on.
        LockError: another process writes the folder, or has taken it over.
        KeyboardInterrupt: Ctrl-C, after the step in progress is saved; the same call resumes.
    """
    lines = five_lines_of(locals())
    if lines.teacher and is_folder_name(lines.teacher):
        check_folder(Path(lines.teacher))
    with options_named():
        if not plan and not show_recipe:
            return Run(continue_lines(lines, local, trust, rehash))
        from xalign_ray.continuing.recipe import resolve
        from xalign_ray.verbs.recipes import plan as plan_recipe

        found = resolve(lines)
        if show_recipe:
            return found.as_yaml.rstrip("\n")
        return "\n".join([*found.notes, "", plan_recipe(found.recipe)])


def continue_lines(lines: FiveLines, local: bool = False, trust: bool = False, rehash: bool = False) -> Path:
    """The story of `continue`: from a few lines to a run that is compared and reported; a finished one as it is."""
    say(f"Continuing {lines.model}: looking at the encoder and the data.")
    from xalign_ray import pretraining  # from here on imports take seconds
    from xalign_ray.continuing.recipe import resolve

    # Look at the encoder and the files, choose the method, write the recipe.
    found = resolve(lines)
    for note in found.notes:
        say(note)

    # Pretrain. Shards are made on Ray, also for a training without it.
    if local:
        pretraining.prepare(found.recipe, rehash=rehash)
    run = pretraining.pretrain(found.recipe, found.out, local, trust, rehash and not local)

    # Compare the encoder with its base, and report.
    from xalign_ray.continuing.comparison import compare_run
    from xalign_ray.evaluation import publish_scores
    from xalign_ray.results.page import report

    if os.environ.get("RANK", "0") == "0" and compare_run(found, run):
        publish_scores(run)
        report([str(run)])
    return run


def show_end(run: Run) -> str:
    """What the command line shows: the comparison and where things are."""
    from xalign_ray.continuing.comparison import closing_lines, next_commands

    say_next(*next_commands(run.path))
    return closing_lines(run.path)


def five_lines_of(given: Mapping[str, Any]) -> FiveLines:
    """The lines that the arguments of `continue_encoder` are.

    Raises:
        ConfigError: they cannot mean anything.
    """
    options = {key: value for key, value in given.items() if key in FiveLines.model_fields and key != "model"}
    options |= {key: codes(given[key]) for key in ("languages", "columns")}
    options |= {key: _names(given[key]) for key in FILES}
    options |= {"teacher": as_model(given["teacher"]) if given["teacher"] is not None else None}
    options |= {"output": str(as_path(given["out"])) if given["out"] else None, "set": given["settings"]}
    return read_five_lines(as_model(given["model"]), options)


def check_submitted(given: Mapping[str, Any]) -> None:
    """Refuses what cannot run in a job, before a machine is asked: mistakes, and files that the nodes cannot see.

    Raises:
        ConfigError: a value cannot mean anything, or a path is relative.
    """
    lines = five_lines_of(given)
    check_lasting("--out", lines.output or RUNS, in_job=True)
    for key in FILES:
        for path in getattr(lines, key):
            name = path.partition("=")[2] or path
            if not is_url(name) and not Path(name).is_absolute():
                raise ConfigError(
                    f"--{key} {path}: the cluster's nodes do not see it. Give an absolute path that they all see, or a "
                    "URL."
                )


def _names(paths: Files) -> list[str]:
    return [filled(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
