"""A study: a declared grid of recipes and seeds with their evaluations; which of its cells are still to be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from xalign_ray.artifacts import finished_run
from xalign_ray.config.declared import read_declared
from xalign_ray.config.explain import explain_validation, suggest
from xalign_ray.config.fields import Frozen, Int
from xalign_ray.config.load import RECIPES
from xalign_ray.errors import ConfigError
from xalign_ray.tasks.scores import are_whole

SWEEPS = RECIPES / "sweeps"


class CellConfig(Frozen):
    """A recipe of the grid, perhaps with settings of its own."""

    recipe: str
    settings: Annotated[tuple[str, ...], Field(description="as given to --set")] = ()
    label: Annotated[str, Field(description="how the report calls it; recipe and settings if empty")] = ""

    @property
    def shown(self) -> str:
        """The label in tables."""
        return self.label or " ".join((self.recipe, *self.settings))


class EvaluationConfig(Frozen):
    """One evaluation that every cell goes through; its scores lie in `evaluation/<name>/` of the run folder."""

    task: str
    data: Annotated[
        tuple[str, ...],
        Field(description="the task's files, below the recipe's data.root; none where a run has its own"),
    ] = ()
    options: Annotated[dict[str, Any], Field(default_factory=dict, description="the task's own options")]
    languages: Annotated[tuple[str, ...], Field(description="those to score; all that the data has if none")] = ()
    train_language: Annotated[str, Field(description="of tasks that tune; not English is supervised")] = "en"
    name: Annotated[str, Field(description="folder of its scores; the task if empty")] = ""

    @property
    def folder(self) -> str:
        """Name of its folder below `evaluation/`."""
        return self.name or self.task


class StudyConfig(Frozen):
    """A grid: every cell with every seed, every evaluation on each."""

    name: str
    notes: str = ""
    cells: Annotated[tuple[CellConfig, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Int, ...], Field(min_length=1)] = (0,)
    evaluate: tuple[EvaluationConfig, ...] = ()
    baseline: Annotated[str | None, Field(description="label that the others are compared with; the first if null")] = (
        None
    )

    @model_validator(mode="after")
    def _is_one_grid(self) -> StudyConfig:
        labels = [cell.shown for cell in self.cells]
        for what, values in (
            ("cells", labels),
            ("seeds", self.seeds),
            ("evaluate", [evaluation.folder for evaluation in self.evaluate]),
        ):
            if repeated := sorted({str(value) for value in values if list(values).count(value) > 1}):
                hint = {"cells": "a label", "seeds": "another seed", "evaluate": "a name"}[what]
                raise ValueError(f"{what} has {', '.join(repeated)} twice; remove one or give it {hint}")
        if self.baseline is not None and self.baseline not in labels:
            raise ValueError(
                f"baseline '{self.baseline}' is no label of a cell.{suggest(self.baseline, labels)} "
                f"Labels are {', '.join(labels)}"
            )
        return self


@dataclass(frozen=True)
class Cell:
    """One run of a study.

    Attributes:
        label: its column in the report, shared by its seeds.
        recipe: name or path.
        settings: all of them, the seed's among them, as `load_recipe` takes them.
        seed: of pretraining.
        evaluate: what its encoder goes through afterwards.
    """

    label: str
    recipe: str
    settings: tuple[str, ...]
    seed: int
    evaluate: tuple[EvaluationConfig, ...]


def load_study(name: str) -> StudyConfig:
    """A study by its name in `recipes/sweeps/` or by path.

    Raises:
        ConfigError: there is no such study, or it is not one; names file, key and nearest valid key.
    """
    path, tree = read_declared("study", name, SWEEPS)
    try:
        return StudyConfig.model_validate({"name": path.stem} | tree)
    except ValidationError as error:
        raise ConfigError(explain_validation(error, StudyConfig, {}, default_origin=str(path))) from None


def plan_cells(study: StudyConfig) -> list[Cell]:
    """All runs of a study, seed by seed, so that after the first seed all recipes can be compared."""
    return [
        Cell(cell.shown, cell.recipe, (*cell.settings, f"seed={seed}"), seed, study.evaluate)
        for seed in study.seeds
        for cell in study.cells
    ]


def is_finished(cell: Cell, folder: Path) -> bool:
    """Whether a cell's run folder has its manifest and the scores of every evaluation."""
    scores = [folder / "evaluation" / evaluation.folder / "scores.json" for evaluation in cell.evaluate]
    return finished_run(folder) is not None and all(map(are_whole, scores))


def run_study(
    study: StudyConfig, run_cell: Callable[[Cell], Path], find_folder: Callable[[Cell], Path | None]
) -> list[Path]:
    """Runs what is not finished, one cell after the other.

    Args:
        study: the grid.
        run_cell: pretrains, exports and evaluates a cell; returns its run folder. It continues what is half done.
        find_folder: the folder that the cell's run has or would have, None where that is not known before it runs.

    Returns:
        The run folders in the order of `plan_cells`; with `[cell.label for cell in plan_cells(study)]` as labels and
        `study.baseline` they are what `report` takes.
    """
    folders = []
    for cell in plan_cells(study):
        folder = find_folder(cell)
        folders.append(folder if folder is not None and is_finished(cell, folder) else run_cell(cell))
    return folders
