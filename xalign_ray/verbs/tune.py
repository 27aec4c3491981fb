"""The verb `tune`: one encoder fine-tuned for one task, as a study of one cell, or of a list's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.verbs.arguments import (
    Languages,
    Model,
    Out,
    PathLike,
    TrainLanguage,
    TunedTask,
    TuneSettings,
    as_model,
    as_path,
    as_paths,
    codes,
)
from xalign_ray.verbs.opened_run import Frame, as_frame
from xalign_ray.work.local_paths import shown_path
from xalign_ray.work.run_folder import SCORES
from xalign_ray.work.status_line import say


def tune(
    model: Model,
    task: TunedTask,
    data: Annotated[
        PathLike | Sequence[PathLike],
        list[Path],
        typer.Option(metavar="PATH", help="the task's files; may be given more than once"),
    ],
    out: Out = None,
    options: TuneSettings = (),
    languages: Languages = "",
    train_language: TrainLanguage = "en",
) -> Frame:
    """Fine-tune a model on English, then score every language: a study of one cell. A list of values is searched.

    Options are those after `--set`, such as `{"learning_rate": [2e-5, 5e-5], "num_train_epochs": 3}`. Another
    `train_language` is fine-tuned on and scored itself: the supervised score beside the zero-shot one. The fine-tuned
    model that development scores choose stays in the cell's folder. Writes `scores.json`, into
    `<run>/evaluation/<task>` if no folder is named.

    Returns:
        A row a score, with the columns of `Run.scores`.

    Raises:
        ConfigError: an argument cannot mean anything.
        DataError: model or data are missing or damaged.
        TrainingError: fine-tuning failed.
        LockError: another process writes the folder, or has taken it over.
    """
    settings = dict(options) if isinstance(options, Mapping) else dict(map(_read_option, options or ()))
    folders = as_paths(data)
    if not folders:
        raise ConfigError(f"--data is needed: the folder of {task}'s files; give it once for each folder.")
    from xalign_ray import evaluation
    from xalign_ray.studies.declared import check_options, parse_study
    from xalign_ray.studies.plan import check_task_files, plan_study
    from xalign_ray.studies.progress import Progress
    from xalign_ray.studies.study import open_queue, run_cells, scores_of
    from xalign_ray.tasks.registry import TUNED_TASKS
    from xalign_ray.tasks.scores import write_scores
    from xalign_ray.train.cluster_address import check_named_cluster
    from xalign_ray.work.job import open_job
    from xalign_ray.work.mirror import opened

    encoder, run = evaluation.find_encoder(as_model(model))
    target = evaluation.target_folder(as_path(out), run, encoder, evaluation.known_task(task, TUNED_TASKS)).absolute()
    check_options(task, settings)
    one = {
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
        "finetunings": [one],
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
        write_scores(target / SCORES, scores)
    evaluation.publish_scores(run)
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
