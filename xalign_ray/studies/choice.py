"""Which setting a study keeps for each encoder, task and kind of training: by development scores, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xalign_ray.studies.cells import Trial
from xalign_ray.work.artifacts import hash_value, write_json
from xalign_ray.work.run_folder import CHOICES


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting with the fine-tunings that tried it.

    Attributes:
        setting: without the seed.
        development: score on the development file, by name of the cell, of those that finished.
    """

    setting: Mapping[str, Any]
    development: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings that were tried, and which of them is kept: None where no fine-tuning has finished."""

    encoder: str
    label: str
    task: str
    train_language: str
    training: str
    target: str
    candidates: Sequence[Candidate]
    chosen: int | None

    @property
    def search(self) -> tuple[str, str, str, str, str]:
        """As a cell names it."""
        return self.encoder, self.task, self.train_language, self.training, self.target

    @property
    def kept(self) -> Candidate | None:
        """The candidate that was chosen."""
        return None if self.chosen is None else self.candidates[self.chosen]


def choose(cells: Sequence[Trial], development: Mapping[str, float]) -> list[Choice]:
    """The best setting by mean development score, over fine-tuning seeds and then over encoders; the first of equals.

    Only settings with the most finished seeds compete: a mean over fewer says less.

    Args:
        cells: all fine-tunings of the study that can be named.
        development: score of each that has finished, by its name.
    """
    searches = dict.fromkeys(cell.search for cell in cells)
    return [_choose([cell for cell in cells if cell.search == search], development) for search in searches]


def write_choices(folder: Path, choices: Sequence[Choice]) -> None:
    """Writes choices.json; call it before any test score is read."""
    write_json(folder / CHOICES, [asdict(choice) for choice in choices])


def _choose(cells: Sequence[Trial], development: Mapping[str, float]) -> Choice:
    from xalign_ray.results.aggregate import over_seeds  # here: pandas costs every importer half a second

    by_setting: dict[str, list[Trial]] = {}
    for cell in cells:
        by_setting.setdefault(hash_value(cell.setting), []).append(cell)
    candidates = [
        Candidate(same[0].setting, {one.name: development[one.name] for one in same if one.name in development})
        for same in by_setting.values()
    ]
    means = [
        over_seeds([(one.source.seed, development[one.name]) for one in same if one.name in development])
        for same in by_setting.values()
    ]
    most = max(len(candidate.development) for candidate in candidates)
    whole = [place for place, one in enumerate(candidates) if most and len(one.development) == most]
    chosen = max(whole, key=means.__getitem__, default=None)
    encoder, task, language, training, target = cells[0].search
    return Choice(encoder, cells[0].label, task, language, training, target, candidates, chosen)
