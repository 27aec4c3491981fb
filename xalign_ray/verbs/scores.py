"""The Python API of scores: `evaluate`, `tune`, `study`, `report`, `verify`"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError, DataError, TrainingError
from xalign_ray.verbs.arguments import PathLike, as_data, as_model, as_path, codes
from xalign_ray.verbs.opened_run import Frame, as_frame
from xalign_ray.work.run_folder import SCORES
from xalign_ray.work.status_line import say, say_next
from xalign_ray.work.storage import quoted, shown_path


def evaluate(
    model: PathLike,
    task: str,
    data: PathLike | None = None,
    out: PathLike | None = None,
    languages: Sequence[str] | str | None = "",
    prompt: str | None = None,
) -> Frame:
    """Scores a model on a task in every language found. Never trains.

    Writes `scores.json` with a log and a manifest. MLflow shows it below the encoder's run.

    Args:
        model: a run, an exported folder or a hub id.
        task: a name of `xalign_ray.tasks.TASK_NAMES`, or "mteb:NAME" of a task or a benchmark.
        data: the task's files.
        out: where to write; `<run>/evaluation/<task>` if not given.
        languages: to score; all if empty.
        prompt: text put before each sentence of retrieval; the model's own prompt if None.

    Returns:
        A row a score, with the columns of `Run.scores`.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: model or data are missing or damaged.
        LockError: another process writes the folder, or has taken it over.
    """
    from xalign_ray import evaluation
    from xalign_ray.models.hub import at_commit
    from xalign_ray.tasks.registry import TASKS
    from xalign_ray.tasks.scores import write_scores
    from xalign_ray.track.scored_encoder import scoring_identity
    from xalign_ray.work.artifacts import EVALUATION_KIND, hash_file, hash_value
    from xalign_ray.work.job import open_job
    from xalign_ray.work.mirror import opened

    encoder, run = evaluation.find_encoder(as_model(model))
    target, chosen = evaluation.target_folder(as_path(out), run, encoder, task), codes(languages)
    if TASKS[evaluation.known_task(task, TASKS)].needs_data and data is None:
        raise ConfigError(f"--data is needed: the files of {task}.")
    if prompt is not None and not TASKS[task].takes_prompt:
        takes = ", ".join(name for name, known_task in TASKS.items() if known_task.takes_prompt)
        raise ConfigError(f"--prompt: the task {task} puts no text before sentences; tasks that do: {takes}.")
    evaluation.refuse_other_folders(target)
    options = {} if prompt is None else {"prompt": prompt}
    name = evaluation.name_of(encoder, run)
    say(f"Evaluating {name} on {task}: loading the model.")
    folder = opened(as_data(data)) if data else None
    params = {"task": task, "data": None if folder is None else str(folder)} | options
    fingerprint = hash_value([at_commit(encoder), chosen, params])
    params = {key: value for key, value in params.items() if value is not None}
    identity = scoring_identity(fingerprint, f"{name}: {task}", encoder, name, chosen, params, is_run=run is not None)
    with open_job(target, f"evaluate {task}", identity) as job:
        job.follow(evaluation.track_of_scores(run, out is not None))
        scores = TASKS[task].evaluate(encoder, folder, chosen, **options)
        evaluation.say_replaced(scores, target)
        write_scores(target / SCORES, scores)
        files = {SCORES: hash_file(target / SCORES)}
        job.finish({"kind": EVALUATION_KIND, "task": task, "encoder": at_commit(encoder), "files": files})
    evaluation.publish_scores(run, target)
    evaluation.say_scores(scores, target, run)
    return as_frame(scores)


def tune(
    model: PathLike,
    task: str,
    data: PathLike | Sequence[PathLike],
    out: PathLike | None = None,
    options: Mapping[str, Any] | Sequence[str] | None = (),
    languages: Sequence[str] | str | None = "",
    train_language: str = "en",
) -> Frame:
    """Fine-tunes a model on English, then scores every language: a study of one cell.

    The fine-tuned model that development scores choose stays in the cell's folder. Writes `scores.json`.

    Args:
        model: a run, an exported folder or a hub id.
        task: a name of `xalign_ray.tasks.TUNED_TASK_NAMES`.
        data: the task's files, in one folder or several.
        out: where to write; `<run>/evaluation/<task>` if not given.
        options: settings of the fine-tuning, such as `{"learning_rate": [2e-5, 5e-5], "num_train_epochs": 3}`; a list
            of values is searched.
        languages: to score; all if empty.
        train_language: another than English is fine-tuned on and scored itself: the supervised score beside the
            zero-shot one.

    Returns:
        A row a score, with the columns of `Run.scores`.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: model or data are missing or damaged.
        TrainingError: fine-tuning failed.
        LockError: another process writes the folder, or has taken it over.
    """
    settings = dict(options) if isinstance(options, Mapping) else dict(map(_read_option, options or ()))
    folders = [as_data(path) for path in ([data] if isinstance(data, str | os.PathLike) else data)]
    if not folders:
        raise ConfigError(f"--data is needed: the folder of {task}'s files; give it once for each folder.")
    from xalign_ray import evaluation
    from xalign_ray.finetune.training_set import note_pooling
    from xalign_ray.studies.declared import check_options, parse_study
    from xalign_ray.studies.plan import check_task_files, plan_study
    from xalign_ray.studies.progress import Progress
    from xalign_ray.studies.study import open_queue, run_cells, scores_of
    from xalign_ray.tasks.registry import TUNED_TASKS
    from xalign_ray.tasks.scores import write_scores
    from xalign_ray.train.cluster_address import check_named_cluster
    from xalign_ray.work.artifacts import MANIFEST
    from xalign_ray.work.job import open_job
    from xalign_ray.work.mirror import opened

    encoder, run = evaluation.find_encoder(as_model(model))
    target = evaluation.target_folder(as_path(out), run, encoder, evaluation.known_task(task, TUNED_TASKS)).absolute()
    evaluation.refuse_other_folders(target)
    check_options(task, settings)
    if note := note_pooling(encoder, evaluation.name_of(encoder, run)):
        say(note)
    cell = {
        "task": task,
        "data": [str(opened(folder).absolute()) for folder in folders],
        "languages": codes(languages),
        "train_language": train_language,
        "seeds": [settings.pop("seed", 0)],
        "settings": settings,
    }
    tree = {
        "name": task,
        "root": "/",
        "encoders": [{"model": encoder, "label": evaluation.name_of(encoder, run)}],
        "finetunings": [cell],
        "keep_models": True,
        "mlflow": "off",
    }
    study = parse_study(tree, {}, "--set")
    say(f"Fine-tuning {evaluation.name_of(encoder, run)} on {task}: planning; output is {shown_path(target)}.")
    check_named_cluster()
    plan = plan_study(study, target, str)
    for unread in check_task_files(plan):
        say(unread)
    with open_job(target, f"tune {task}", waits=False):
        queue = open_queue(plan, target)
        scores = scores_of(queue, run_cells(queue, Progress(queue)))
        if queue.failures and not scores:
            raise TrainingError(f"Fine-tuning {encoder} on {task} failed: {next(iter(queue.failures.values()))}")
        evaluation.say_replaced(scores, target)
        (target / MANIFEST).unlink(missing_ok=True)  # of an `evaluate` into the same folder
        write_scores(target / SCORES, scores)
    evaluation.publish_scores(run, target)
    evaluation.say_scores(scores, target, run)
    return as_frame(scores)


def _read_option(option: str) -> tuple[str, Any]:
    key, _, text = option.partition("=")
    if not key or not text.strip():
        raise ConfigError(f"--set {option}: write it as key=value, for example --set learning_rate=2e-5.")
    try:
        return key, parse_yaml(text)
    except yaml.YAMLError:
        raise ConfigError(f"--set {option}: the value is not YAML; quote it.") from None


MOST_SHOWN = 20  # differences that `verify` prints


def study(
    name: PathLike,
    *settings: str,
    out: PathLike | None = None,
    plan: bool = False,
    rehash: bool = False,
    scale: str = "",
    encoder: PathLike | None = None,
) -> Path | str:
    """Runs the cells of a study that have not ended, side by side, and reports on all.

    A study that was interrupted goes on when it is called again.

    Args:
        name: a name (`xalign config list`) or a YAML file.
        settings: `key=value` each, overrides of keys of the study, or of each recipe in it.
        out: where runs, data and report go; `runs` if not given.
        plan: list cells with status and resources instead of running them.
        rehash: read all inputs again instead of trusting cached hashes.
        scale: one that the study has.
        encoder: folder or hub id that the study begins from.

    Returns:
        The report's page; with `plan` the cells as text.

    Raises:
        ConfigError: it cannot mean anything.
        DataError: input is missing, damaged, or worse than a recipe allows.
        TrainingError: cells failed; everything else has been done and is on disk.
        LockError: another process writes a folder of it, or has taken it over.
    """
    from xalign_ray.studies.study import run_study, show_plan

    full = f"{os.fspath(name)}/{scale}" if scale else os.fspath(name)
    start = as_model(encoder) if encoder is not None else ""
    if plan:
        return show_plan(full, as_path(out), settings, start)
    return run_study(full, as_path(out), settings, rehash, start)


def report(
    *runs: PathLike,
    out: PathLike | None = None,
    by: Sequence[str] | str = "",
    baseline: str | None = None,
    bundle: PathLike | None = None,
) -> Path:
    """Writes one page on a run, or on several compared, and its numbers as CSV.

    Args:
        runs: runs, studies, bundles, CSV of scores, results of mteb.
        out: where to write; `<run>/report` of one run, `report` of several if not given.
        by: groupings of the scores: task, language, family, dictionary, training.
        baseline: label of the run that others are compared with, instead of the first.
        bundle: a zip file to write, that `verify` computes again.

    Returns:
        The page.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: a folder is not a run, or is damaged.
    """
    from xalign_ray.results.report import report as write_report

    names = [as_model(run) for run in runs]
    file = as_path(bundle)
    path = write_report(names, as_path(out), codes(by), baseline, file)
    say_next("open the page in a browser", *([f"xalign verify {quoted(file)}"] if file else []))
    return path


def verify(bundle: PathLike) -> str:
    """Computes again every score, mean, interval and verdict of a bundle, and names what differs.

    Needs neither the runs nor a GPU. Scores are computed again from the predictions of fine-tuned models, and from
    what sentences and words found in retrieval and word translation. Others, such as cosines, are held to the hash of
    the file.

    Args:
        bundle: a file of `report(bundle=...)`.

    Returns:
        The parts that were computed again, as text.

    Raises:
        DataError: something differs, or the file is no bundle; names what.
    """
    from xalign_ray.results.bundle import verify_bundle

    path = as_path(bundle)
    result = verify_bundle(path)
    if problems := result.problems:
        shown = [f"  {problem}" for problem in problems[:MOST_SHOWN]]
        more = len(problems) - len(shown)
        shown += [f"  and {more:,} more"] if more else []
        counted = f"{len(problems):,} difference{'s' * (len(problems) > 1)}"
        raise DataError("\n".join([f"{shown_path(path)} does not hold: {counted}.", *shown]))
    return "\n".join([f"{shown_path(path)} holds.", *result.facts])
