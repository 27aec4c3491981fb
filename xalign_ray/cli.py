"""The command line: a typer function for each verb, which calls the Python API; errors are sentences and exit codes."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from xalign_ray import __version__
from xalign_ray.continuing.five_lines import METHODS
from xalign_ray.errors import StoppedError, XalignError, explain
from xalign_ray.verbs import config, data, recipes, scores
from xalign_ray.verbs.arguments import as_model, as_path, filled_path
from xalign_ray.verbs.command import ManyFiles, group
from xalign_ray.verbs.continue_encoder import continue_encoder, holds_bound, show_end
from xalign_ray.verbs.opened_run import Run
from xalign_ray.verbs.options import (
    SCALES,
    TUNE_SETTINGS,
    Languages,
    Local,
    Model,
    Out,
    OutDir,
    Prices,
    RecipeName,
    Rehash,
    RunFolder,
    Settings,
    StudyName,
    Task,
    TrainLanguage,
    Trust,
    TunedTask,
    one_of,
    path_option,
    set_keys,
)
from xalign_ray.verbs.submit import OF_JOBS, VERBS, check_arguments, submit_verb
from xalign_ray.verbs.trim_encoder import trim_encoder
from xalign_ray.work import process
from xalign_ray.work.status_line import forget_next, say, say_next, show
from xalign_ray.work.storage import shown_path

CACHES = ("XALIGN_CACHE", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE")  # folders
NOT_HELD = 3  # exit code of a continued encoder that is not shown to hold the bound that was asked for
ON_CLUSTER = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def _files(help_text: str, metavar: str = "FILE") -> Any:
    return typer.Option(metavar=metavar, help=help_text)


app = group(
    "Pretrain encoders whose languages are aligned, compare the methods, from a laptop to a Ray cluster.",
    result_callback=show,
)


@app.command("prepare")
def prepare(recipe: RecipeName, settings: Settings = [], rehash: Rehash = False) -> Path:
    """Make the token shards of a recipe, or check and repair those that exist."""
    return recipes.prepare(recipe, *settings, rehash=rehash)


@app.command("plan")
def plan(
    recipe: RecipeName,
    settings: Settings = [],
    on: Annotated[str, typer.Option(metavar="SHAPE", help="a cluster such as 8xH100: time, cores and price too")] = "",
    rate: Annotated[
        str,
        typer.Option(metavar="TFLOPS|RUN", help="train/tflops of a worker as measured, or a run that has measured it"),
    ] = "",
    prices: Prices = [],
) -> str:
    """Print the resources that a run needs, before anything is reserved: on its workers, or on a cluster."""
    return recipes.plan(recipe, *settings, on=on, rate=rate, prices=prices)


@app.command("pretrain")
def pretrain(
    recipe: RecipeName,
    settings: Settings = [],
    out: Out = None,
    local: Local = False,
    profile: Annotated[
        int,
        typer.Option(
            min=0, metavar="STEPS", help="profile this many steps: trace and summary go to profile/ in the run"
        ),
    ] = 0,
    trust: Trust = False,
    rehash: Rehash = False,
) -> Run:
    """Pretrain a recipe, or resume, and export the encoder as a Hugging Face folder."""
    if local:
        _keep_memory()
    return recipes.pretrain(recipe, *settings, out=out, local=local, profile=profile, trust=trust, rehash=rehash)


@app.command("continue", cls=ManyFiles)
def continue_(
    model: Annotated[
        str, typer.Argument(metavar="MODEL|FILE.yaml", help="folder or hub id (ID@REVISION), or these options as YAML")
    ],
    pairs: Annotated[list[str], _files("sentence pairs: CSV, TSV, JSON lines, Parquet, TMX, two plain files")] = [],
    test: Annotated[list[str], _files("pairs to score; a tenth of the pairs by default")] = [],
    dev: Annotated[list[str], _files("pairs that choose the checkpoint; 5 % of the pairs by default")] = [],
    keep_best: Annotated[
        bool | None,
        typer.Option("--keep-best/--no-keep-best", help="export the checkpoint that is best on dev, not the last"),
    ] = None,
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help=f"{', '.join(METHODS)}; auto by default", autocompletion=one_of(METHODS)),
    ] = "",
    teacher: Annotated[
        str | None, typer.Option(metavar="MODEL", help="folder or hub id, for distill and add: learns its vectors")
    ] = None,
    dictionary: Annotated[list[str], _files("a word and its translation a line, for align")] = [],
    text: Annotated[list[str], _files("text for masked LM, such as de.txt or de=FILE")] = [],
    keep: Annotated[list[str], _files("what must not get worse: pairs, text, scored pairs, BEIR folders")] = [],
    margin: Annotated[
        float | None, typer.Option(metavar="POINTS", help="a loss that is surely smaller is `kept`; 1 by default")
    ] = None,
    lose_at_most: Annotated[
        float | None, typer.Option(metavar="POINTS", help="of --keep: merged with the base until it holds; else exit 3")
    ] = None,
    pieces: Annotated[
        int | None, typer.Option(metavar="N", help="subwords added, of languages with over twice English's a word")
    ] = None,
    replay: Annotated[
        float | None, typer.Option(metavar="SHARE", help="of rows that are text; 0.1 with --text and a head")
    ] = None,
    lora: Annotated[
        int | None, typer.Option(metavar="RANK", help="train adapters of this rank (16); they are merged on export")
    ] = None,
    languages: Annotated[str, _files("of the two sides of the pairs: en,de", "CODES")] = "",
    columns: Annotated[str, _files("of the two columns of the pairs", "NAMES")] = "",
    where: Annotated[str, typer.Option(metavar="CONDITION", help="rows of tables: label=1, 'score>=0.8', or all")] = "",
    allow_unknown: Annotated[
        float | None, typer.Option(metavar="SHARE", help="of a language's pieces that may be unknown; 0.05")
    ] = None,
    out: Out = None,
    steps: Annotated[int | None, typer.Option(metavar="N", help="optimizer steps; by default one pass")] = None,
    hours: Annotated[float | None, typer.Option(metavar="H", help="train so long, by the plan's estimate")] = None,
    budget: Annotated[float | None, typer.Option(metavar="MONEY", help="train for so much, with --price")] = None,
    price: Prices = [],
    workers: Annotated[int | None, typer.Option(metavar="N", help="training processes; 1 by default")] = None,
    settings: Settings = [],
    plan: Annotated[bool, typer.Option("--plan", help="say what it will need, and exit")] = False,
    show_recipe: Annotated[bool, typer.Option("--show-recipe", help="print the full recipe's file, and exit")] = False,
    local: Annotated[bool, typer.Option("--no-ray", help="train in this process")] = False,
    trust: Trust = False,
    rehash: Rehash = False,
) -> str:
    """Continue an encoder on your pairs, dictionary or text, and show what it gained."""
    arguments = locals()
    if local:
        _keep_memory()
    result = continue_encoder(**arguments)
    if isinstance(result, str):
        return result
    if holds_bound(result):
        return show_end(result)
    show(show_end(result))
    raise typer.Exit(NOT_HELD)


@app.command("export")
def export(
    run: RunFolder,
    step: Annotated[int | None, typer.Option(help="of a kept checkpoint; 0 is the run's untrained control")] = None,
    out: Out = None,
    trust: Trust = False,
    as_: Annotated[
        str, typer.Option("--as", metavar="FORM", help="sentence-transformers: opened by SentenceTransformer(DIR)")
    ] = "",
    pooling: Annotated[
        str, typer.Option(metavar="NAME", help="of sentence vectors: mean, cls or lasttoken; default: the loss's")
    ] = "",
    prompt: Annotated[
        list[str],
        typer.Option(metavar="NAME=TEXT", help="may be put before a sentence; the first is put there unasked"),
    ] = [],
    push_to: Annotated[
        str, typer.Option(metavar="ORG/NAME", help="upload the folder to this model of the Hugging Face hub")
    ] = "",
    merge: Annotated[
        float | None, typer.Option(metavar="SHARE", help="0.4: a mixture, 60 % of it the run's start; with --out")
    ] = None,
) -> Path:
    """Export a run's best checkpoint again (without dev pairs the newest), or the weights of another step."""
    return recipes.export(run, step, out, trust, as_, pooling, prompt, push_to, merge)


