"""Which setting a sweep keeps for each encoder, task and kind of training: by development scores, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from xalign_ray.artifacts import hash_value, write_json
from xalign_ray.tasks.sweep_plan import PlannedTrial, searches

CHOICES = "choices.json"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting with the trials that tried it.

    Attributes:
        setting: without the seed.
        development: score on the development file, by seed, of the trials that finished.
        trials: their names, by seed.
    """

    setting: Mapping[str, Any]
    development: Mapping[int, float]
    trials: Mapping[int, str]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return fmean(self.development.values())


@dataclass(frozen=True, slots=True)
class SettingChoice:
    """The settings that were tried, and which of them is kept: None where no trial has finished."""

    encoder: str
    label: str
    task: str
    train_language: str
    training: str
    candidates: Sequence[Candidate]
    chosen: Candidate | None

    @property
    def search(self) -> tuple[str, str, str, str]:
        """As a planned trial names it."""
        return self.encoder, self.task, self.train_language, self.training


def choose_settings(planned: Sequence[PlannedTrial], manifests: Mapping[str, Mapping[str, Any]]) -> list[SettingChoice]:
    """The best setting by mean development score over seeds, the first of equals.

    Only settings with the most finished seeds compete: a mean over fewer says less.

    Args:
        planned: all trials of the sweep.
        manifests: of the finished trials, by name; a manifest holds no test score.
    """
    return [_choose(trials, manifests) for _, trials in searches(planned)]


def write_choices(folder: Path, choices: Sequence[SettingChoice]) -> None:
    """Writes choices.json; call it before any test score is read."""
    write_json(
        folder / CHOICES,
        [asdict(choice) | {"mean_development": choice.chosen.mean if choice.chosen else None} for choice in choices],
    )


def _choose(trials: Sequence[PlannedTrial], manifests: Mapping[str, Mapping[str, Any]]) -> SettingChoice:
    first = trials[0]
    by_setting: dict[str, list[PlannedTrial]] = {}
    for one in trials:
        by_setting.setdefault(hash_value(one.setting), []).append(one)
    candidates = [_candidate(same, manifests) for same in by_setting.values()]
    most = max(len(candidate.trials) for candidate in candidates)
    whole = [candidate for candidate in candidates if most and len(candidate.trials) == most]
    chosen = max(whole, key=lambda candidate: candidate.mean, default=None)
    encoder, task, language, kind = first.search
    return SettingChoice(encoder, first.label, task, language, kind, candidates, chosen)


def _candidate(trials: Sequence[PlannedTrial], manifests: Mapping[str, Mapping[str, Any]]) -> Candidate:
    done = {one.trial.settings.seed: one.trial.name for one in trials if one.trial.name in manifests}
    return Candidate(trials[0].setting, {seed: manifests[name]["development"] for seed, name in done.items()}, done)
