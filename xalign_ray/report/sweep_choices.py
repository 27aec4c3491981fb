"""Which trials of a sweep count: those of the settings that its choices.json kept, and no test score of the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.report.run import Run

CHOICES = "choices.json"
HINT = "Give the `xalign tune` of this sweep again: it writes it anew and repeats no trial that has ended."
_PLAIN = "english"


@dataclass(frozen=True)
class Choices:
    """What sweeps tried and kept.

    Attributes:
        tried: names of the trials that competed.
        kept: the kind of training of the chosen ones, by name, in the order of the file.
    """

    tried: frozenset[str] = frozenset()
    kept: Mapping[str, str] = field(default_factory=dict)

    def keep(self, runs: Iterable[Run]) -> list[Run]:
        """The runs without the trials that were not chosen; another training than plain is another encoder's."""
        return [
            _told_apart(run, self.kept.get(run.name, _PLAIN))
            for run in runs
            if run.name in self.kept or run.name not in self.tried
        ]


def read_choices(folders: Iterable[Path]) -> Choices:
    """The choices of the sweeps among some folders.

    Raises:
        DataError: a file of choices is damaged.
    """
    tried: set[str] = set()
    kept: dict[str, str] = {}
    for path in (folder / CHOICES for folder in folders):
        if not path.is_file():
            continue
        try:
            choices = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(choices, list):
                raise TypeError("it is no list")
            for choice in choices:
                tried.update(name for candidate in choice["candidates"] for name in candidate["trials"].values())
                kept |= dict.fromkeys((choice["chosen"] or {"trials": {}})["trials"].values(), choice["training"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path} holds no choices of a sweep ({error!r}); resume the sweep to write it.") from None
    return Choices(frozenset(tried), kept)


def _told_apart(run: Run, training: str) -> Run:
    if training == _PLAIN:
        return run
    named = (replace(score, run=f"{score.run or Path(score.encoder).name}, {training}") for score in run.scores)
    return replace(run, scores=tuple(named))
