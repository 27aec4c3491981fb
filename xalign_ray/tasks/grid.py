"""Fine-tuning trials side by side under Ray Tune: a dead one is tried again, a poor one may be stopped early."""

from __future__ import annotations

import io
import logging
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

from xalign_ray.artifacts import hash_value, read_manifest, whole_manifest, write_json
from xalign_ray.errors import ConfigError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.training_set import Training
from xalign_ray.finetune.tune import tune_task
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import SCORES, Score, are_whole, read_scores
from xalign_ray.tasks.trial_log import FINISHED, STOPPED, TrialNotes, close_log, log_epoch, trial_logged

TRIALS = "trials"
STOP_MARK = "stopped.json"  # of a trial that was given up for others: it has no manifest, and is not run again


@dataclass(frozen=True, slots=True)
class Trial:
    """One fine-tuning: the arguments of `tune_task`, as plain values.

    Attributes:
        task: name in `TUNED_TASKS`.
        encoder: folder or hub id.
        data: folders of the task's files.
        settings: learning rate, epochs, batch size, seed.
        training: what is made of the training files.
        languages: those to test; all that are found if None.
        train_language: see `tune_task`.
        device: a torch device.
    """

    task: str
    encoder: str
    data: tuple[str, ...]
    settings: FineTuning = field(default_factory=FineTuning)
    training: Training = field(default_factory=Training)
    languages: tuple[str, ...] | None = None
    train_language: str = "en"
    device: str = "cpu"

    @property
    def name(self) -> str:
        """Of the trial's folder, where paths are whole: equal trials have equal names, across runs of the grid."""
        return f"{self.task}-{hash_value(asdict(self))[:12]}"


@dataclass(frozen=True, slots=True)
class GridOutcome:
    """What became of each trial, by the name of the trial as it was given, in the order given.

    Attributes:
        scores: of the finished trials.
        failures: of those that died or failed, why.
        stopped: of those that were stopped early.
    """

    scores: Mapping[str, list[Score]]
    failures: Mapping[str, str]
    stopped: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Halving:
    """Asynchronous successive halving (ASHA, arXiv 1810.05934), each task and encoder for itself.

    Attributes:
        grace_epochs: before them no trial is stopped; the next look is after `factor` times as many, and so on.
        factor: one in so many trials goes on.
        max_epochs: that any trial has.
    """

    grace_epochs: int
    factor: float
    max_epochs: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial that has just come to its end: `finished`, `stopped`, or `failed` for a reason."""

    trial: Trial
    state: str
    reason: str = ""


def tune_grid(
    trials: Sequence[Trial],
    storage: Path,
    max_concurrent_trials: int,
    cpus_per_trial: float = 1,
    gpus_per_trial: float = 0,
    retries: int = 1,
    halving: Halving | None = None,
    notes: Mapping[Trial, TrialNotes] | None = None,
    told: Callable[[Ended], None] = lambda _ended: None,
) -> GridOutcome:
    """Runs the trials that are not finished, and collects all scores from files.

    A trial is finished when its folder `storage/trials/<name>` has a manifest, so a grid that was interrupted is
    continued by running it again; one that was stopped early stays so. Tune sees the development score only, after
    every epoch. A halving that is continued compares the trials that are left with each other.

    Args:
        trials: relative paths are taken from the current folder.
        storage: folder that every node sees.
        max_concurrent_trials: at most free CPUs / `cpus_per_trial`, else trials wait for each other.
        cpus_per_trial: may be a fraction, as `gpus_per_trial`.
        gpus_per_trial: 0 for CPU only; trials must then not name a CUDA device.
        retries: how often a trial that died or failed is begun anew before it is reported; the others go on.
        halving: stops trials whose development score is poor among those of their encoder, task and training.
        notes: what trials are called in MLflow.
        told: of each trial as it ends.
    """
    storage = storage.resolve()
    whole = {trial: _with_whole_paths(trial) for trial in trials}
    shown = {whole[trial]: note for trial, note in (notes or {}).items() if trial in whole}
    states = {trial: state_of(trial_folder(storage, trial)) for trial in whole.values()}
    for trial, state in states.items():
        if state:
            close_log(trial_folder(storage, trial), state)
    failures = _run(
        {trial: shown.get(trial, TrialNotes()) for trial, state in states.items() if not state},
        storage,
        _tuner_settings(max_concurrent_trials, halving),
        tune.FailureConfig(max_failures=retries),
        {"CPU": cpus_per_trial, "GPU": gpus_per_trial},
        told,
    )
    states = {given: state_of(trial_folder(storage, trial)) for given, trial in whole.items()}
    return GridOutcome(
        {
            given.name: read_scores(trial_folder(storage, whole[given]) / SCORES)
            for given, state in states.items()
            if state == FINISHED
        },
        {
            given.name: failures.get(whole[given].name, "it never ran")
            for given, state in states.items()
            if state is None
        },
        tuple(given.name for given, state in states.items() if state == STOPPED),
    )


def state_of(folder: Path) -> str | None:
    """What a trial's folder says: finished, stopped early, or None where it has yet to run."""
    if whole_manifest(folder, "development") is not None and are_whole(folder / SCORES):
        return FINISHED
    return STOPPED if (folder / STOP_MARK).is_file() else None


