"""The verb `continue`: an encoder and data in; trained, exported, compared with itself before, and reported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from xalign_ray.config.explain import check_folder
from xalign_ray.continuing.five_lines import METHODS, FiveLines, options_named, read_five_lines
from xalign_ray.errors import ConfigError
from xalign_ray.verbs.arguments import Out, PathLike, Rehash, Trust, as_model, as_path, codes, filled, one_of, set_keys
from xalign_ray.verbs.command import keep_memory
from xalign_ray.verbs.opened_run import Run
from xalign_ray.work.mirror import check_lasting
from xalign_ray.work.run_folder import RUNS
from xalign_ray.work.status_line import say, say_next
from xalign_ray.work.storage import is_folder_name, is_url

FILES = ("pairs", "test", "dev", "dictionary", "text", "keep")
Files = PathLike | Sequence[PathLike]


def _files(help_text: str, metavar: str = "FILE") -> Any:
    return typer.Option(metavar=metavar, help=help_text)


def continue_encoder(
    model: Annotated[
        PathLike,
        str,
        typer.Argument(metavar="MODEL|FILE.yaml", help="folder or hub id (ID@REVISION), or these options as YAML"),
    ],
    pairs: Annotated[
        Files, list[str], _files("sentence pairs: CSV, TSV, JSON lines, Parquet, TMX, two plain files")
    ] = (),
    test: Annotated[Files, list[str], _files("pairs to score; a tenth of the pairs by default")] = (),
    dev: Annotated[Files, list[str], _files("pairs that choose the checkpoint; 5 % of the pairs by default")] = (),
    keep_best: Annotated[
        bool | None,
        typer.Option("--keep-best/--no-keep-best", help="export the checkpoint that is best on dev, not the last"),
    ] = None,
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"{', '.join(METHODS)}; auto by default", autocompletion=one_of(METHODS)),
    ] = "",
    teacher: Annotated[
        PathLike | None, str, typer.Option(metavar="MODEL", help="folder or hub id, for distill: learns its vectors")
    ] = None,
    dictionary: Annotated[Files, list[str], _files("a word and its translation a line, for align")] = (),
    text: Annotated[Files, list[str], _files("text for masked LM, such as de.txt or de=FILE")] = (),
    keep: Annotated[Files, list[str], _files("pairs or text in languages that must not get worse")] = (),
    margin: Annotated[
        float | None, typer.Option(metavar="POINTS", help="a loss that is surely smaller is `kept`; 1 by default")
    ] = None,
    replay: Annotated[
        float | None, typer.Option(metavar="SHARE", help="of rows that are text; 0.1 with --text and a head")
    ] = None,
    languages: Annotated[Sequence[str] | str | None, str, _files("of the two sides of the pairs: en,de", "CODES")] = "",
    columns: Annotated[Sequence[str] | str | None, str, _files("of the two columns of the pairs", "NAMES")] = "",
    where: Annotated[str, typer.Option(metavar="CONDITION", help="rows of tables: label=1, 'score>=0.8', or all")] = "",
    allow_unknown: Annotated[
        float | None, typer.Option(metavar="SHARE", help="of a language's pieces that may be unknown; 0.05")
    ] = None,
    out: Out = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="optimizer steps; by default one pass")] = None,
    hours: Annotated[float | None, typer.Option(metavar="H", help="train so long, by the plan's estimate")] = None,
    budget: Annotated[float | None, typer.Option(metavar="MONEY", help="train for so much, with --price")] = None,
    price: Annotated[
        Sequence[str],
        list[str],
        typer.Option(metavar="DEVICE=NUMBER", help="of an hour of a device, such as H100=2.5"),
    ] = (),
    workers: Annotated[int | None, typer.Option(metavar="N", help="training processes; 1 by default")] = None,
    settings: Annotated[Sequence[str], list[str], set_keys("override a key of the recipe")] = (),
    plan: Annotated[bool, typer.Option("--plan", help="say what it will need, and exit")] = False,
    show_recipe: Annotated[bool, typer.Option("--show-recipe", help="print the full recipe's file, and exit")] = False,
    local: Annotated[bool, typer.Option("--no-ray", help="train in this process")] = False,
    trust: Trust = False,
    rehash: Rehash = False,
) -> Run | str:
    """Continue an encoder on your pairs, dictionary or text, and show what it gained.

    Trains, exports, compares with the encoder that it began from, and reports. A finished run is only opened. Data are
    prepared on Ray, also with `local`.

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
    if local:
        keep_memory()
    with options_named():
        if not show_recipe and not plan:
            return Run(continue_lines(lines, local, trust, rehash))
        from xalign_ray.continuing.recipe import resolve
        from xalign_ray.verbs.recipes import plan as plan_recipe

        found = resolve(lines)
        if show_recipe:
            return found.as_yaml.rstrip("\n")
        return "\n".join([*found.notes, "", plan_recipe(found.recipe)])


def show_end(result: Run | str) -> str | None:
    """What the command line shows: the comparison and where things are; of the ranks without Ray only the first."""
    if isinstance(result, str):
        return result
    if os.environ.get("RANK", "0") != "0":
        return None
    from xalign_ray.continuing.comparison import closing_lines, next_commands

    say_next(*next_commands(result.path))
    return closing_lines(result.path)


def continue_lines(lines: FiveLines, local: bool = False, trust: bool = False, rehash: bool = False) -> Path:
    """The folder of the run of a few lines; a finished one as it is."""
    say(f"Continuing {lines.model}: looking at the encoder and the data.")
    from xalign_ray import pretraining  # from here on imports take seconds
    from xalign_ray.continuing.recipe import resolve

    found = resolve(lines)
    for note in found.notes:
        say(note)
    if local:
        pretraining.prepare(found.recipe, rehash=rehash)
    run = pretraining.pretrain(found.recipe, found.out, local, trust, rehash and not local)
    from xalign_ray.continuing.comparison import close

    close(found, run)
    return run


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
