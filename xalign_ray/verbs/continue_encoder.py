"""The Python API of `continue`: trains an encoder on the user's data and compares it with its base."""

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
from xalign_ray.work.run_folder import RUNS, RunFolder
from xalign_ray.work.status_line import say, say_next
from xalign_ray.work.storage import is_folder_name, is_url, quoted

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
    lose_at_most: float | None = None,
    pieces: int | None = None,
    replay: float | None = None,
    lora: int | None = None,
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
    """Continues an encoder on your pairs, dictionary or text, and shows its gains.

    Trains, exports, compares with the base, and reports. A finished run is only opened. Data are prepared on Ray, also
    with `local`.

    Args:
        model: folder or hub id (ID@REVISION), or a YAML file of these options.
        pairs: sentence pairs: CSV, TSV, JSON lines, Parquet, TMX, two plain files.
        test: pairs to score; a tenth of the pairs by default.
        dev: pairs that choose the checkpoint; 5 % of the pairs by default.
        keep_best: export the checkpoint that is best on dev, not the last.
        method: one of `xalign_ray.continuing.five_lines.METHODS`; data and encoder choose if empty.
        teacher: folder or hub id, for distill and add: the encoder learns its vectors; with add its own by default.
        dictionary: files with a word and its translation a line, for align.
        text: text for masked LM, such as "de.txt" or "de=FILE".
        keep: what must not get worse: pairs, text, scored pairs (STS), folders in BEIR's layout.
        margin: points; where the interval excludes a loss of them, a language is `kept`. 1 by default.
        lose_at_most: points that may be lost of what is kept: of mixtures with the base, the one that gains most
            within the bound is exported.
        pieces: how many subwords the vocabulary gains, of languages that take over twice English's pieces a word.
        replay: share of rows that are text; 0.1 with `text` and a head.
        lora: rank of adapters that are trained in place of all weights, and merged into the export.
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
        plan: return the resources that it needs, and train nothing.
        show_recipe: return the full recipe's file, and train nothing.
        local: train in this process without Ray.
        trust: load checkpoint files that can run code: only those of people you trust.
        rehash: read all inputs again instead of trusting cached hashes.

    Returns:
        The run, whose folder holds export/, report/index.html and comparison.json; with `plan` the resources that it
        needs, with `show_recipe` the recipe's file, as text.

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
    say(f"Continuing {lines.model}: looking at the encoder and the data.")
    with options_named():
        from xalign_ray.continuing import story  # takes seconds

        if not plan and not show_recipe:
            return Run(story.continue_lines(lines, local, trust, rehash))
        continuation = story.resolve(lines, opens=show_recipe)
        if show_recipe:
            return continuation.as_yaml.rstrip("\n")
        return story.describe_needs(continuation)


def show_end(run: Run) -> str:
    """The comparison and the paths of a run, for the command line."""
    from xalign_ray.continuing.compared_run import closing_lines

    export = quoted(RunFolder(run.path).export)
    say_next(
        f"xalign evaluate {export} --task retrieval --data PAIRS",
        f"xalign tune {export} --task TASK --data FOLDER",
    )
    return closing_lines(run.path)


def holds_bound(run: Run) -> bool:
    """Whether the export of a run is shown to hold the bound that was asked for; true where none was."""
    from xalign_ray.results.continued import read_continued

    comparison = read_continued(run.path)
    return not comparison or not comparison.bound or comparison.bound["holds"]


def five_lines_of(arguments: Mapping[str, Any]) -> FiveLines:
    """The lines behind the arguments of `continue_encoder`; ConfigError if a value has no meaning."""
    options = {key: value for key, value in arguments.items() if key in FiveLines.model_fields and key != "model"}
    for key in ("languages", "columns"):
        options[key] = codes(arguments[key])
    for key in FILES:
        paths = arguments[key]
        options[key] = [filled(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
    options["teacher"] = as_model(arguments["teacher"]) if arguments["teacher"] is not None else None
    options["output"] = str(as_path(arguments["out"])) if arguments["out"] else None
    options["set"] = arguments["settings"]
    return read_five_lines(as_model(arguments["model"]), options)


def check_submitted(arguments: Mapping[str, Any]) -> None:
    """Checks the arguments of a job; ConfigError if a value has no meaning, or a path is relative."""
    lines = five_lines_of(arguments)
    check_lasting("--out", lines.output or RUNS, in_job=True)
    for key in FILES:
        for written in getattr(lines, key):
            path = written.partition("=")[2] or written
            if not is_url(path) and not Path(path).is_absolute():
                raise ConfigError(
                    f"--{key} {written}: the cluster's nodes do not see it. Give an absolute path that they all see, "
                    "or a URL."
                )
