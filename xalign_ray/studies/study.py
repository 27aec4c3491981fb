"""The verb `study`: plans a declared grid of cells, runs it, reports; settings and rates are chosen by dev scores."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_ray import evaluation, pretraining
from xalign_ray.checks import check_recipe
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.errors import ConfigError, DataError, TrainingError
from xalign_ray.sources.inputs import check_inputs
from xalign_ray.studies.cells import EVALUATION, FINISHED, TOKENIZED, WAITING, Cell, write_choices
from xalign_ray.studies.declared import StudyConfig, load_study
from xalign_ray.studies.plan import Plan, check_contents, check_task_files, plan_study
from xalign_ray.studies.progress import Progress, StudyPublisher, describe_plan, describe_power
from xalign_ray.studies.rates import choose_rates, rates_at_an_end, read_rates, trial_study, with_rates
from xalign_ray.tasks.scores import SCORES, Score, read_scores, write_scores
from xalign_ray.track.destinations import check_uri, open_command, resolve_uri
from xalign_ray.track.events import EVENT_LOG
from xalign_ray.train.cluster_address import check_named_cluster
from xalign_ray.work.artifacts import MANIFEST, STUDY_KIND, hash_file, hash_value, write_atomic
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import check_lasting, local_folder, url_of
from xalign_ray.work.run_folder import CHOICES, RATES, RUNS, STUDY, RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import shown_path

if TYPE_CHECKING:
    from xalign_ray.studies.queue import Queue

STUDIES = "studies"
SPARE_CPUS = 1  # of a cluster started here, for what else Ray runs


def show_plan(name: str, out: Path | None = None, settings: Sequence[str] = (), encoder: str = "") -> str:
    """The cells of a study as text: done or not, resources, missing files, power. Starts nothing.

    Of a study that chooses rates these are first the trials of all rates, then its own cells at the lowest one.
    """
    output = _output_of(out)
    study = load_study(name, settings, encoder)
    power = describe_power(study)
    if not study.rates:
        return _show_plan(study, output, power)
    if study.rates.chosen:
        return _show_plan(with_rates(study, read_rates(study, Path(study.rates.chosen))), output, power)
    lowest = dict.fromkeys(
        (encoder.shown for encoder in study.encoders if encoder.recipe), min(study.rates.learning_rate)
    )
    trials = _show_plan(trial_study(study), output)
    plan_text = _show_plan(with_rates(study, lowest), output, power)
    return f"Rates, tried first:\n{trials}\n\nThen, with the chosen rates (here the lowest):\n{plan_text}"


def _show_plan(study: StudyConfig, output: Path, *said: str) -> str:
    plan = make_plan(study, output)
    shown = describe_plan(open_queue(plan, output / STUDIES / study.name))
    unprepared = [cell.recipe for cell in plan.pretrainings if not _is_prepared(cell.recipe)]
    lacks: dict[str, None] = {}
    for check in (partial(check_task_files, plan), *(partial(check_inputs, recipe.config) for recipe in unprepared)):
        try:
            check()
        except DataError as error:
            lacks[f"Before it can run: {error}"] = None
    return "\n".join([shown, *said, *lacks])


def run_study(
    name: str, out: Path | None = None, settings: Sequence[str] = (), rehash: bool = False, encoder: str = ""
) -> Path:
    """Runs the cells of a study that have not ended, side by side; chooses settings; reports.

    A study that was interrupted goes on when it is given again; what has ended is not repeated.

    Args:
        name: a study of the package or a file.
        out: the folder of runs, data and studies, `runs` if not given; the study's own is `studies/<name>` in it.
        settings: `key=value`, of the study or for each of its recipes.
        rehash: read all input files again, whatever is remembered of them.
        encoder: folder or hub id that replaces the study's `encoder`.

    Returns:
        The report's page.

    Raises:
        ConfigError: it cannot mean anything, or the cluster is too small for it.
        TrainingError: cells failed; everything else has been done and is on disk.
    """
    output = _output_of(out)
    study = load_study(name, settings, encoder)
    if study.rates:
        written = Path(study.rates.chosen)
        if not study.rates.chosen:
            trials = trial_study(study)
            run_planned(trials, output, rehash)
            choose_rates(study, output / STUDIES / trials.name)
            written, rehash = output / STUDIES / trials.name / RATES, False
        rates = read_rates(study, written)
        say(f"Rates chosen for {study.name}: {', '.join(f'{label} {rate:g}' for label, rate in rates.items())}.")
        for sentence in rates_at_an_end(rates, study.rates.learning_rate):
            say(sentence)
        write_atomic(output / STUDIES / study.name / RATES, written.read_bytes())
        study = with_rates(study, rates)
    return run_planned(study, output, rehash)


def run_planned(study: StudyConfig, output: Path, rehash: bool = False) -> Path:
    """Runs the cells of a study whose rates are settled, and reports; see `run_study`."""
    say(f"Study {study.name}: planning its cells; output is {shown_path(output)}.")
    check_named_cluster()
    plan, folder = make_plan(study, output), output / STUDIES / study.name
    if rehash:
        pretraining.forget_inputs(output)
    for unread in check_task_files(plan):
        say(unread)
    uri = None if study.mlflow == "off" else resolve_uri(study.mlflow, output)
    if uri:
        check_uri(uri)
    identity = {
        "recipe": f"{STUDIES}/{study.name}",
        "fingerprint": hash_value(study.name),
        "params": {"encoders": len(plan.encoders)},
        "labels": {"scale": study.scale},
    }
    with (
        ExitStack() as after,
        open_job(folder, f"study {study.name}", identity, waits=False, upload=None) as job,
    ):
        publisher = StudyPublisher(folder, uri, study.experiment or study.name) if uri else None
        if publisher:
            after.callback(publisher.finish)  # once the manifest is there, too
        queue = open_queue(plan, folder)
        progress = Progress(queue, publisher)
        chosen = run_cells(queue, progress)
        progress.write()
        _give_scores_to_runs(queue, chosen)
        if queue.failures:
            reasons = "\n".join(f"  {cell}: {why}" for cell, why in queue.failures.items())
            raise TrainingError(
                f"{len(queue.failures)} cells of {study.name} failed; the same command tries them again.\n{reasons}"
            )
        from xalign_ray.results.report import report  # pandas, which takes a second to import

        page = report([str(folder)])
        inner = sorted(path for name in (EVENT_LOG, SCORES, MANIFEST) for path in folder.glob(f"*/*/{name}"))
        state_files = (path for name in (STUDY, CHOICES, RATES) if (path := folder / name).is_file())
        files = {path.relative_to(folder).as_posix(): hash_file(path) for path in (*state_files, *inner)}
        job.finish({"kind": STUDY_KIND, "name": study.name, "files": files})
    say(f"Report: {shown_path(page)}")
    if publisher:
        say(f"MLflow: {open_command(publisher.uri, publisher.page)}")
    return page


def open_queue(plan: Plan, folder: Path) -> Queue:
    """The cells of a plan, with what has ended in a study's folder."""
    from xalign_ray.studies.queue import Queue  # Ray is not imported before names are right

    return Queue(plan, folder)


