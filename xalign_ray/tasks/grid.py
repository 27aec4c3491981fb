"""Fine-tuning trials side by side under Ray Tune: a dead one is tried again, a finished one never."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ray import tune

from xalign_ray.artifacts import hash_value, read_manifest
from xalign_ray.tasks.fine_tune import FineTuning
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import SCORES, Score, read_scores
from xalign_ray.tasks.training import Training
from xalign_ray.tasks.tuning import tune_task

TRIALS = "trials"


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
        failures: of the others, why.
    """

    scores: Mapping[str, list[Score]]
    failures: Mapping[str, str]


def tune_grid(
    trials: Sequence[Trial],
    storage: Path,
    max_concurrent_trials: int,
    cpus_per_trial: float = 1,
    gpus_per_trial: float = 0,
    retries: int = 1,
) -> GridOutcome:
    """Runs the trials that are not finished, and collects all scores from files.

    A trial is finished when its folder `storage/trials/<name>` has a manifest, so a grid that was interrupted is
    continued by running it again. Tune sees the development score only.

    Args:
        trials: relative paths are taken from the current folder.
        storage: folder that every node sees.
        max_concurrent_trials: at most free CPUs / `cpus_per_trial`, else trials wait for each other (PITFALLS C2).
        cpus_per_trial: may be a fraction, as `gpus_per_trial`.
        gpus_per_trial: 0 for CPU only; trials must then not name a CUDA device.
        retries: how often a trial that died or failed is begun anew before it is reported; the others go on.
    """
    storage = storage.resolve()
    whole = {trial: _with_whole_paths(trial) for trial in trials}
    open_trials = [trial for trial in dict.fromkeys(whole.values()) if not _is_finished(storage, trial)]
    failures = _run(open_trials, storage, max_concurrent_trials, cpus_per_trial, gpus_per_trial, retries)
    finished = {given: _is_finished(storage, trial) for given, trial in whole.items()}
    return GridOutcome(
        {
            given.name: read_scores(_folder(storage, trial) / SCORES)
            for given, trial in whole.items()
            if finished[given]
        },
        {given.name: failures.get(trial.name, "it never ran") for given, trial in whole.items() if not finished[given]},
    )


def _run(
    trials: Sequence[Trial], storage: Path, concurrent: int, cpus: float, gpus: float, retries: int
) -> dict[str, str]:
    """Runs trials and tells why the failed ones failed, by name."""
    if not trials:
        return {}
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    tuner = tune.Tuner(
        tune.with_resources(_run_trial, {"CPU": cpus, "GPU": gpus}),
        param_space={"storage": str(storage), "trial": tune.grid_search([asdict(trial) for trial in trials])},
        tune_config=tune.TuneConfig(metric="development", mode="max", max_concurrent_trials=concurrent),
        run_config=tune.RunConfig(
            name=f"grid-{uuid.uuid4().hex[:8]}",  # Tune continues a name that it knows, with the old trials
            storage_path=str(storage / "ray"),
            failure_config=tune.FailureConfig(max_failures=retries),
            verbose=0,
        ),
    )
    with redirect_stdout(io.StringIO()):  # Tune prints its table at verbose=0 too
        results = tuner.fit()
    return {
        _trial_of(result.config).name: _reason(result.error)
        for result in results
        if result.error is not None and result.config is not None
    }


def _run_trial(config: dict[str, Any]) -> None:
    """What a Tune worker does: the plain fine-tuning function, then the development score for Tune."""
    trial = _trial_of(config)
    folder = _folder(Path(config["storage"]), trial)
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
    )
    manifest = read_manifest(folder)
    assert manifest is not None, f"{trial.name} returned without a manifest"
    tune.report({"development": manifest["development"]})


def _trial_of(config: Mapping[str, Any]) -> Trial:
    values = config["trial"]
    languages = values["languages"]
    return Trial(
        **values
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
    return _trial_of(
        {
            "trial": values
            | {
                "encoder": str(encoder.resolve()) if encoder.is_dir() else trial.encoder,
                "data": [str(Path(path).resolve()) for path in trial.data],
                "training": values["training"]
                | {"dictionaries": [str(Path(path).resolve()) for path in trial.training.dictionaries]},
            }
        }
    )


def _folder(storage: Path, trial: Trial) -> Path:
    return storage / TRIALS / trial.name


def _is_finished(storage: Path, trial: Trial) -> bool:
    return read_manifest(_folder(storage, trial)) is not None


def _reason(error: Exception) -> str:
    """The last line of what went wrong: Ray puts the trial's own error at the end of its traceback."""
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
