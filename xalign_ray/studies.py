"""The verbs over many cells: a study is planned, run side by side, chosen from by development scores, and reported."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from xalign_ray import evaluation as scoring
from xalign_ray import pipeline
from xalign_ray.artifacts import MANIFEST, STUDY_KIND, hash_file, hash_value, whole_manifest, write_manifest
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.data.inputs import check_inputs
from xalign_ray.errors import ConfigError, DataError, TrainingError
from xalign_ray.experiments.cell_log import Notes, pretraining_of, seconds_of
from xalign_ray.experiments.cells import FINISHED, TOKENIZED, Cell, FineTune, cell_folder
from xalign_ray.experiments.choice import CHOICES, Choice, write_choices
from xalign_ray.experiments.declared import StudyConfig, load_study, parse_study
from xalign_ray.experiments.plan import Plan, check_task_files, plan_study
from xalign_ray.experiments.record import STUDY, describe_plan, write_record
from xalign_ray.experiments.verbs import Job, Verbs
from xalign_ray.finetune.tune import MODEL
from xalign_ray.locks import hold
from xalign_ray.report.build import Chosen
from xalign_ray.report.build import report as write_report
from xalign_ray.report.groups import read_sizes
from xalign_ray.report.sources import MLFLOW, find_runs
from xalign_ray.run_folder import EXPORT, RunFolder
from xalign_ray.tasks.scores import SCORES, Score, read_scores, write_scores
from xalign_ray.track.events import EVENT_LOG, EventLog, last_attempt, run_identity
from xalign_ray.track.follower import open_command, publish, resolve_uri

if TYPE_CHECKING:
    from xalign_ray.experiments.schedule import Schedule

QUICKSTART = "quickstart"
RUNS = Path("runs")
STUDIES = "studies"
SPARE_CPUS = 1  # of a cluster started here, for what else Ray runs


def report(
    runs: Sequence[str],
    out: Path | None = None,
    by: Sequence[str] = (),
    sizes: Path | None = None,
    baseline: str | None = None,
    tracking: str = "sqlite",
) -> Path:
    """One page on a run or study (inside its folder) or on several compared.

    Args:
        runs: folders of runs or studies, `mlflow:EXPERIMENT`, `mlflow:RUN_ID`.
        out: folder of the report.
        by: groupings, the first one for the terminal; all that are possible if none are given.
        sizes: a CSV file with the size of each language's Wikipedia.
        baseline: label of the column that the others are compared with, the first if None.
        tracking: where MLflow is, as `track.mlflow` in a recipe; `sqlite` is runs/mlflow.db.

    Returns:
        The page.
    """
    alone = len(runs) == 1 and not runs[0].startswith(MLFLOW)
    target = out or (Path(runs[0]) / "report" if alone else Path("report"))
    found = find_runs(runs, resolve_uri(tracking, RUNS))
    chosen = Chosen(baseline=baseline, by=by, sizes=read_sizes(sizes) if sizes else {})
    files, table = write_report(found, target, chosen)
    if table.row_count:
        Console(stderr=True).print(table)
    return files.page


def plan(name: str, out: Path | None = None, settings: Sequence[str] = ()) -> str:
    """The cells of a study as text: which there are, what is done, what each needs. Starts nothing."""
    output = (out or RUNS).absolute()
    study = load_study(name, settings)
    planned = _plan(study, output)
    return describe_plan(_open(planned, output / STUDIES / study.name, _Progress(planned, Path(), None).verbs))


def run(name: str, out: Path | None = None, settings: Sequence[str] = (), rehash: bool = False) -> Path:
    """Runs the cells of a study that have not ended, side by side; chooses settings; reports.

    A study that was interrupted goes on when it is given again; what has ended is not repeated.

    Args:
        name: a study of the package or a file.
        out: the folder of runs, data and studies, `runs` if not given; the study's own is `studies/<name>` in it.
        settings: `key=value`, of the study or for each of its recipes.
        rehash: read all input files again, whatever is remembered of them.

    Returns:
        The report's page.

    Raises:
        ConfigError: it cannot mean anything, or the cluster is too small for it.
        TrainingError: cells failed; everything else has been done and is on disk.
    """
    pipeline.check_lasting("--out", out or RUNS)
    output = (out or RUNS).absolute()
    study = load_study(name, settings)
    planned = _plan(study, output)
    if rehash:
        pipeline.forget_inputs(output)
    for one in study.finetunings:
        if others := check_task_files(one, planned.root):
            pipeline.say(f"{one.task}: {others}")
    folder = output / STUDIES / study.name
    uri = None if study.mlflow == "off" else resolve_uri(study.mlflow, output)
    with hold(folder, f"study {study.name}"), _logged(planned, folder, uri) as progress:
        schedule = _open(planned, folder, progress.verbs)
        failures = _run(schedule, progress)
        write_record(schedule)
        _collect(schedule, study.name)
        if failures:
            reasons = "\n".join(f"  {job}: {why}" for job, why in failures.items())
            raise TrainingError(
                f"{len(failures)} cells of {study.name} failed; the same command tries them again.\n{reasons}"
            )
        page = report([str(folder)])
        files = {path.relative_to(folder).as_posix(): hash_file(path) for path in _made(folder)}
        write_manifest(folder, {"kind": STUDY_KIND, "name": study.name, "files": files})
    return page


def tune(
    model: str,
    task: str,
    data: Sequence[Path],
    out: Path | None = None,
    options: Mapping[str, Any] | None = None,
    languages: Sequence[str] | None = None,
    train_language: str = "en",
) -> list[Score]:
    """Fine-tunes an encoder on English and scores it in every language: a study of one cell, or of a list's cells.

    Another `train_language` is fine-tuned on and scored itself: the supervised score beside the zero-shot one. The
    fine-tuned model that development scores choose stays in the cell's folder.
    """
    from xalign_ray.tasks.registry import TUNED_TASKS

    if not data:
        raise ConfigError(f"--data is needed: the folder of {task}'s files; give it once for each folder.")
    encoder, own_run = scoring.find_encoder(model)
    target = scoring.target_folder(out, own_run, scoring.known_task(task, TUNED_TASKS)).absolute()
    given = dict(options or {})
    one = {
        "task": task,
        "data": [str(folder.absolute()) for folder in data],
        "languages": list(languages or ()),
        "train_language": train_language,
        "seeds": [given.pop("seed", 0)],
        "settings": given,
    }
    tree = {
        "name": task,
        "root": "/",
        "encoders": [{"model": encoder}],
        "finetunings": [one],
        "keep_models": True,
        "mlflow": "off",
    }
    study = parse_study(tree, {}, "--set")
    planned = plan_study(study, target, str)
    if others := check_task_files(study.finetunings[0], planned.root):
        pipeline.say(others)
    parent = run_identity(own_run) if own_run else None
    progress = _Progress(planned, target, None, parent, own_run.name if own_run else encoder)
    with hold(target, f"tune {task}"):
        schedule = _open(planned, target, progress.verbs)
        failures = _run(schedule, progress)
        kept = _kept(schedule.cells, schedule.choices())
        scores = [score for cell in kept for score in read_scores(cell_folder(target, cell) / SCORES)]
        if failures and not scores:
            raise TrainingError(f"Fine-tuning {encoder} on {task} failed: {next(iter(failures.values()))}")
        write_scores(target / SCORES, scores)
    scoring.publish_scores(own_run)
    return scores


def quickstart(out: Path | None = None) -> None:
    """MLM against ALIGN-MLM on the embedded world: prepare, pretrain, export, evaluate, track, report."""
    output = out or RUNS
    page = run(QUICKSTART, output)
    pipeline.say(f"Report:  {page}")
    pipeline.say(f"MLflow:  {open_command(resolve_uri('sqlite', output.absolute()))}")


def _plan(study: StudyConfig, output: Path) -> Plan:
    planned = plan_study(study, output, lambda model: _whole(scoring.find_encoder(model)[0]))
    for cell in planned.pretrainings:
        pipeline.check(cell.recipe)
    return planned


def _open(planned: Plan, folder: Path, verbs: Verbs) -> Schedule:
    from xalign_ray.experiments.schedule import Schedule  # Ray is not imported before names are right

    return Schedule(planned, folder, verbs)


def _whole(model: str) -> str:
    return str(Path(model).resolve()) if Path(model).is_dir() else model


def _run(schedule: Schedule, progress: _Progress) -> Mapping[Job, str]:
    """Everything that has not ended, then the choice, before a test score is read; returns what failed."""
    if not schedule.is_over:
        progress.begin(schedule)
        unprepared = [cell.recipe for cell in schedule.plan.pretrainings if not _is_prepared(cell.recipe)]
        for recipe in unprepared:
            check_inputs(recipe.config)
        _connect(schedule.plan)
        for recipe in unprepared:
            pipeline.prepare(recipe)  # one after the other: each takes all CPUs
        schedule.run()
    choices = schedule.choices()
    write_choices(schedule.folder, choices)
    kept = _kept(schedule.cells, choices)
    for cell in schedule.cells:
        if cell not in kept:
            shutil.rmtree(cell_folder(schedule.folder, cell) / MODEL, ignore_errors=True)
    if not schedule.failures:
        shutil.rmtree(schedule.folder / TOKENIZED, ignore_errors=True)
    return schedule.failures


def _is_prepared(recipe: Recipe) -> bool:
    with suppress(DataError):
        return pipeline.find_run(recipe) is not None
    return False


def _kept(cells: Sequence[Cell], choices: Sequence[Choice]) -> list[Cell]:
    """The fine-tunings of chosen settings that have finished."""
    names = {name for choice in choices if choice.kept for name in choice.kept.development}
    return [cell for cell in cells if cell.job.name in names]


def _connect(planned: Plan) -> None:
    """Joins the cluster, or starts one of this machine's cores, or of more where a cell needs them."""
    from xalign_ray.train.driver import connect

    pretrainings = planned.pretrainings
    cells = [cell for encoder in planned.encoders for cell in planned.cells_of(encoder, encoder.model)]
    most = max([*(cell.resources.cpus for cell in pretrainings), *(cell.resources.cpus for cell in cells), 0])
    parallel = pretrainings[0].recipe.config.parallel if pretrainings else ParallelConfig()
    connect(parallel, max(os.cpu_count() or 1, math.ceil(most) + SPARE_CPUS))