def run_cells(queue: Queue, progress: Progress) -> list[Cell]:
    """Runs what has not ended, then chooses, before a test score is read.

    Args:
        queue: of the study; has the failures when this returns.
        progress: of the study.

    Returns:
        The fine-tunings of chosen settings.
    """
    if not queue.is_over:
        if done := len(queue.cells) - queue.left:
            say(f"{done} of {len(queue.cells)} cells had ended before.")
        unprepared = [cell.recipe for cell in queue.plan.pretrainings if not _is_prepared(cell.recipe)]
        for recipe in unprepared:
            check_inputs(recipe.config)
        for left_out in check_contents(queue.plan):
            say(left_out)
        _check_hub_models(queue)
        _connect(queue)
        for recipe in unprepared:  # in turn: each takes all CPUs
            if not _is_prepared(recipe):  # recipes share shards
                pretraining.prepare(recipe)
        try:
            queue.run(progress.report_end, progress.write_if_due)
        finally:
            progress.write()
    from xalign_ray.finetune.tune import MODEL  # torch

    write_choices(queue.folder, queue.choices())
    chosen = queue.kept
    for cell in queue.trials:
        if not chosen.get(cell.name):
            shutil.rmtree(cell.folder(queue.folder) / MODEL, ignore_errors=True)
    if not queue.failures:
        shutil.rmtree(queue.folder / TOKENIZED, ignore_errors=True)
    return [cell for cell in queue.trials if chosen.get(cell.name)]


