"""The verb over many fine-tunings: a sweep is planned, run, chosen from by development scores, and compared."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml
from rich.console import Console

from xalign_ray.artifacts import MANIFEST, SWEEP_KIND, finished_run, hash_file, hash_value, write_atomic, write_manifest
from xalign_ray.config.saved import CONFIG, read_saved
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.data.inputs import open_root
from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.evaluation import find_encoder
from xalign_ray.locks import LOCK, hold
from xalign_ray.pipeline import check_lasting, say
from xalign_ray.report.build import Chosen, report
from xalign_ray.report.log import Log
from xalign_ray.report.run import Run
from xalign_ray.run_folder import EXPORT
from xalign_ray.tasks.scores import SCORES, Score
from xalign_ray.tasks.sweep import SweepConfig, SweptEncoder, load_sweep
from xalign_ray.tasks.sweep_choice import SettingChoice, choose_settings, write_choices
from xalign_ray.tasks.sweep_plan import PlannedTrial, check_task_files, plan_trials, read_plan, whole_plan, write_plan
from xalign_ray.tasks.sweep_run import SweepRun, describe
from xalign_ray.track.events import EVENT_LOG, EventLog, last_attempt
from xalign_ray.track.follower import resolve_uri
from xalign_ray.train.driver import connect

TUNING = "tuning"


def run(name: str, out: Path | None = None, settings: Sequence[str] = (), resume: bool = False) -> Path:
    """Runs the trials of a sweep that have not ended, chooses settings, and compares the encoders.

    A sweep that was interrupted goes on when it is given again; what has ended is not repeated.

    Args:
        name: a sweep of the package or a file.
        out: the folder of runs, `runs` if not given; the sweep's own is `tuning/<name>` in it.
        settings: `key=value` over the file's.
        resume: finish the trials that were planned when the sweep was begun, even if the file has changed since.

    Returns:
        The sweep's folder.

    Raises:
        ConfigError: it cannot mean anything, is not there to be resumed, or its folder holds other trials.
        TrainingError: trials failed; everything else has been done and is on disk.
    """
    check_lasting("--out", out or Path("runs"))
    output = (out or Path("runs")).absolute()
    sweep = load_sweep(name, settings)
    sweep = sweep.model_copy(update={"root": str(open_root(sweep.root, output).resolve())})
    folder = output / TUNING / sweep.name
    with hold(folder, f"tune {sweep.name}"):
        _run(sweep, folder, output, resume)
    return folder


def _run(sweep: SweepConfig, folder: Path, output: Path, resume: bool) -> None:
    sweep, planned = _resume(sweep, folder) if resume else _plan(sweep, folder, output)
    job = SweepRun(sweep, planned, folder, None if sweep.mlflow == "off" else resolve_uri(sweep.mlflow, output), say)
    write_atomic(folder / CONFIG, yaml.safe_dump(sweep.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
    with _logged(job):
        beside = job.evaluate_beside()
        if not job.has_ended():
            _connect(sweep)
        outcome = job.run_trials()
        choices = choose_settings(planned, job.manifests())
        write_choices(folder, choices)  # before a test score is looked at
        job.write_states(outcome.failures)
        _compare(job, choices, beside, outcome.scores)
        if outcome.failures:
            titles = {one.trial.name: describe(one) for one in planned}
            reasons = "\n".join(f"  {titles[failed]}: {why}" for failed, why in outcome.failures.items())
            raise TrainingError(
                f"{len(outcome.failures)} of {len(planned)} trials of {sweep.name} failed; the same command tries them "
                f"again.\n{reasons}"
            )
        what = {"kind": SWEEP_KIND, "name": sweep.name, "trials": len(outcome.scores)}
        write_manifest(folder, what | {"files": _hash_made(folder)})


def _hash_made(folder: Path) -> dict[str, str]:
    """What reports and MLflow are made from; the log of the sweep is still open, models are in their trials' manifests.

    Of each trial and evaluation beside: its log, scores and manifest.
    """
    own = [path for path in folder.iterdir() if path.is_file() and path.name not in (MANIFEST, EVENT_LOG, LOCK)]
    inner = [path for name in (EVENT_LOG, SCORES, MANIFEST) for path in folder.glob(f"*/**/{name}")]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in sorted([*own, *inner])}


def _resume(sweep: SweepConfig, folder: Path) -> tuple[SweepConfig, list[PlannedTrial]]:
    """The sweep and the trials on disk, whatever the file says now."""
    saved = read_plan(folder)
    if saved is None:
        raise ConfigError(f"{folder} holds no sweep to resume; leave out --resume to begin one.")
    if saved[0] != sweep:
        say(f"{sweep.name} has changed since it was begun; the {len(saved[1])} trials planned then are finished.")
    return saved


def _plan(sweep: SweepConfig, folder: Path, output: Path) -> tuple[SweepConfig, list[PlannedTrial]]:
    """The trials of the file, written to disk before anything runs."""
    root = Path(sweep.root)
    encoders = {encoder.shown: _encoder_of(encoder, output) for encoder in sweep.encoders}
    for evaluation in sweep.evaluate:
        if not (root / evaluation.data).exists():
            raise ConfigError(f"evaluate: {root / evaluation.data}, data of {evaluation.task}, is missing.")
    planned = plan_trials(sweep, encoders, root)
    for task in sweep.tasks:
        if others := check_task_files(task, root):
            say(f"{task.task}: {others}")
    saved = whole_plan(folder)
    if saved is not None and saved[1] != planned:
        raise ConfigError(
            f"{folder} holds a sweep of {len(saved[1])} trials that are not those of this file. --resume finishes "
            "them; to begin anew give this one another name, or another --out."
        )
    write_plan(folder, sweep, planned)
    return sweep, planned


def _encoder_of(encoder: SweptEncoder, output: Path) -> str:
    """Folder or hub id; of a recipe its only finished run in the output folder."""
    if encoder.model:
        found, _ = find_encoder(encoder.model)
        return str(Path(found).resolve()) if Path(found).is_dir() else found
    stem, recipe = encoder.recipe.replace("/", "-"), encoder.recipe
    runs = [path for path in sorted(output.glob(f"{stem}-*")) if read_saved(path).get("recipe") == recipe]
    finished = [path for path in runs if finished_run(path) is not None]
    if len(finished) == 1:
        return str((finished[0] / EXPORT).resolve())
    if finished:
        names = ", ".join(path.name for path in finished)
        raise ConfigError(f"{output} has several finished runs of {recipe} ({names}); name one with `model`.")
    raise ConfigError(
        f"{output} has no finished run of {recipe}; `xalign pretrain {recipe} --set output={output}` makes one, or "
        "name a folder with `model`."
    )


def _connect(sweep: SweepConfig) -> None:
    """Joins the cluster, or starts one of this machine's cores."""
    connect(ParallelConfig(), max(os.cpu_count() or 1, math.ceil(sweep.resources.cpus_per_trial)))


