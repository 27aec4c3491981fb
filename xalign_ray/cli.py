"""The command line: verbs that call the pipeline, and nothing that decides."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from xalign_ray import __version__
from xalign_ray.config.explain import check_folder, suggest
from xalign_ray.config.load import load_recipe
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError, StoppedError, XalignError, explain
from xalign_ray.verbs import submit as submitted
from xalign_ray.verbs.arguments import (
    SCALES,
    Group,
    Languages,
    ManyFiles,
    Model,
    Out,
    OutDir,
    RecipeName,
    Rehash,
    RunFolder,
    Settings,
    StudyName,
    StudySettings,
    Task,
    TrainLanguage,
    Trust,
    TunedTask,
    TuneSettings,
    as_local,
    as_model,
    codes,
    one_of,
)
from xalign_ray.verbs.config import config_app
from xalign_ray.verbs.continue_encoder import check_submitted, continue_
from xalign_ray.verbs.data import data_app
from xalign_ray.work import collector, stops
from xalign_ray.work.local_paths import quoted, shown_path
from xalign_ray.work.ray_job import check_lasting
from xalign_ray.work.status_line import say, say_next

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pretrain encoders whose languages are aligned, compare the methods, from a laptop to a Ray cluster.",
)
track_app = typer.Typer(cls=Group, no_args_is_help=True, help="MLflow, after the fact.")
app.add_typer(data_app, name="data")
app.add_typer(config_app, name="config")
app.add_typer(track_app, name="track")


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


@app.command()
def prepare(recipe: RecipeName, settings: Settings = [], rehash: Rehash = False) -> None:  # noqa: B006 - typer copies it
    """Make the token shards of a recipe, or check and repair those that exist."""
    from xalign_ray import pipeline

    typer.echo(str(pipeline.prepare(load_recipe(recipe, settings), rehash=rehash).folder))
    say_next(shlex.join(["xalign", "pretrain", recipe, *(word for one in settings for word in ("--set", one))]))


@app.command()
def plan(
    recipe: RecipeName,
    settings: Settings = [],  # noqa: B006
    on: Annotated[
        list[str],
        typer.Option(metavar="SHAPE", help="a cluster such as 8xH100; may be given more than once, a column each"),
    ] = [],  # noqa: B006
    rate: Annotated[
        str,
        typer.Option(
            metavar="TFLOPS|RUN",
            callback=as_model,
            help="train/tflops of a worker as measured, or a run that has measured it",
        ),
    ] = "",
    price: Annotated[
        list[str],
        typer.Option(
            metavar="DEVICE=NUMBER|FILE",
            callback=as_model,
            help="of an hour of a device, such as H100=2.5; or a YAML file of such",
        ),
    ] = [],  # noqa: B006
) -> None:
    """Say what a run will need, before anything is reserved: of its own workers, or of clusters side by side."""
    from xalign_ray import pipeline

    # A terminal's own width; what is piped is for a page.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    typer.echo(pipeline.plan(load_recipe(recipe, settings), on, rate, price, width))


@app.command()
def pretrain(
    recipe: RecipeName,
    settings: Settings = [],  # noqa: B006
    out: Out = None,
    no_ray: Annotated[bool, typer.Option("--no-ray", help="in this process, or torchrun's, without Ray")] = False,
    profile: Annotated[
        int,
        typer.Option(min=0, metavar="STEPS", help="of so many steps write a trace and a summary: profile/ in the run"),
    ] = 0,
    trust: Trust = False,
    rehash: Rehash = False,
) -> None:
    """Train a recipe, or go on with it, and export it as a Hugging Face folder."""
    from xalign_ray import pipeline
    from xalign_ray.train.distributed import keep_freed_memory

    profiled = [f"track.profile_steps={profile}"] if profile else []
    loaded = load_recipe(recipe, [*settings, *profiled])
    if no_ray and not loaded.config.parallel.gpus_per_worker:
        keep_freed_memory()  # this process ends with the training
    run = pipeline.pretrain(loaded, out, no_ray, trust, rehash)
    typer.echo(str(run))
    if os.environ.get("RANK", "0") == "0":
        say_next(f"xalign evaluate {quoted(run)} --task tatoeba --data FOLDER", f"xalign report {quoted(run)}")


app.command("continue", cls=ManyFiles)(continue_)


@app.command()
def export(
    run: RunFolder,
    step: Annotated[int | None, typer.Option(help="of a kept checkpoint; 0 is the run's untrained control")] = None,
    out: Out = None,
    trust: Trust = False,
) -> None:
    """Export a run's newest checkpoint again, or the weights of another step."""
    from xalign_ray import exports

    folder = exports.export(run, step, out, trust)
    typer.echo(str(folder))
    say_next(f"xalign evaluate {quoted(folder)} --task tatoeba --data FOLDER")


