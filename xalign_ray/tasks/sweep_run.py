"""Runs a planned sweep: evaluations beside, then the trials on Ray Tune, each told and brought to MLflow as it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import read_manifest, whole_manifest, write_json
from xalign_ray.tasks.grid import Ended, GridOutcome, Halving, fitting_trials, state_of, trial_folder, tune_grid
from xalign_ray.tasks.registry import TASKS
from xalign_ray.tasks.scores import SCORES, Score, are_whole, read_scores, write_scores
from xalign_ray.tasks.sweep import AshaSearch, SweepConfig
from xalign_ray.tasks.sweep_choice import choose_settings
from xalign_ray.tasks.sweep_plan import PlannedTrial
from xalign_ray.tasks.trial_log import FINISHED, TrialNotes, describe_encoder, pretraining_of, seconds_of
from xalign_ray.track.events import EVENT_LOG, EventLog, last_attempt, run_identity
from xalign_ray.track.follower import publish

BESIDE = "beside"  # evaluations without training, a folder an encoder
TRIAL_STATES = "trials.json"


@dataclass(frozen=True)
class SweepRun:
    """A sweep at work.

    Attributes:
        sweep: as it was declared, its root an existing folder.
        planned: all its trials.
        folder: its own.
        tracking_uri: of MLflow, None for none.
        say: takes a line for the user.
    """

    sweep: SweepConfig
    planned: Sequence[PlannedTrial]
    folder: Path
    tracking_uri: str | None
    say: Callable[[str], None]

    def run_trials(self) -> GridOutcome:
        """The search, then what it chose again under other seeds. Ray must be connected."""
        publisher = ThreadPoolExecutor(1)  # one thread, for MLflow has one writer; trials never wait for it
        try:
            searched = self._tune([one for one in self.planned if not one.repeats], publisher)
            chosen = {
                choice.search: choice.chosen.setting
                for choice in choose_settings(self.planned, self.manifests())
                if choice.chosen
            }
            repeated = self._tune(
                [one for one in self.planned if one.repeats and chosen.get(one.search) == one.setting], publisher
            )
        finally:
            publisher.shutdown(cancel_futures=True)  # what is left is brought by the sweep's own publication
        return GridOutcome(
            {**searched.scores, **repeated.scores},
            {**searched.failures, **repeated.failures},
            (*searched.stopped, *repeated.stopped),
        )

    def has_ended(self) -> bool:
        """Whether no trial is left that would have to run."""
        return all(self._state(one) for one in self.planned)

    def manifests(self) -> dict[str, dict[str, Any]]:
        """Of the finished trials, by name."""
        found = {
            one.trial.name: whole_manifest(trial_folder(self.folder, one.trial), "development") for one in self.planned
        }
        return {name: manifest for name, manifest in found.items() if manifest is not None}

    def evaluate_beside(self) -> dict[str, list[Score]]:
        """Scores each encoder as it is, where that has not been done; by its label."""
        encoders = {one.encoder: one.trial.encoder for one in self.planned}
        return {label: self._evaluate(label, encoder) for label, encoder in encoders.items() if self.sweep.evaluate}

    def write_states(self, failures: Mapping[str, str]) -> None:
        """Writes trials.json: what became of each trial."""
        manifests = self.manifests()
        write_json(
            self.folder / TRIAL_STATES,
            [
                {
                    "name": one.trial.name,
                    "label": one.label,
                    "task": one.trial.task,
                    "setting": one.setting,
                    "seed": one.trial.settings.seed,
                    "state": "failed" if one.trial.name in failures else self._state(one) or "not chosen",
                    "reason": failures.get(one.trial.name),
                    "development": manifests.get(one.trial.name, {}).get("development"),
                    "seconds": seconds_of(trial_folder(self.folder, one.trial)),
                }
                for one in self.planned
            ],
        )

    def publish(self, folder: Path) -> str | None:
        """Brings a folder of the sweep to MLflow; a sentence where that failed."""
        if self.tracking_uri is None:
            return None
        return publish(folder, self.tracking_uri, self.sweep.experiment or self.sweep.name)

    def _tune(self, trials: Sequence[PlannedTrial], publisher: Executor) -> GridOutcome:
        if not trials:
            return GridOutcome({}, {})
        asked, search = self.sweep.resources, self.sweep.search
        halving = None
        if isinstance(search, AshaSearch) and not trials[0].repeats:
            most = max(one.trial.settings.num_train_epochs for one in trials)
            halving = Halving(search.grace_epochs, search.reduction_factor, most)
        ended = [one for one in trials if self._state(one)]
        if ended:
            self.say(f"{len(ended)} of {len(trials)} trials had ended before.")
        return tune_grid(
            [one.trial for one in trials],
            self.folder,
            fitting_trials(asked.cpus_per_trial, asked.gpus_per_trial) if len(ended) < len(trials) else 1,
            asked.cpus_per_trial,
            asked.gpus_per_trial,
            halving=halving,
            notes={one.trial: self._notes_of(one) for one in trials},
            told=_Telling(self, {one.trial.name: one for one in trials}, len(ended), publisher),
        )

    def _state(self, one: PlannedTrial) -> str | None:
        return state_of(trial_folder(self.folder, one.trial))

    def _notes_of(self, one: PlannedTrial) -> TrialNotes:
        parent = run_identity(self.folder)
        return TrialNotes(describe(one), one.encoder, parent, pretraining_of(one.trial.encoder))

    def _evaluate(self, label: str, encoder: str) -> list[Score]:
        folder = self.folder / BESIDE / label.replace("/", "-")
        notes = TrialNotes(f"{label} as pretrained", label, run_identity(self.folder), pretraining_of(encoder))
        files = {evaluation: folder / "evaluation" / evaluation.task / SCORES for evaluation in self.sweep.evaluate}
        missing = {evaluation: path for evaluation, path in files.items() if not are_whole(path)}
        if missing:
            path = folder / EVENT_LOG
            with EventLog(path, last_attempt(path) + 1) as log:
                log.write(
                    "start",
                    0,
                    fingerprint=f"{BESIDE}-{label}",
                    title=notes.title,
                    parent=notes.parent,
                    pretraining=dict(notes.pretraining),
                    params=describe_encoder(encoder, notes),
                )
                for evaluation, target in missing.items():
                    data = Path(self.sweep.root) / evaluation.data if evaluation.data else None
                    write_scores(target, TASKS[evaluation.task](encoder, data, list(evaluation.languages) or None))
                    self.say(f"{label}: {evaluation.task} evaluated")
                log.write("end", 0, state=FINISHED)
        return [score for path in files.values() for score in read_scores(path)]


@dataclass
class _Telling:
    """Says a line for each trial that ends, and has it brought to MLflow."""

    run: SweepRun
    planned: Mapping[str, PlannedTrial]
    ended: int
    publisher: Executor

    def __call__(self, ended: Ended) -> None:
        self.ended += 1
        one = self.planned[ended.trial.name]
        folder = trial_folder(self.run.folder, one.trial)
        manifest, seconds = read_manifest(folder), seconds_of(folder)
        parts = [f"development {manifest['development']:.3f}" if manifest else f"{ended.state} {ended.reason}".strip()]
        parts += [f"{seconds:.0f} s"] if seconds is not None else []
        left = len(self.planned) - self.ended
        self.run.say(f"[{self.ended}/{len(self.planned)}] {describe(one)}: {', '.join(parts)}; {left} left")
        self.publisher.submit(self.run.publish, folder)


def describe(one: PlannedTrial) -> str:
    """A trial in a line: who, what, how."""
    settings = one.trial.settings
    language = "" if one.trial.train_language == "en" else f" ({one.trial.train_language})"
    return (
        f"{one.label} {one.trial.task}{language}, lr {settings.learning_rate:g}, {settings.num_train_epochs} epochs, "
        f"batch {settings.train_batch_size}, seed {settings.seed}"
    )