def _collect(schedule: Schedule, name: str) -> None:
    """Gives each run of ours the scores of its evaluations and chosen fine-tunings on English: its card shows them."""
    kept = _kept(schedule.cells, schedule.choices())
    for place, encoder in enumerate(schedule.plan.encoders):
        model = Path(schedule.models.get(place, ""))
        if encoder.pretraining is None or place not in schedule.models:
            continue
        own = [cell for cell in schedule.cells if cell.job.model == str(model)]
        shown = [cell for cell in own if cell in kept and cell.job.training.kind == "english"]  # type: ignore[union-attr]
        shown += [cell for cell in own if not isinstance(cell.job, FineTune) and schedule.state(cell) == FINISHED]
        scores = [score for cell in shown for score in read_scores(cell_folder(schedule.folder, cell) / SCORES)]
        if scores:
            write_scores(RunFolder(model.parent).evaluation(name) / SCORES, scores)
            scoring.publish_scores(model.parent)


def _made(folder: Path) -> list[Path]:
    """What reports and MLflow are made from; the log of the study is still open, models have manifests of their own."""
    inner = [path for name in (EVENT_LOG, SCORES, MANIFEST) for path in folder.glob(f"*/*/{name}")]
    return sorted([folder / STUDY, folder / CHOICES, *inner])