def scores_of(queue: Queue, cells: Sequence[Cell]) -> list[Score]:
    """All scores of cells that have finished."""
    return [score for cell in cells for score in read_scores(cell.folder(queue.folder) / SCORES)]


def _output_of(out: Path | None) -> Path:
    output = out or RUNS
    if (folder := local_folder(output)) != output:
        raise ConfigError(
            f"--out is a URL: the cells of a study are written to a folder that all nodes share. Name one, and put the "
            f"runs into the store with --set output={url_of(folder)}."
        )
    check_lasting("--out", output)
    return output.absolute()


def make_plan(study: StudyConfig, output: Path) -> Plan:
    """The plan of a study, each recipe checked; starts nothing."""
    plan = plan_study(study, output, _open_model)
    for cell in plan.pretrainings:
        check_recipe(cell.recipe)
    return plan


def _open_model(model: str) -> str:
    model_path, _ = evaluation.find_encoder(model)
    return str(Path(model_path).resolve()) if Path(model_path).is_dir() else model_path


def _is_prepared(recipe: Recipe) -> bool:
    with suppress(DataError):
        return pretraining.find_run(recipe) is not None
    return False


def _check_hub_models(queue: Queue) -> None:
    """A model that cannot be downloaded is refused now, not after hours of pretraining."""
    waiting = {cell.model for cell, end in queue.ends.items() if end.state == WAITING}
    exported = {name for name in waiting if name and RunFolder.step_of(Path(name)) is not None}  # once its cell is due
    for model in sorted(name for name in waiting - exported if name and not Path(name).is_dir()):
        from xalign_ray.models.hub import encoder_folder  # the hub's client, which folders do without

        encoder_folder(model)


def _connect(queue: Queue) -> None:
    """Joins the cluster, or starts one of this machine's cores, or of more where a cell needs them."""
    from xalign_ray.train.cluster import connect

    pretrainings, most = queue.plan.pretrainings, max(cell.resources.cpus for cell in queue.cells)
    parallel = pretrainings[0].recipe.config.parallel if pretrainings else ParallelConfig()
    connect(parallel, max(os.cpu_count() or 1, math.ceil(most) + SPARE_CPUS))


def _give_scores_to_runs(queue: Queue, chosen: Sequence[Cell]) -> None:
    """Writes the scores of evaluations and chosen fine-tunings on English into each run: its card shows them."""
    shown = [cell for cell in chosen if cell.training.name == "english"]
    shown += [cell for cell in queue.cells if cell.kind == EVALUATION and queue.ends[cell].state == FINISHED]
    for encoder in queue.plan.encoders:
        cells_of_encoder = [cell for cell in shown if cell.model == encoder.model]
        of_recipe = encoder.pretraining and encoder.pretraining.recipe
        if of_recipe and encoder.step is None and encoder.model and cells_of_encoder:
            run = RunFolder(Path(encoder.model).parent)
            target = run.evaluation(queue.plan.study.name)
            with open_job(target, "study"):
                (target / MANIFEST).unlink(missing_ok=True)  # of an `evaluate` into the same folder
                write_scores(target / SCORES, scores_of(queue, cells_of_encoder))
            evaluation.publish_scores(run.path)
