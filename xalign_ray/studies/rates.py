"""Chooses the learning rate of each recipe of a study by scores in development languages, with one budget for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.studies.declared import EncoderConfig, StudyConfig
from xalign_ray.work.artifacts import read_json, write_json
from xalign_ray.work.run_folder import RATES


@dataclass(frozen=True)
class Tried:
    """A rate of a recipe, and its mean score over the development languages."""

    encoder: str
    rate: float
    score: float


def trial_study(study: StudyConfig) -> StudyConfig:
    """The study that tries every rate of every recipe with one seed, and scores development languages alone.

    A pretraining is a run of its recipe: that of the chosen rate is not repeated under the study itself.
    """
    assert study.rates, f"{study.name} chooses no rates"
    encoders = [
        at_rate(one, rate, f"{one.shown} {rate:g}")
        for one in study.encoders
        if one.recipe
        for rate in study.rates.learning_rate
    ]
    changes = {
        "name": f"{study.name}-rates",
        "notes": f"Rates of {study.name}, in {', '.join(study.rates.evaluation.languages)}.",
        "encoders": tuple(encoders),
        "seeds": (study.rates.seed,),
        "evaluations": (study.rates.evaluation,),
        "finetunings": (),
        "rates": None,
        "baseline": None,
    }
    return study.model_copy(update=changes)


def at_rate(encoder: EncoderConfig, rate: float, label: str) -> EncoderConfig:
    """The encoder of a recipe, trained at a rate."""
    settings = (*encoder.settings, f"train.optimizer.learning_rate={rate!r}")
    return encoder.model_copy(update={"settings": settings, "label": label, "seeds": ()})


def with_rates(study: StudyConfig, rates: Mapping[str, float]) -> StudyConfig:
    """The study whose recipes train at these rates, by label."""
    encoders = (
        one.model_copy(update={"settings": at_rate(one, rates[one.shown], one.shown).settings, "label": one.shown})
        if one.recipe
        else one
        for one in study.encoders
    )
    return study.model_copy(update={"encoders": tuple(encoders), "rates": None})


def choose_rates(study: StudyConfig, folder: Path) -> dict[str, float]:
    """The rate with the highest score of each recipe, the lower of equal ones; written with all scores to rates.json.

    Args:
        study: with `rates`.
        folder: of the finished `trial_study`.

    Raises:
        TrainingError: a recipe has no score at any rate.
    """
    assert study.rates, f"{study.name} chooses no rates"
    tried = list(_tried(study, folder))
    chosen: dict[str, float] = {}
    for encoder in (one.shown for one in study.encoders if one.recipe):
        own = [one for one in tried if one.encoder == encoder]
        if not own:
            metrics = f"{study.rates.evaluation.task} has no {study.rates.metric}"
            raise TrainingError(f"{study.name}: no rate of {encoder} can be chosen: {metrics}.")
        chosen[encoder] = max(own, key=lambda one: (one.score, -one.rate)).rate
    scores = [{"encoder": one.encoder, "learning_rate": one.rate, "score": one.score} for one in tried]
    languages = list(study.rates.evaluation.languages)
    write_json(
        folder / RATES, {"metric": study.rates.metric, "languages": languages, "tried": scores, "chosen": chosen}
    )
    return chosen


def read_rates(study: StudyConfig, path: Path) -> dict[str, float]:
    """The rate of each recipe that a study chose on another machine.

    Raises:
        ConfigError: it chose none for a recipe.
        DataError: there is no such file, or it holds no rates.
    """
    chosen = read_json(path, "A study that chooses rates writes it into its folder.", "chosen", "tried")["chosen"]
    if lacking := [one.shown for one in study.encoders if one.recipe and one.shown not in chosen]:
        raise ConfigError(f"rates.chosen: {path} has no rate of {', '.join(lacking)}.")
    return chosen


def _tried(study: StudyConfig, folder: Path) -> Iterable[Tried]:
    from xalign_ray.results.compare import compare_runs, score_frame  # pandas, which takes a second to import
    from xalign_ray.results.run import label_runs
    from xalign_ray.results.sources import find_runs

    assert study.rates, f"{study.name} chooses no rates"
    runs = label_runs(find_runs([str(folder)], "sqlite"))
    means: dict[str, float] = {}
    for record in compare_runs(runs, score_frame(runs), by=["task"]).records("task"):
        if record["metric"] == study.rates.metric:
            means.setdefault(record["label"], record["mean"])  # of several splits or layers the preferred one is first
    for encoder in study.encoders:
        for rate in study.rates.learning_rate if encoder.recipe else ():
            if (label := f"{encoder.shown} {rate:g}") in means:
                yield Tried(encoder.shown, rate, means[label])
