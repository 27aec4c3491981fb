"""The verb `tune`: one encoder fine-tuned for one task, as a study of one cell, or of a list's cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xalign_ray import evaluation
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.studies.declared import check_options, parse_study
from xalign_ray.studies.plan import check_task_files, plan_study
from xalign_ray.studies.progress import Progress
from xalign_ray.studies.study import open_queue, run_cells, scores_of
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import SCORES, Score, write_scores
from xalign_ray.train.cluster_address import check_named_cluster
from xalign_ray.work.job import open_job
from xalign_ray.work.local_paths import shown_path
from xalign_ray.work.mirror import opened
from xalign_ray.work.status_line import say


def tune(
    model: str,
    task: str,
    data: Sequence[Path],
    out: Path | None = None,
    options: Mapping[str, Any] | None = None,
    languages: Sequence[str] | None = None,
    train_language: str = "en",
    show: Callable[[list[Score]], None] = lambda _: None,
) -> list[Score]:
    """Fine-tunes an encoder on English and scores it in every language.

    Another `train_language` is fine-tuned on and scored itself: the supervised score beside the zero-shot one. The
    fine-tuned model that development scores choose stays in the cell's folder. `show` gets the scores
    before the last lines.
    """
    if not data:
        raise ConfigError(f"--data is needed: the folder of {task}'s files; give it once for each folder.")
    encoder, own_run = evaluation.find_encoder(model)
    target = evaluation.target_folder(out, own_run, encoder, evaluation.known_task(task, TUNED_TASKS)).absolute()
    settings = dict(options or {})
    check_options(task, settings)
    one = {
        "task": task,
        "data": [str(opened(folder).absolute()) for folder in data],
        "languages": list(languages or ()),
        "train_language": train_language,
        "seeds": [settings.pop("seed", 0)],
        "settings": settings,
    }
    tree = {
        "name": task,
        "root": "/",
        "encoders": [{"model": encoder, "label": evaluation.name_of(encoder, own_run)}],
        "finetunings": [one],
        "keep_models": True,
        "mlflow": "off",
    }
    study = parse_study(tree, {}, "--set")
    say(f"Fine-tuning {evaluation.name_of(encoder, own_run)} on {task}: planning; output is {shown_path(target)}.")
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
    evaluation.publish_scores(own_run)
    show(scores)
    evaluation.say_scores(target, own_run)
    return scores
