"""The verb `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xalign_ray.errors import ConfigError
from xalign_ray.verbs.arguments import Languages, Model, Out, PathLike, Task, as_model, as_path, codes
from xalign_ray.verbs.opened_run import Frame, as_frame
from xalign_ray.work.run_folder import SCORES
from xalign_ray.work.status_line import say


def evaluate(
    model: Model,
    task: Task,
    data: Annotated[PathLike | None, Path, typer.Option(metavar="PATH", help="the task's files")] = None,
    out: Out = None,
    languages: Languages = "",
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="put before each sentence of retrieval; default: the model's own prompt"),
    ] = None,
) -> Frame:
    """Score a model on a task in every language found. Never trains.

    Writes `scores.json` with a log and a manifest, into `<run>/evaluation/<task>` if no folder is named. MLflow shows
    it below the encoder's run.

    Returns:
        A row a score, with the columns of `Run.scores`.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: model or data are missing or damaged.
        LockError: another process writes the folder, or has taken it over.
    """
    from xalign_ray import evaluation
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
        takes = ", ".join(name for name, one in TASKS.items() if one.takes_prompt)
        raise ConfigError(f"--prompt: the task {task} puts no text before sentences; tasks that do: {takes}.")
    evaluation.refuse_other_folders(target)
    options = {} if prompt is None else {"prompt": prompt}
    name = evaluation.name_of(encoder, run)
    say(f"Evaluating {name} on {task}: loading the model.")
    folder = opened(as_path(data)) if data else None
    params = {"task": task, "data": None if folder is None else str(folder)} | options
    fingerprint = hash_value([encoder, chosen, params])
    params = {key: value for key, value in params.items() if value is not None}
    identity = scoring_identity(fingerprint, f"{name}: {task}", encoder, name, chosen, params, is_run=run is not None)
    with open_job(target, f"evaluate {task}", identity) as job:
        job.follow(evaluation.track_of_scores(run, out is not None))
        scores = TASKS[task].evaluate(encoder, folder, chosen, **options)
        write_scores(target / SCORES, scores)
        files = {SCORES: hash_file(target / SCORES)}
        job.finish({"kind": EVALUATION_KIND, "task": task, "encoder": encoder, "files": files})
    evaluation.publish_scores(run)
    evaluation.say_scores(scores, target, run)
    return as_frame(scores)