@app.command()
def evaluate(
    model: Model,
    task: Task,
    data: Annotated[Path | None, typer.Option(metavar="PATH", callback=as_local, help="the task's files")] = None,
    out: Out = None,
    languages: Languages = "",
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="put before each sentence of retrieval; default: the model's own prompt"),
    ] = None,
) -> None:
    """Score a model on a task in every language found. Never trains."""
    from xalign_ray import evaluation

    evaluation.evaluate(model, task, data, out, codes(languages), _show_scores, prompt)


@app.command()
def tune(
    model: Model,
    task: TunedTask,
    data: Annotated[
        list[Path],
        typer.Option(metavar="PATH", callback=as_local, help="the task's files; may be given more than once"),
    ],
    out: Out = None,
    settings: TuneSettings = [],  # noqa: B006
    languages: Languages = "",
    train_language: TrainLanguage = "en",
) -> None:
    """Fine-tune a model on English, then score every language: a study of one cell. A list of values is searched."""
    from xalign_ray.verbs.tune import tune

    options = dict(map(_read_option, settings))
    tune(model, task, data, out, options, codes(languages), train_language, _show_scores)


@app.command()
def study(
    name: StudyName,
    settings: StudySettings = [],  # noqa: B006
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
) -> None:
    """Run the cells of a study that have not ended, side by side, and report on all."""
    from xalign_ray.studies.study import run_study, show_plan

    name = f"{name}/{scale}" if scale else name
    typer.echo(show_plan(name, out, settings) if plan else str(run_study(name, out, settings, rehash)))


@app.command()
def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", callback=as_model, help="folders of runs or studies, mlflow:EXPERIMENT or mlflow:RUN_ID"
        ),
    ],
    out: Out = None,
    by: Annotated[
        str, typer.Option(metavar="NAMES", help="task,language,family,size,dictionary: the first in the terminal")
    ] = "",
    sizes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=as_local, help="CSV of each Wikipedia's size: language,megabytes"),
    ] = None,
    baseline: Annotated[str | None, typer.Option(metavar="LABEL", help="compared with, instead of the first")] = None,
    tracking: Annotated[str, typer.Option(metavar="URI", help="where MLflow is; sqlite: runs/mlflow.db")] = "sqlite",
) -> None:
    """One page on a run, or on several compared."""
    from xalign_ray.results.page import report

    typer.echo(str(report(runs, out, codes(by), sizes, baseline, tracking)))
    say_next("open the page in a browser")


@app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def submit(
    verb: Annotated[
        str,
        typer.Argument(
            metavar="VERB",
            help=f"{', '.join(submitted.VERBS)}; or follow, stop",
            autocompletion=one_of((*submitted.VERBS, *submitted.OF_JOBS)),
        ),
    ],
    words: Annotated[
        list[str], typer.Argument(metavar="ARGUMENTS", help="as for the verb; the job's name for follow and stop")
    ] = [],  # noqa: B006
    address: Annotated[
        str, typer.Option(metavar="URL", envvar="RAY_API_SERVER_ADDRESS", help="of the cluster's dashboard")
    ] = "http://127.0.0.1:8265",
    name: Annotated[str, typer.Option(metavar="NAME", help="of the job; by default verb, recipe and time")] = "",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="do not follow the log")] = False,
) -> None:
    """Run a verb on a Ray cluster: `xalign submit pretrain mine.yaml --set output=/shared/runs`; options come first."""
    if verb in submitted.OF_JOBS:
        if len(words) != 1:
            raise ConfigError(f"xalign submit {verb} takes the name of one job, as `ray job list` says it.")
        raise typer.Exit(submitted.OF_JOBS[verb](address, words[0]))
    if verb not in submitted.VERBS:
        raise ConfigError(
            f"xalign submit {verb}: no verb that runs on a cluster.{suggest(verb, submitted.VERBS)} Those are "
            f"{', '.join(submitted.VERBS)}; {' and '.join(submitted.OF_JOBS)} take the name of a job."
        )

    own: Any = typer.main.get_command(app)
    given = own.commands[verb].make_context(f"xalign submit {verb}", [*words]).params
    if "recipe" in given:  # what is wrong with it is said here, before a machine has been asked
        output = load_recipe(given["recipe"], given["settings"]).config.output
        check_lasting("output", output, in_job=True)
    if verb == "continue":
        check_submitted(given)
    raise typer.Exit(submitted.submit(address, verb, words, name, wait=not no_wait))