@contextmanager
def _logged(planned: Plan, folder: Path, uri: str | None) -> Iterator[_Progress]:
    """Start and end of a study in a log of its own; MLflow has caught up when it is over, whatever happened."""
    (folder / MANIFEST).unlink(missing_ok=True)
    study, path = planned.study, folder / EVENT_LOG
    params = {"search": study.search.kind, "encoders": len(planned.encoders)}
    with EventLog(path, last_attempt(path) + 1) as log:
        log.write("start", 0, recipe=f"{STUDIES}/{study.name}", fingerprint=hash_value(study.name), params=params)
        progress = _Progress(planned, folder, uri, run_identity(folder))
        try:
            yield progress
            log.write("end", 0)
        finally:
            progress.close()


class _Progress:
    """Says a line for each cell that ends, and has it brought to MLflow by one thread, which no cell waits for."""

    def __init__(
        self,
        planned: Plan,
        folder: Path,
        uri: str | None,
        parent: Mapping[str, str] | None = None,
        title: str = "",
    ) -> None:
        self._study, self._folder, self._uri = planned.study, folder, uri
        self._parent, self._title = parent, title
        self._publisher = ThreadPoolExecutor(1)  # MLflow has one writer
        self._schedule: Schedule | None = None
        self._ended = self._all = 0
        self.verbs = Verbs(self._find, self._pretrain, self._notes_of, self._report_end)

    def begin(self, schedule: Schedule) -> None:
        """Counts what is to be done, and says what was done before."""
        self._schedule = schedule
        self._all = schedule.size
        self._ended = schedule.size - schedule.left
        if self._ended:
            pipeline.say(f"{self._ended} of {self._all} cells had ended before.")
        self._publish(self._folder)

    def close(self) -> None:
        """Brings the study to MLflow as it is now."""
        self._publisher.shutdown(cancel_futures=True)
        if self._uri and (said := self._bring(self._folder)):
            pipeline.say(said)

    def _find(self, recipe: Recipe) -> Path | None:
        with suppress(DataError):
            if (folder := pipeline.find_run(recipe)) is not None and folder.is_dir() and whole_manifest(folder):
                pipeline.check_run(folder)
                return folder / EXPORT
        return None

    def _pretrain(self, recipe: Recipe, title: str) -> Path:
        return pipeline.pretrain(recipe, title=title) / EXPORT

    def _notes_of(self, cell: Cell) -> Notes:
        title = f"{self._title} {cell.job.task}" if self._title else str(cell)
        return Notes(title, cell.encoder, self._parent, pretraining_of(cell.job.model))

    def _report_end(self, job: Job, state: str, reason: str) -> None:
        self._ended += 1
        parts = [f"{state} {reason}".strip()]
        if isinstance(job, Cell):
            folder = cell_folder(self._folder, job)
            if (development := (whole_manifest(folder) or {}).get("development")) is not None:
                parts = [f"development {development:.3f}"]
            seconds = seconds_of(folder)
            parts += [f"{seconds:.0f} s"] if seconds is not None else []
            self._publish(folder)
        pipeline.say(f"[{self._ended}/{self._all}] {job}: {', '.join(parts)}")
        if self._schedule:
            write_record(self._schedule)

    def _publish(self, folder: Path) -> None:
        if self._uri and run_identity(folder):
            self._publisher.submit(self._bring, folder)

    def _bring(self, folder: Path) -> str | None:
        assert self._uri
        return publish(folder, self._uri, self._study.experiment or self._study.name)