def trial_folder(storage: Path, trial: Trial) -> Path:
    """Where a trial is in the storage of a grid."""
    return storage / TRIALS / trial.name


def fitting_trials(cpus_per_trial: float, gpus_per_trial: float) -> int:
    """How many trials the joined cluster can run at once with what is free now.

    Raises:
        ConfigError: not a single one, even if nothing else ran.
    """
    asked = {name: amount for name, amount in (("CPU", cpus_per_trial), ("GPU", gpus_per_trial)) if amount}
    there, free = ray.cluster_resources(), ray.available_resources()
    for name, amount in asked.items():
        if amount > there.get(name, 0):
            raise ConfigError(
                f"resources.{name.lower()}s_per_trial is {amount:g}; the cluster has {there.get(name, 0):g} {name}. "
                "Lower it, or start larger nodes."
            )
    return max(1, min(int(free.get(name, 0) / amount + 1e-9) for name, amount in asked.items()))


def _tuner_settings(concurrent: int, halving: Halving | None) -> tune.TuneConfig:
    return tune.TuneConfig(
        metric="development",
        mode="max",
        max_concurrent_trials=concurrent,
        reuse_actors=True,  # a process imports torch and transformers once, not once a trial
        scheduler=_HalvingByGroup(halving) if halving else FIFOScheduler(),
    )


def _run(
    trials: Mapping[Trial, TrialNotes],
    storage: Path,
    settings: tune.TuneConfig,
    failures: tune.FailureConfig,
    resources: Mapping[str, float],
    told: Callable[[Ended], None],
) -> dict[str, str]:
    """Runs trials and tells why the failed ones failed, by name."""
    if not trials:
        return {}
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # the trials have logs of their own
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # it would turn Ctrl-C into trials that never ran
    space = [{"trial": asdict(trial), "notes": asdict(notes)} for trial, notes in trials.items()]
    tuner = tune.Tuner(
        tune.with_resources(_run_trial, dict(resources)),
        param_space={"storage": str(storage), "what": tune.grid_search(space)},
        tune_config=settings,
        run_config=tune.RunConfig(
            name=f"grid-{uuid.uuid4().hex[:8]}",  # Tune continues a name that it knows, with the old trials
            storage_path=str(storage / "ray"),
            failure_config=failures,
            callbacks=[_Watch(storage, told)],
            verbose=0,
        ),
    )
    for noisy in ("ray.tune.execution.tune_controller", "ray.tune.tune"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)  # tracebacks of trials whose failures are told anyway
    with redirect_stdout(io.StringIO()):  # Tune prints its table at verbose=0 too
        results = tuner.fit()
    return {
        trial_of(result.config["what"]["trial"]).name: _reason(result.error)
        for result in results
        if result.error is not None and result.config is not None
    }


