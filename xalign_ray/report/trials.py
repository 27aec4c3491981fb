"""Puts fine-tuned trials to the runs that they began from: a trial is no recipe, only more scores of an encoder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from xalign_ray.config.saved import read_saved
from xalign_ray.report.run import Run
from xalign_ray.tasks.scores import Score

_EXPORT = "export"

Source = tuple[str, int | None]  # a run's name or an encoder's path, and the pretraining step


def join_trials(runs: Sequence[Run]) -> list[Run]:
    """The runs, each with the scores of the trials among them that were tuned from its encoder.

    A run without a recipe is a trial, or an evaluation of another encoder. Its scores go to the run and step that
    they name; where that is not among the runs, all scores of one encoder become one run, with the recipe that lies
    beside the encoder if it is still there. A score that is found twice counts once.
    """
    own = [run for run in runs if "recipe" in run.config]
    others = [run for run in runs if "recipe" not in run.config]
    trials: dict[Source, list[Score]] = {}
    for score in (score for run in others for score in run.scores):
        trials.setdefault((score.run or score.encoder, score.step), []).append(score)
    joined = [_with_scores(run, (trials.pop(source, []) for source in _sources(run))) for run in own]
    return (
        joined + [_as_run(*source, scores) for source, scores in trials.items()] + [r for r in others if not r.scores]
    )


def _sources(run: Run) -> set[Source]:
    return {(run.name, step) for step in {run.last_step, *(score.step for score in run.scores)}}


def _with_scores(run: Run, trials: Iterable[Sequence[Score]]) -> Run:
    every = [*run.scores, *(score for scores in trials for score in scores)]
    return replace(run, scores=tuple(dict.fromkeys(every)))


def _as_run(source: str, step: int | None, scores: Sequence[Score]) -> Run:
    config = _recipe_beside(scores[0])
    folder = Path(source).parent if Path(source).name == _EXPORT else Path(source)
    if scores[0].run and not config:
        folder = Path(f"{source} at step {step}")
    return Run(folder, config, (), (), tuple(dict.fromkeys(scores)), None)


def _recipe_beside(score: Score) -> Mapping[str, Any]:
    """The recipe of the run folder whose own export was scored."""
    config = read_saved(Path(score.encoder).parent) if Path(score.encoder).name == _EXPORT else {}
    return config if score.run and "recipe" in config else {}
