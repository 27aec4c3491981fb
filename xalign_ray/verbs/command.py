"""Makes a typed function a command and a call of the Python API: one signature, one help."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import BoundArguments, Parameter, Signature, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, get_args

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import OptionInfo, ParameterInfo

from xalign_ray.errors import StoppedError
from xalign_ray.verbs.arguments import filled_path
from xalign_ray.work import process
from xalign_ray.work.status_line import next_said_last

P = ParamSpec("P")
R = TypeVar("R")

_is_running = False  # whether a verb of the command line runs: the process ends with it


class Group(TyperGroup):
    """Lists its verbs with their whole help, where typer cuts it at the end of the line."""

    def format_commands(self, _: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.commands.items()])


class ManyFiles(TyperCommand):
    """Takes several values after one option: `--pairs a.tsv b.tsv` is `--pairs a.tsv --pairs b.tsv`, as of a glob."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        many = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        option, is_first = "", True
        for word in args:
            if word.startswith("-") and word != "-":
                option, is_first = word if word in many else "", True
            elif option:
                spread += [] if is_first else [option]
                is_first = False
            spread.append(word)
        return super().parse_args(ctx, spread)


def add_command(
    app: typer.Typer, name: str, function: Callable[..., Any], show: Callable[[Any], Any] | None = None, **options: Any
) -> None:
    """Adds a verb to the command line. Its result goes to stdout, and what to do next to stderr.

    Args:
        app: the command line, or a group of it.
        name: of the verb.
        function: each of its parameters is `Annotated[type, typer.Option(...)]`, or with the type that typer reads
            after the type that a program gives: `Annotated[PathLike | None, Path, typer.Option(...)]`. `*names` are
            a list. The first paragraph of its docstring is the help. It returns text, paths, or an exit code; anything
            else has been shown.
        show: what is shown in place of the result.
        options: of typer's `command`.
    """
    own = signature(function, eval_str=True)

    def run(**given: Any) -> None:
        bound = BoundArguments(own, given)  # type: ignore[arg-type]  # any mapping by name
        with next_said_last():
            result = _run(function, bound)
            if isinstance(result, int):
                raise typer.Exit(result)
            shown = show(result) if show else result
            for line in shown if isinstance(shown, list) else [shown]:
                if isinstance(line, str | os.PathLike):
                    typer.echo(os.fspath(line))

    typed = [_as_typer(parameter) for parameter in own.parameters.values()]
    run.__signature__ = Signature(typed)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in typed}
    help_text = " ".join(cleandoc(function.__doc__ or "").partition("\n\n")[0].split())
    app.command(name, help=help_text, **options)(run)


def _run(function: Callable[..., Any], bound: BoundArguments) -> Any:
    global _is_running
    _is_running = True
    try:
        return function(*bound.args, **bound.kwargs)
    finally:
        _is_running = False


def _as_typer(parameter: Parameter) -> Parameter:
    """A parameter as typer wants it: of the type that it reads, lists in place of tuples and of `*names`."""
    given, *how = get_args(parameter.annotation)
    read, default = how[0] if len(how) > 1 else given, parameter.default
    if read in (Path, list[Path]):
        how[-1].parser = how[-1].parser or filled_path
    if parameter.kind is Parameter.VAR_POSITIONAL:
        read, default = list[read], [] if isinstance(how[-1], OptionInfo) else Parameter.empty
    elif isinstance(default, tuple):
        default = list(default)
    return Parameter(parameter.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[read, how[-1]])


def keep_memory() -> None:
    """Lets a process that ends with its training keep what a step frees; a program that calls us is left as it is."""
    if _is_running:
        from xalign_ray.train.distributed import keep_freed_memory

        keep_freed_memory()


def python_call(function: Callable[P, R]) -> Callable[P, R]:
    """A verb as programs call it: stop signals act as in the command line, arguments are documented by their help."""

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> R:
        with _stoppable():
            return function(*given, **named)

    own = signature(function, eval_str=True)
    lines, plain = [], []
    for name, parameter in own.parameters.items():
        given, *how = get_args(parameter.annotation) or (parameter.annotation,)
        lines += [f"    {name}: {info.help}" for info in how if isinstance(info, ParameterInfo)]
        plain.append(parameter.replace(annotation=given))
    head, *sections = re.split(r"\n\n(?=Returns:|Raises:)", cleandoc(function.__doc__ or ""))
    call.__doc__ = "\n\n".join([head, "\n".join(["Args:", *lines]), *sections])
    call.__signature__ = own.replace(parameters=plain)  # type: ignore[attr-defined]
    return call


@contextmanager
def _stoppable() -> Iterator[None]:
    """Inside, stop signals act as in the command line; only the main thread can hear them.

    Ctrl-C is KeyboardInterrupt, with what is saved if a step was. SIGTERM and SIGHUP leave by SystemExit with the
    command line's exit codes, so that the interpreter ends in order. A lost lock interrupts where Ctrl-C is ignored.
    """
    with process.listened():
        try:
            yield
        except (KeyboardInterrupt, StoppedError) as stopped:
            name = process.asked() or "SIGINT"
            said = str(stopped) or f"Interrupted ({name}). The same call goes on."
            if name == "SIGINT":
                raise KeyboardInterrupt(said) from None
            sys.stderr.write(f"{said}\n")
            raise SystemExit(process.exit_code(name)) from None