@contextmanager
def _logged(job: SweepRun) -> Iterator[None]:
    """Start and end of a sweep in a log of its own; MLflow has caught up when it is over, whatever happened."""
    (job.folder / MANIFEST).unlink(missing_ok=True)
    path = job.folder / EVENT_LOG
    fingerprint = hash_value([one.trial.name for one in job.planned])
    params = {"search": job.sweep.search.kind, "trials": len(job.planned)}
    try:
        with EventLog(path, last_attempt(path) + 1) as log:
            log.write("start", 0, recipe=f"{TUNING}/{job.sweep.name}", fingerprint=fingerprint, params=params)
            yield
            log.write("end", 0)
    finally:
        if said := job.publish(job.folder):
            say(said)


def _compare(
    job: SweepRun,
    choices: Sequence[SettingChoice],
    beside: Mapping[str, Sequence[Score]],
    tuned: Mapping[str, Sequence[Score]],
) -> None:
    """Writes and shows the comparison of the chosen settings, the evaluations beside among them."""
    scores: dict[str, list[Score]] = {label: [] for label in job.sweep.labels}
    for encoder, own in beside.items():
        scores[next(choice.label for choice in choices if choice.encoder == encoder)] += own
    for choice in choices:
        trials = choice.chosen.trials.values() if choice.chosen else ()
        scores[choice.label] += [score for name in trials for score in tuned[name]]
    scored = {label: own for label, own in scores.items() if own}
    if not scored:
        return
    baseline = job.sweep.baseline if job.sweep.baseline in scored else None
    runs = [Run(Path(label), {}, Log(), tuple(own)) for label, own in scored.items()]
    files, table = report(runs, job.folder, Chosen(list(scored), baseline))
    Console(stderr=True).print(table)
    say(f"{files.markdown}, {files.comparison.name}, {files.page.name}")
