"""The verb `continue` of the command line: its options, and what it prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from xalign_ray.continuing.five_lines import FiveLines, read_five_lines
from xalign_ray.continuing.methods import METHODS
from xalign_ray.errors import ConfigError
from xalign_ray.verbs.arguments import Out, Rehash, Settings, Trust, as_model, codes, one_of
from xalign_ray.work.ray_job import check_lasting
from xalign_ray.work.run_folder import RUNS
from xalign_ray.work.status_line import say_next
from xalign_ray.work.storage import is_url


def _files(help_text: str, *names: str) -> Any:
    return typer.Option(*names, metavar="FILE", help=help_text)


def continue_(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE.yaml",
            callback=as_model,
            help="folder or hub id (ID@REVISION), or these options as YAML",
        ),
    ],
    pairs: Annotated[list[str], _files("sentence pairs: CSV, TSV, JSON lines, Parquet, TMX, two plain files")] = [],  # noqa: B006
    test: Annotated[list[str], _files("pairs to score; a tenth of the pairs by default")] = [],  # noqa: B006
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"{', '.join(METHODS)}; auto by default", autocompletion=one_of(METHODS)),
    ] = "",
    dictionary: Annotated[list[str], _files("a word and its translation a line, for align")] = [],  # noqa: B006
    text: Annotated[list[str], _files("text for masked LM, such as de.txt or de=FILE")] = [],  # noqa: B006
    keep: Annotated[list[str], _files("pairs or text in languages that must not get worse")] = [],  # noqa: B006
    replay: Annotated[
        float | None, typer.Option(metavar="SHARE", help="of rows that are text; 0.1 with --text and a head")
    ] = None,
    languages: Annotated[str, typer.Option(metavar="CODES", help="of the two sides of the pairs: en,de")] = "",
    columns: Annotated[str, typer.Option(metavar="NAMES", help="of the two columns of the pairs")] = "",
    out: Out = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="optimizer steps; by default one pass")] = None,
    hours: Annotated[float | None, typer.Option(metavar="H", help="train so long, by the plan's estimate")] = None,
    budget: Annotated[float | None, typer.Option(metavar="MONEY", help="train for so much, with --price")] = None,
    price: Annotated[
        list[str], typer.Option(metavar="DEVICE=NUMBER", help="of an hour of a device, such as H100=2.5")
    ] = [],  # noqa: B006
    workers: Annotated[int | None, typer.Option(metavar="N", help="training processes; 1 by default")] = None,
    settings: Settings = [],  # noqa: B006
    plan: Annotated[bool, typer.Option("--plan", help="say what it will need, and exit")] = False,
    show_recipe: Annotated[bool, typer.Option("--show-recipe", help="print the full recipe's file, and exit")] = False,
    no_ray: Annotated[bool, typer.Option("--no-ray", help="train in this process")] = False,
    trust: Trust = False,
    rehash: Rehash = False,
) -> None:
    """Continue an encoder on your pairs, dictionary or text, and show what it gained."""
    lines = five_lines_of(locals())
    from xalign_ray.continuing import verb

    if show_recipe:
        typer.echo(verb.show_recipe(lines), nl=False)
        return
    if plan:
        typer.echo(verb.plan(lines))
        return
    if no_ray:
        from xalign_ray.train.distributed import keep_freed_memory

        keep_freed_memory()  # this process ends with the training
    run = verb.continue_encoder(lines, no_ray, trust, rehash)
    if os.environ.get("RANK", "0") == "0":
        from xalign_ray.continuing.closing import closing_lines, next_commands

        typer.echo(closing_lines(run))
        say_next(*next_commands(run))


def five_lines_of(given: dict[str, Any]) -> FiveLines:
    """The lines that the options of a command are.

    Raises:
        ConfigError: they cannot mean anything.
    """
    two_names = {key: codes(given[key]) for key in ("languages", "columns")}
    output = {"output": str(given["out"]) if given["out"] else None, "set": given["settings"]}
    options = {key: value for key, value in given.items() if key in FiveLines.model_fields and key != "model"}
    return read_five_lines(given["model"], options | two_names | output)


def check_submitted(given: dict[str, Any]) -> None:
    """Refuses what cannot run in a job, before a machine is asked: mistakes, and files that the nodes cannot see.

    Raises:
        ConfigError: a value cannot mean anything, or a path is relative.
    """
    lines = five_lines_of(given)
    check_lasting("--out", lines.output or RUNS, in_job=True)
    for key in ("pairs", "test", "dictionary", "text", "keep"):
        for path in getattr(lines, key):
            name = path.partition("=")[2] or path
            if not is_url(name) and not Path(name).is_absolute():
                raise ConfigError(
                    f"--{key} {path}: the cluster's nodes do not see it. Give an absolute path that they all see, or a "
                    "URL."
                )
