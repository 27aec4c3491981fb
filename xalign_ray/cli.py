"""The command line: registers the verbs, and says what went wrong in a sentence with an exit code."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Annotated

import typer

from xalign_ray import __version__
from xalign_ray.errors import StoppedError, XalignError, explain
from xalign_ray.verbs import data, recipes
from xalign_ray.verbs.command import Group, ManyFiles, add_command
from xalign_ray.verbs.continue_encoder import continue_encoder, show_end
from xalign_ray.verbs.recipes import export, plan, prepare, pretrain
from xalign_ray.verbs.scores import evaluate, quickstart, report, study, track_replay, tune, verify, word_map
from xalign_ray.verbs.submit import submit_for
from xalign_ray.work import process


def _group(help_text: str) -> typer.Typer:
    return typer.Typer(
        cls=Group, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, help=help_text
    )


CACHES = ("XALIGN_CACHE", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE")  # folders
app = _group("Pretrain encoders whose languages are aligned, compare the methods, from a laptop to a Ray cluster.")
add_command(app, "prepare", prepare)
add_command(app, "plan", plan)
add_command(app, "pretrain", pretrain)
add_command(app, "continue", continue_encoder, show=show_end, cls=ManyFiles)
add_command(app, "export", export)
add_command(app, "evaluate", evaluate)
add_command(app, "tune", tune)
add_command(app, "study", study)
add_command(app, "report", report)
add_command(app, "verify", verify)
options_first = {"ignore_unknown_options": True, "allow_interspersed_args": False}
add_command(app, "submit", submit_for(app), context_settings=options_first)
add_command(app, "word-map", word_map)
add_command(app, "quickstart", quickstart)
data_app = _group("Data: fetch, make, read, align, measure.")
for name in ("demo", "derive", "read", "fetch", "align", "mine", "stats"):
    add_command(data_app, name, getattr(data, f"data_{name}"))
config_app = _group("Recipes: list, show, check, compare.")
for name in ("list", "show", "check", "diff", "schema"):
    add_command(config_app, name, getattr(recipes, f"config_{name}"))
track_app = _group("MLflow, after the fact.")
add_command(track_app, "replay", track_replay)
for group, name in ((data_app, "data"), (config_app, "config"), (track_app, "track")):
    app.add_typer(group, name=name)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"xalign {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def main(verb: str | None = None) -> None:
    """Runs a verb; an error for the user is a sentence and an exit code, never a traceback.

    Args:
        verb: the verb that the arguments are for; without it the first of them names it.
    """
    process.spare_imports()
    os.environ.setdefault("RAY_DATA_LOG_LEVEL", "ERROR")  # read when ray.data is imported: progress is ours to show
    for name in CACHES:  # workers stand in folders of their own
        if os.environ.get(name):
            os.environ[name] = os.path.abspath(os.path.expanduser(os.environ[name]))
    with _writable():
        code = _run(lambda: app([verb, *sys.argv[1:]] if verb else None, prog_name="xalign"))
    if process.asked():
        process.ending()
    sys.exit(code)


@contextmanager
def _writable() -> Iterator[None]:
    """Lets output that is closed go nowhere, and shows characters that its encoding lacks by their numbers.

    ASCII becomes UTF-8, as Python has it where no locale is set.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        is_ascii = codecs.lookup(sys.stdout.encoding).name == "ascii"
        sys.stdout.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")
    with (
        open(os.devnull, "w") as nowhere,
        redirect_stdout(sys.stdout or nowhere),
        redirect_stderr(sys.stderr or nowhere),
    ):
        yield


def _run(command: Callable[[], None]) -> int:
    with process.listened():
        try:
            command()
        except XalignError as error:
            if not isinstance(error, StoppedError) or os.environ.get("RANK", "0") == "0":  # the ranks stop together
                sys.stderr.write(f"xalign: {error}\n")
            return error.exit_code
        except Exception as error:
            if (said := explain(error)) is None:
                raise
            sys.stderr.write(f"xalign: {said}\n")
            return 1
        except SystemExit as left:  # by this click also leaves when it was interrupted
            if not process.was_interrupted():
                return int(left.code or 0)
        except KeyboardInterrupt:
            pass
        else:
            return 0
        name = process.asked() or "SIGINT"
        if os.environ.get("RANK", "0") == "0":
            sys.stderr.write(f"xalign: Interrupted ({name}). Give the same command again to go on.\n")
        return process.exit_code(name)