@app.command("trim", cls=ManyFiles)
def trim_vocabulary(
    model: Model,
    text: Annotated[list[str], _files("text of the languages that it is for, such as de.txt or de=FILE")],
    out: OutDir,
    min_count: Annotated[
        int, typer.Option(min=1, metavar="N", help="how often a piece must stand in the texts; 1 by default")
    ] = 1,
    whole_scripts: Annotated[
        bool, typer.Option("--whole-scripts", help="keep all pieces of the scripts of the texts, for other texts too")
    ] = False,
) -> str:
    """Cut an encoder's vocabulary to what texts use, without training: smaller, with the same vectors."""
    return trim_encoder(model, text, out, min_count, whole_scripts)


@app.command("evaluate")
def evaluate(
    model: Model,
    task: Task,
    data: Annotated[Path | None, path_option("PATH", "the task's files")] = None,
    out: Out = None,
    languages: Languages = "",
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="put before each sentence of retrieval; default: the model's own prompt"),
    ] = None,
) -> None:
    """Score a model on a task in every language found. Never trains."""
    scores.evaluate(model, task, data, out, languages, prompt)


@app.command("tune")
def tune(
    model: Model,
    task: TunedTask,
    data: Annotated[list[Path], path_option("PATH", "the task's files; may be given more than once")],
    out: Out = None,
    options: Annotated[
        list[str],
        set_keys(
            f"a value or a list to search: {', '.join(TUNE_SETTINGS)}", one_of([f"{name}=" for name in TUNE_SETTINGS])
        ),
    ] = [],
    languages: Languages = "",
    train_language: TrainLanguage = "en",
) -> None:
    """Fine-tune a model on English, then score every language: a study of one cell. A list of values is searched."""
    scores.tune(model, task, data, out, options, languages, train_language)


