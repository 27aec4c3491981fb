"""Puts the scores of fine-tunings and evaluations to the runs whose encoder they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xalign_ray.config.saved import read_saved
from xalign_ray.report.log import Log
from xalign_ray.report.run import Run
from xalign_ray.report.study_folder import Study
from xalign_ray.run_folder import EXPORT
from xalign_ray.tasks.scores import Score

Source = tuple[str | None, str, int | None]  # label, a run's name or an encoder's path, and the pretraining step


def join_trials(runs: Sequence[Run]) -> list[Run]:
    """The runs, each with the scores of the trials among them that were tuned from its encoder.

    A run without a recipe is a trial, or an evaluation of another encoder. Its scores go to the run and step that
    they name; where that is not among the runs of its label, all scores of one encoder become one run, with the recipe
    of the run or that beside the encoder if it is still there. A run or score that is found twice counts once.
    """
    own: dict[tuple[str | None, Path], Run] = {}
    trials: dict[Source, list[Score]] = {}
    studies: dict[Source, Study | None] = {}
    for run in runs:
        if "recipe" in run.config or not run.scores:
            place = (run.label, run.folder.resolve())
            own[place] = _with(own.get(place, run), run.scores)
        for score in () if "recipe" in run.config else run.scores:
            source = (run.label, score.run or score.encoder, score.step)
            trials.setdefault(source, []).append(score)
            studies[source] = run.study
    joined = [
        _with(run, [score for source in _sources(run) for score in trials.pop(source, ())]) for run in own.values()
    ]
    recipes = {run.name: run.config for run in own.values()}
    return joined + [_as_run(source, scores, recipes, studies[source]) for source, scores in trials.items()]


def _with(run: Run, scores: Sequence[Score]) -> Run:
    return replace(run, scores=tuple(dict.fromkeys([*run.scores, *scores])))


def _sources(run: Run) -> set[Source]:
    return {(run.label, run.name, step) for step in {run.log.last_step, *(score.step for score in run.scores)}}


def _as_run(
    source: Source, scores: Sequence[Score], recipes: Mapping[str, Mapping[str, Any]], study: Study | None
) -> Run:
    label, name, step = source
    config = (recipes.get(name, {}) if label else {}) or _recipe_of(scores[0])
    folder = Path(name).parent if Path(name).name == EXPORT else Path(name)
    if scores[0].run and not config:
        folder = Path(f"{name} at step {step}")
    return _with(Run(folder, config, Log(), (), label=label, study=study), scores)


def _recipe_of(score: Score) -> Mapping[str, Any]:
    """The recipe of the run folder whose own export was scored."""
    config = read_saved(Path(score.encoder).parent) if Path(score.encoder).name == EXPORT else {}
    return config if score.run and "recipe" in config else {}
