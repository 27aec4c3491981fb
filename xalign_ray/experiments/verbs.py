"""What a study asks of the verbs, which are above it: to find and make runs, and to tell its user of what has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.config.load import Recipe
from xalign_ray.experiments.cell_log import Notes
from xalign_ray.experiments.cells import Cell, Pretraining

Job = Pretraining | Cell


@dataclass(frozen=True)
class Verbs:
    """What a study does with a recipe and says to its user; given to it, for verbs are above it.

    Attributes:
        find: the exported folder of a recipe's finished run, None where `pretrain` has to make or repair something.
        pretrain: trains a recipe, under a title for its progress; returns the exported folder.
        notes_of: what a cell is called in MLflow.
        ended: told of each cell that ends: the cell, its state and, if it failed, why.
    """

    find: Callable[[Recipe], Path | None]
    pretrain: Callable[[Recipe, str], Path]
    notes_of: Callable[[Cell], Notes]
    ended: Callable[[Job, str, str], None]