def _run_trial(config: dict[str, Any]) -> None:
    """What a Tune worker does: the plain fine-tuning function; Tune hears of the development score of each epoch."""
    trial, notes = trial_of(config["what"]["trial"]), TrialNotes(**config["what"]["notes"])
    folder = trial_folder(Path(config["storage"]), trial)
    with trial_logged(folder, trial, notes) as log:

        def on_epoch(epoch: int, score: float) -> None:
            log_epoch(log, epoch, score)
            tune.report({"development": score, "epoch": epoch})  # where the scheduler gives the trial up, it ends here

        tune_task(
            TUNED_TASKS[trial.task],
            trial.encoder,
            [Path(path) for path in trial.data],
            folder,
            languages=trial.languages,
            settings=trial.settings,
            training=trial.training,
            train_language=trial.train_language,
            device=trial.device,
            on_epoch=on_epoch,
        )


class _HalvingByGroup(FIFOScheduler):
    """One ASHA for each encoder, task and training: development scores of different tasks cannot be compared."""

    def __init__(self, halving: Halving) -> None:
        super().__init__()
        self._halving = halving
        self._groups: dict[str, ASHAScheduler] = {}

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._group_of(trial).on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        return self._group_of(trial).on_trial_result(tune_controller, trial, result)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self._group_of(trial).on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        self._group_of(trial).on_trial_remove(tune_controller, trial)

    def _group_of(self, trial: Any) -> ASHAScheduler:
        own = trial_of(trial.config["what"]["trial"])
        name = replace(own, settings=FineTuning()).name
        if name not in self._groups:
            self._groups[name] = ASHAScheduler(
                time_attr="epoch",
                metric="development",
                mode="max",
                max_t=self._halving.max_epochs,
                grace_period=min(self._halving.grace_epochs, self._halving.max_epochs),
                reduction_factor=self._halving.factor,
                stop_last_trials=False,  # the last epoch is followed by the test
            )
        return self._groups[name]


class _Watch(tune.Callback):
    """Marks trials that were stopped early, and passes on how each trial ended."""

    def __init__(self, storage: Path, told: Callable[[Ended], None]) -> None:
        self._storage = storage
        self._told = told

    def __getstate__(self) -> dict[str, Any]:
        """Tune keeps a copy of its callbacks for a `Tuner.restore` that is never called: grids go on by their files."""
        return {}

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        own = trial_of(trial.config["what"]["trial"])
        folder = trial_folder(self._storage, own)
        if read_manifest(folder) is None:
            last = trial.last_result
            write_json(folder / STOP_MARK, {"epoch": last["epoch"], "development": last["development"]})
            close_log(folder, STOPPED)
        self._told(Ended(own, state_of(folder) or ""))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:  # noqa: ARG002
        # Tune brings this file to the storage later, where `trial.get_error` looks for it.
        said = Path(trial.error_file).read_text(encoding="utf-8") if trial.error_file else ""
        self._told(Ended(trial_of(trial.config["what"]["trial"]), "failed", _last_line(said)))


def trial_of(values: Mapping[str, Any]) -> Trial:
    """The trial whose `asdict` these values are, be they from JSON."""
    languages = values["languages"]
    return Trial(
        **dict(values)
        | {
            "data": tuple(values["data"]),
            "settings": FineTuning(**values["settings"]),
            "training": Training(
                **values["training"] | {key: tuple(values["training"][key]) for key in ("languages", "dictionaries")}
            ),
            "languages": None if languages is None else tuple(languages),
        }
    )


def _with_whole_paths(trial: Trial) -> Trial:
    """Workers run in folders of their own, so that relative paths would lead nowhere; a hub id stays as it is."""
    values = asdict(trial)
    encoder = Path(trial.encoder)
    return trial_of(
        values
        | {
            "encoder": str(encoder.resolve()) if encoder.is_dir() else trial.encoder,
            "data": [str(Path(path).resolve()) for path in trial.data],
            "training": values["training"]
            | {"dictionaries": [str(Path(path).resolve()) for path in trial.training.dictionaries]},
        }
    )


def _reason(error: Exception) -> str:
    return _last_line(str(error)) or type(error).__name__


def _last_line(said: str) -> str:
    """Of what went wrong: Ray puts the trial's own error at the end of its traceback."""
    lines = said.strip().splitlines()
    return lines[-1].removeprefix("xalign_ray.errors.") if lines else ""