@app.command("study")
def study(
    name: StudyName,
    settings: Annotated[list[str], set_keys("a key of the study, or of each recipe in it")] = [],
    out: Out = None,
    plan: Annotated[bool, typer.Option("--plan", help="list cells with status and resources, then exit")] = False,
    rehash: Rehash = False,
    scale: Annotated[
        str,
        typer.Option(
            metavar="NAME", help=f"{', '.join(SCALES)}: one that the study has", autocompletion=one_of(SCALES)
        ),
    ] = "",
    encoder: Annotated[
        str | None, typer.Option(metavar="MODEL", help="folder or hub id that the study begins from")
    ] = None,
) -> Path | str:
    """Run the cells of a study that have not ended, side by side, and report on all."""
    return scores.study(name, *settings, out=out, plan=plan, rehash=rehash, scale=scale, encoder=encoder)


@app.command("report")
def report(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN", help="runs, studies, bundles, CSV of scores, mteb's results"),
    ],
    out: Out = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="task,language,family,dictionary,training: the first in the terminal",
        ),
    ] = "",
    baseline: Annotated[str | None, typer.Option(metavar="LABEL", help="compared with, instead of the first")] = None,
    bundle: Annotated[Path | None, path_option("FILE", "a zip file that `xalign verify` computes again")] = None,
) -> Path:
    """One page on a run, or on several compared."""
    return scores.report(*runs, out=out, by=by, baseline=baseline, bundle=bundle)


@app.command("verify")
def verify(
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="a file of `xalign report --bundle`", parser=filled_path)
    ],
) -> str:
    """Compute again every score, mean, interval and verdict of a bundle, and name what differs."""
    return scores.verify(bundle)


@app.command("submit", context_settings=ON_CLUSTER)
def submit(
    verb: Annotated[
        str,
        typer.Argument(
            metavar="VERB", help=f"{', '.join(VERBS)}; or follow, stop", autocompletion=one_of((*VERBS, *OF_JOBS))
        ),
    ],
    words: Annotated[
        list[str],
        typer.Argument(metavar="ARGUMENTS", help="as for the verb; the job's name for follow and stop"),
    ] = [],
    address: Annotated[
        str, typer.Option(metavar="URL", envvar="RAY_API_SERVER_ADDRESS", help="of the cluster's dashboard")
    ] = "http://127.0.0.1:8265",
    name: Annotated[str, typer.Option(metavar="NAME", help="of the job; by default verb, recipe and time")] = "",
    no_wait: Annotated[bool, typer.Option("--no-wait", help="do not follow the log")] = False,
) -> None:
    """Run a verb on a Ray cluster: `xalign submit pretrain mine.yaml --set output=/shared/runs`; options come
    first."""
    if verb in VERBS:  # mistakes in the verb's arguments are found before a request to the cluster
        command = typer.main.get_command(app).commands[verb]
        check_arguments(verb, command.make_context(f"xalign submit {verb}", [*words]).params)
    raise typer.Exit(submit_verb(address, verb, words, name, not no_wait))


