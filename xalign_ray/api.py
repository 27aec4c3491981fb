"""The Python API: each verb of the command line as one typed function.

Functions import what they need when they are called: `import xalign_ray` brings in neither torch nor Ray nor pandas.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.errors import DataError, StoppedError
from xalign_ray.verbs.opened_run import Run, as_frame
from xalign_ray.work import stops
from xalign_ray.work.local_paths import absolute_model, absolute_path
from xalign_ray.work.run_folder import EVENT_LOG, SCORES, RunFolder

if TYPE_CHECKING:
    import pandas as pd

    from xalign_ray.config.load import Recipe

PathLike = str | os.PathLike[str]


def load_recipe(name: PathLike, *settings: str) -> Recipe:
    """Resolves a recipe; starts and writes nothing.

    Args:
        name: a recipe of the package, such as "tiny/mlm", or a YAML file.
        settings: `key=value` as after `--set`, such as "train.max_steps=100"; the last one wins.

    Raises:
        ConfigError: it cannot mean anything; names file, key and the nearest valid key.
    """
    from xalign_ray.config.load import load_recipe as load

    return load(os.fspath(name), settings)


def open_run(path: PathLike) -> Run:
    """Opens a run folder, finished or not; writes nothing.

    Args:
        path: the folder, such as "runs/tiny-mlm-1a2b3c4d".

    Raises:
        ConfigError: there is no such folder.
        DataError: it holds neither an event log nor scores.
    """
    from xalign_ray.config.explain import check_folder
    from xalign_ray.work.mirror import opened

    folder = RunFolder(opened(absolute_path(os.fspath(path))))
    check_folder(folder.path)
    if not folder.events.is_file() and not folder.score_files:
        raise DataError(f"{folder.path} is not a run: it holds neither {EVENT_LOG} nor a {SCORES}.")
    return Run(folder.path)


def plan(recipe: Recipe, *on: str, rate: float | PathLike | Run = "", prices: Mapping[str, float] | None = None) -> str:
    """What a run will need, as text: parameters, operations, disk, memory, of clusters also time and price.

    Starts and writes nothing.

    Args:
        recipe: of `load_recipe`.
        on: clusters such as "8xH100", side by side; the workers that the recipe names if none is given.
        rate: TFLOP/s of a worker as measured (`train/tflops`), or a run that has measured it; else assumed.
        prices: of an hour of a device, by its name.

    Raises:
        ConfigError: the recipe cannot be run, or fits none of the clusters.
    """
    from xalign_ray import pipeline

    of_an_hour = [f"{name}={price}" for name, price in (prices or {}).items()]
    return pipeline.plan(recipe, on, os.fspath(rate) if isinstance(rate, os.PathLike) else str(rate), of_an_hour)


def prepare(recipe: Recipe, rehash: bool = False) -> Path:
    """Makes the token shards of a recipe on Ray, or checks and repairs those that exist.

    Args:
        recipe: of `load_recipe`.
        rehash: read all input files again, whatever is remembered of them.

    Returns:
        The folder of shards.

    Raises:
        ConfigError: the recipe cannot be run.
        DataError: input is missing, damaged, or worse than the recipe allows.
        LockError: another process writes the folder, or has taken it over.
    """
    from xalign_ray import pipeline

    with _stoppable():
        return pipeline.prepare(recipe, rehash=rehash).folder


def pretrain(
    recipe: Recipe, out: PathLike | None = None, local: bool = False, trust: bool = False, rehash: bool = False
) -> Run:
    """Trains a recipe to its last step on Ray, or goes on with it, and exports it; a finished run is only opened.

    Args:
        recipe: of `load_recipe`.
        out: the run folder; `<output>/<recipe>-<fingerprint>` if not given.
        local: train in this process without Ray; the shards must have been prepared.
        trust: whether the files of a checkpoint that it goes on from may run code.
        rehash: read all input files again, whatever is remembered of them.

    Raises:
        ConfigError: the recipe cannot be run, or `out` holds another run.
        DataError: input is missing, damaged, or worse than the recipe allows.
        TrainingError: training cannot go on.
        LockError: another process writes the folder, or has taken it over.
        KeyboardInterrupt: Ctrl-C, after the step in progress is saved; the same call goes on from there.
    """
    from xalign_ray import pipeline

    with _stoppable():
        return Run(pipeline.pretrain(recipe, _path(out), local, trust, rehash))


def continue_encoder(
    model: PathLike,
    pairs: PathLike | Sequence[PathLike] = (),
    test: PathLike | Sequence[PathLike] = (),
    method: str = "auto",
    out: PathLike | None = None,
    *,
    dictionary: PathLike | Sequence[PathLike] = (),
    text: PathLike | Sequence[PathLike] = (),
    keep: PathLike | Sequence[PathLike] = (),
    replay: float | None = None,
    languages: tuple[str, str] | None = None,
    columns: tuple[str, str] | None = None,
    steps: int | None = None,
    hours: float | None = None,
    workers: int = 1,
    settings: Sequence[str] = (),
    local: bool = False,
) -> Run:
    """Continues an encoder on pairs, a dictionary or text, exports it, and compares it with itself before.

    Args:
        model: folder or hub id of the encoder, or a YAML file with these arguments as keys.
        pairs: files of sentence pairs that are trained on.
        test: files of sentence pairs that are scored and never trained on; a tenth of the pairs if none.
        method: "auto" takes what the data allow; "contrast", "contrast-tlm", "align", "weam", "ppa" or "mlm".
        out: the run folder; `runs/<model>-<method>-<fingerprint>` if not given.
        dictionary: files of words and their translations, for "align".
        text: files of text for masked LM; their names say the language, as `de.txt`, or "de=FILE".
        keep: pairs or text in languages that must not get worse: scored before and after.
        replay: share of rows that are text; 0.1 where text is given and the encoder has a head.
        languages: of the two sides of the pairs, where neither header nor file name says them.
        columns: of the two sides of the pairs.
        steps: optimizer steps; about one pass over the data if neither this nor `hours` is given.
        hours: a length in hours, turned into steps by the plan's estimate.
        workers: training processes.
        settings: `key=value` of the recipe.
        local: train in this process; the data are prepared on Ray all the same.

    Returns:
        The run, finished; its folder holds export/, report/index.html and comparison.json.

    Raises:
        ConfigError: model, data and method do not fit together.
        DataError: input is missing, damaged, or worse than the recipe allows.
        TrainingError: training cannot go on.
        LockError: another process writes the folder, or has taken it over.
        KeyboardInterrupt: Ctrl-C, after the step in progress is saved; the same call resumes.
    """
    from xalign_ray.continuing import verb
    from xalign_ray.continuing.five_lines import read_five_lines

    options: dict[str, Any] = {
        "pairs": _names(pairs),
        "test": _names(test),
        "method": method,
        "output": None if out is None else os.fspath(absolute_path(Path(out))),
        "dictionary": _names(dictionary),
        "text": _names(text),
        "keep": _names(keep),
        "replay": replay,
        "languages": languages or (),
        "columns": columns or (),
        "steps": steps,
        "hours": hours,
        "workers": workers,
        "set": tuple(settings),
    }
    with _stoppable():
        return Run(verb.continue_encoder(read_five_lines(absolute_model(os.fspath(model)), options), local))


def export(run: PathLike | Run, step: int | None = None, out: PathLike | None = None, trust: bool = False) -> Path:
    """Writes the weights of a run as a Hugging Face folder.

    Args:
        run: an opened run or its folder.
        step: of a checkpoint that was kept, the newest if None; 0 is the run's untrained control.
        out: `<run>/export` if not given, for a step `<run>/export_step_<step>`.
        trust: whether the files of the checkpoint may run code.

    Returns:
        The folder.

    Raises:
        DataError: there is no such checkpoint, or the run's folder is damaged.
    """
    from xalign_ray import exports

    with _stoppable():
        return exports.export(absolute_path(os.fspath(run)), step, _path(out), trust)


def evaluate(
    model: PathLike | Run,
    task: str,
    data: PathLike | None = None,
    out: PathLike | None = None,
    languages: Sequence[str] | None = None,
    prompt: str | None = None,
) -> pd.DataFrame:
    """Scores a model on a task in every language found; never trains. Writes scores.json.

    Args:
        model: a run, a Hugging Face folder or a hub id.
        task: "tatoeba", "retrieval", "alignment", "cloze" and the like.
        data: the task's files, where it needs some.
        out: folder of scores.json; `<run>/evaluation/<task>` if not given, needed for a model that is no run of ours.
        languages: scored; all that the data have if None.
        prompt: put before each sentence of the task "retrieval"; what the model's own files name if None.

    Returns:
        A row a score, with the columns of `Run.scores`.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: model or data are missing or damaged.
    """
    from xalign_ray import evaluation

    with _stoppable():
        name = absolute_model(os.fspath(model))
        return as_frame(evaluation.evaluate(name, task, _path(data), _path(out), languages, prompt=prompt))


def tune(
    model: PathLike | Run,
    task: str,
    data: PathLike | Sequence[PathLike],
    out: PathLike | None = None,
    options: Mapping[str, Any] | None = None,
    languages: Sequence[str] | None = None,
    train_language: str = "en",
) -> pd.DataFrame:
    """Fine-tunes a model on one language on Ray and scores it in every language: a study of one cell.

    Args:
        model: a run, a Hugging Face folder or a hub id.
        task: "pos", "xnli" and the like.
        data: a folder of the task's files, or several.
        out: folder of the trial and scores.json; `<run>/evaluation/<task>` if not given.
        options: of the fine-tuning, such as `{"learning_rate": [2e-5, 5e-5], "num_train_epochs": 3, "seed": 1}`; a list
            is searched.
        languages: scored; all that the data have if None.
        train_language: fine-tuned on.

    Returns:
        A row a score, with the columns of `Run.scores`.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: model or data are missing or damaged.
        TrainingError: fine-tuning failed.
    """
    from xalign_ray.verbs.tune import tune

    given = [data] if isinstance(data, str | os.PathLike) else data
    folders = [absolute_path(Path(folder)) for folder in given]
    own, into = dict(options or {}), _path(out)
    with _stoppable():
        return as_frame(tune(absolute_model(os.fspath(model)), task, folders, into, own, languages, train_language))


def study(name: PathLike, *settings: str, out: PathLike | None = None, rehash: bool = False) -> Path:
    """Runs the cells of a study that have not ended, side by side, and reports on all.

    Args:
        name: a study of the package, such as "quickstart", or a YAML file.
        settings: `key=value`, of the study or for each of its recipes.
        out: the folder of runs, data and report; `runs` if not given.
        rehash: read all input files again, whatever is remembered of them.

    Returns:
        The report's page.

    Raises:
        ConfigError: it cannot mean anything.
        DataError: input is missing, damaged, or worse than a recipe allows.
        TrainingError: cells failed; everything else has been done and is on disk.
        LockError: another process writes a folder of it, or has taken it over.
    """
    from xalign_ray.studies.study import run_study

    with _stoppable():
        return run_study(os.fspath(name), _path(out), settings, rehash)


def report(
    *runs: PathLike | Run,
    out: PathLike | None = None,
    by: Sequence[str] = (),
    sizes: PathLike | None = None,
    baseline: str | None = None,
    tracking: str = "sqlite",
) -> Path:
    """Writes one page on a run, or on several compared, with the numbers beside it as CSV.

    Args:
        runs: runs or studies, opened or as folders; "mlflow:EXPERIMENT" or "mlflow:RUN_ID".
        out: folder of the report; `<run>/report` of one run, `report` of several if not given.
        by: of task, language, family, size, dictionary: the groupings; all that are possible if none is given.
        sizes: CSV file of each Wikipedia's size: language,megabytes.
        baseline: label of the column that the others are compared with, the first if None.
        tracking: URI of MLflow; "sqlite" is runs/mlflow.db.

    Returns:
        The page.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: a folder is not a run, or is damaged.
    """
    from xalign_ray.results.page import report

    with _stoppable():
        names = [absolute_model(os.fspath(run)) for run in runs]
        return report(names, _path(out), by, _path(sizes), baseline, tracking)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Inside, stop signals act as in the command line; only the main thread can hear them.

    Ctrl-C is KeyboardInterrupt, with what is saved if a step was. SIGTERM and SIGHUP leave by SystemExit with the
    command line's exit codes, so that the interpreter ends in order. A lost lock interrupts where Ctrl-C is ignored.
    """
    with stops.listened():
        try:
            yield
        except (KeyboardInterrupt, StoppedError) as stopped:
            name = stops.asked() or "SIGINT"
            said = str(stopped) or f"Interrupted ({name}). The same call goes on."
            if name == "SIGINT":
                raise KeyboardInterrupt(said) from None
            sys.stderr.write(f"{said}\n")
            raise SystemExit(stops.exit_code(name)) from None


def _names(paths: PathLike | Sequence[PathLike]) -> tuple[str, ...]:
    return (os.fspath(paths),) if isinstance(paths, str | os.PathLike) else tuple(os.fspath(path) for path in paths)


def _path(path: PathLike | None) -> Path | None:
    return None if path is None else absolute_path(Path(path))