@app.command("word-map")
def word_map(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", callback=as_model, help="runs, exports or hub ids: a panel each")
    ],
    data: Annotated[
        Path, typer.Option(metavar="PATH", callback=as_local, help="a MUSE file; its first 20 pairs are drawn")
    ],
    out: OutDir,
) -> None:
    """Draw how near words lie to their translations (t-SNE), with mean cosine and reciprocal rank."""
    from xalign_ray.verbs import word_map

    means = word_map.word_map(models, data, out).groupby("model", sort=False)[["cosine", "reciprocal_rank"]].mean()
    for model, cosine, rank in means.itertuples():
        typer.echo(f"{model}: cosine {cosine:.3f}, reciprocal rank {rank:.3f}", err=True)
    typer.echo(str(out / word_map.FIGURE))


@app.command()
def quickstart(out: Out = None) -> None:
    """The whole way on the embedded world: MLM against ALIGN-MLM, in a few minutes on two cores."""
    from xalign_ray.studies.study import quickstart

    quickstart(out)


@track_app.command("replay")
def track_replay(
    run: RunFolder,
    to: Annotated[str, typer.Option(metavar="URI", help="a tracking URI")],
    experiment: Annotated[str, typer.Option(metavar="NAME", help="of MLflow's experiment")] = "xalign",
) -> None:
    """Bring MLflow up to date with a run folder. Doing it again adds nothing."""
    from xalign_ray.track.follower import open_command, replay, resolve_uri, runs_page
    from xalign_ray.work.mirror import opened

    folder = opened(run)
    check_folder(folder)
    uri = resolve_uri(to, folder.parent)
    say(f"Bringing {shown_path(folder)} to MLflow at {uri}.")
    typer.echo("\n".join(replay(folder, uri, experiment)))
    say_next(open_command(uri, runs_page(uri, experiment)))


def _read_option(option: str) -> tuple[str, Any]:
    key, _, text = option.partition("=")
    if not key or not text.strip():
        raise ConfigError(f"--set {option}: write it as key=value, for example --set learning_rate=2e-5.")
    try:
        return key, parse_yaml(text)
    except yaml.YAMLError:
        raise ConfigError(f"--set {option}: the value is not YAML; quote it.") from None


def _show_scores(scores: list[Any]) -> None:
    from xalign_ray.tasks.scores import show_scores

    for line in show_scores(scores, shutil.get_terminal_size().columns):
        typer.echo(line, err=True)


def main(verb: str | None = None) -> None:
    """Runs a verb; an error for the user is a sentence and an exit code, never a traceback.

    Args:
        verb: the verb that the arguments are for; without it the first of them names it.
    """
    collector.spare_imports()
    os.environ.setdefault("RAY_DATA_LOG_LEVEL", "ERROR")  # read when ray.data is imported: progress is ours to show
    code = _run(lambda: app([verb, *sys.argv[1:]] if verb else None, prog_name="xalign"))
    if stops.asked():
        stops.ending()
    sys.exit(code)


def _run(command: Callable[[], None]) -> int:
    with stops.listened():
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
            if not stops.was_interrupted():
                return int(left.code or 0)
        except KeyboardInterrupt:
            pass
        else:
            return 0
        name = stops.asked() or "SIGINT"
        if os.environ.get("RANK", "0") == "0":
            sys.stderr.write(f"xalign: Interrupted ({name}). Give the same command again to go on.\n")
        return stops.exit_code(name)