@app.command("word-map")
def word_map(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="runs, exports or hub ids: a panel each")],
    data: Annotated[Path, path_option("PATH", "a dictionary; its first 20 pairs are drawn")],
    out: OutDir,
) -> Path:
    """Draw how near words lie to their translations (t-SNE), with mean cosine and reciprocal rank."""
    from xalign_ray.verbs.word_figure import FIGURE, draw_words

    words = draw_words([as_model(model) for model in models], as_path(data), as_path(out))
    means = words.groupby("model", sort=False)[["cosine", "reciprocal_rank"]].mean()
    for model, cosine, rank in means.itertuples():
        say(f"{model}: cosine {cosine:.3f}, reciprocal rank {rank:.3f}")
    return as_path(out) / FIGURE


@app.command("quickstart")
def quickstart(out: Out = None) -> None:
    """End-to-end demo on a small synthetic corpus: MLM against ALIGN-MLM, in a few minutes on two cores."""
    scores.study("quickstart", out=out)
    say_next("open the report in a browser", "xalign study demo-pos --plan", "docs/tutorials/your_languages.md")


app.add_typer(data.app, name="data")
app.add_typer(config.app, name="config")
track = group("Upload finished runs to a tracker.")
app.add_typer(track, name="track")


@track.command("replay")
def track_replay(
    run: RunFolder,
    to: Annotated[str, typer.Option(metavar="URI", help="a tracking URI, tensorboard, wandb or trackio")],
    experiment: Annotated[str, typer.Option(metavar="NAME", help="of MLflow; by default the run's own")] = "",
) -> list[str]:
    """Bring MLflow or another tracker up to date with a run folder. Doing it again adds nothing."""
    from xalign_ray.config.explain import check_folder
    from xalign_ray.config.saved import read_saved
    from xalign_ray.track.destinations import open_command, resolve_uri, runs_page, tracker_name
    from xalign_ray.track.follower import replay
    from xalign_ray.work.mirror import opened

    folder = opened(as_path(run))
    check_folder(folder)
    uri = resolve_uri(to, folder.parent)
    experiment = experiment or read_saved(folder).get("track", {}).get("experiment", "xalign")
    say(f"Bringing {shown_path(folder)} to {tracker_name(uri)}.")
    ids = replay(folder, uri, experiment)
    say_next(open_command(uri, runs_page(uri, experiment)))
    return ids


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"xalign {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    forget_next()


def _keep_memory() -> None:
    """Lets this process, which ends with its training, keep the memory that a step frees; a program's is left alone."""
    from xalign_ray.train.distributed import keep_freed_memory

    keep_freed_memory()


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
    try:
        with _writable(), exit_codes():
            app([verb, *sys.argv[1:]] if verb else None, prog_name="xalign")
    finally:
        if process.asked():
            process.ending()


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


@contextmanager
def exit_codes() -> Iterator[None]:
    """Inside, stop signals and errors that a user can act on leave by SystemExit, after a sentence on stderr."""
    is_first = os.environ.get("RANK", "0") == "0"
    with process.listened():
        try:
            yield
        except XalignError as error:
            if is_first or not isinstance(error, StoppedError):  # the ranks stop together
                sys.stderr.write(f"xalign: {error}\n")
            sys.exit(error.exit_code)
        except Exception as error:
            if (sentence := explain(error)) is None:
                raise
            sys.stderr.write(f"xalign: {sentence}\n")
            sys.exit(1)
        except (SystemExit, KeyboardInterrupt) as left:
            if isinstance(left, SystemExit) and not process.was_interrupted():  # click also leaves so if it was
                raise
            name = process.asked() or "SIGINT"
            if is_first:
                sys.stderr.write(f"xalign: Interrupted ({name}). Rerun the same command to resume.\n")
            sys.exit(process.exit_code(name))
