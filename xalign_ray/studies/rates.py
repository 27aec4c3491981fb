"""Learning rates of a study: a study tries them on development languages, and each recipe takes its best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xalign_ray.errors import ConfigError, TrainingError
from xalign_ray.studies.declared import EncoderConfig, StudyConfig
from xalign_ray.work.artifacts import read_json, write_json
from xalign_ray.work.run_folder import RATES


def trial_study(study: StudyConfig) -> StudyConfig:
    """The study that tries every rate of every recipe with one seed, and scores development languages alone.

    A pretraining is a run of its recipe: that of the chosen rate is not repeated under the study itself.
    """
    assert study.rates, f"{study.name} chooses no rates"
    encoders = [
        at_rate(encoder, rate, f"{encoder.shown} {rate:g}").model_copy(update={"seeds": (), "step": None})
        for (encoder, *_) in _by_training(study)
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


def _by_training(study: StudyConfig) -> list[list[EncoderConfig]]:
    """The encoders of recipes; those that differ in their step alone are of one training, and share its rate."""
    trained = defaultdict[tuple[str, tuple[str, ...]], list[EncoderConfig]](list)
    for encoder in study.encoders:
        if encoder.recipe:
            trained[encoder.recipe, encoder.settings].append(encoder)
    return [*trained.values()]


def at_rate(encoder: EncoderConfig, rate: float, label: str) -> EncoderConfig:
    """The encoder of a recipe, trained at a rate."""
    settings = (*encoder.settings, f"train.optimizer.learning_rate={rate!r}")
    return encoder.model_copy(update={"settings": settings, "label": label})


def with_rates(study: StudyConfig, rates: Mapping[str, float]) -> StudyConfig:
    """The study whose recipes train at these rates, by label."""
    encoders = (
        at_rate(encoder, rates[encoder.shown], encoder.shown) if encoder.recipe else encoder
        for encoder in study.encoders
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
    from xalign_ray.results.aggregate import headline_values, means  # pandas, which takes a second to import
    from xalign_ray.results.sources import read_runs

    assert study.rates, f"{study.name} chooses no rates"
    scores = read_runs([str(folder)])
    mean_scores = means(headline_values(scores.loc[scores.metric == study.rates.metric]), ["label"])
    reached = dict(zip(mean_scores.label, mean_scores["mean"], strict=True))
    tried, chosen = list[dict[str, Any]](), dict[str, float]()
    for entries in _by_training(study):
        encoder = entries[0].shown
        rates = [rate for rate in study.rates.learning_rate if f"{encoder} {rate:g}" in reached]
        if not rates:
            metrics = f"{study.rates.evaluation.task} has no {study.rates.metric}"
            raise TrainingError(f"{study.name}: no rate of {encoder} can be chosen: {metrics}.")
        of_rate = {rate: reached[f"{encoder} {rate:g}"] for rate in rates}
        tried += [{"encoder": encoder, "learning_rate": rate, "score": score} for rate, score in of_rate.items()]
        chosen |= dict.fromkeys((entry.shown for entry in entries), max(rates, key=lambda rate: (of_rate[rate], -rate)))
    languages = list(study.rates.evaluation.languages)
    write_json(folder / RATES, {"metric": study.rates.metric, "languages": languages, "tried": tried, "chosen": chosen})
    return chosen


def rates_at_an_end(chosen: Mapping[str, float], tried: Sequence[float]) -> Iterator[str]:
    """A warning for each recipe whose best rate is the lowest or the highest tried."""
    ends = {} if len(tried) < 2 else {min(tried): ("lowest", "lower"), max(tried): ("highest", "higher")}
    for rate, (end, beyond) in ends.items():
        if at_it := [label for label, label_rate in chosen.items() if label_rate == rate]:
            yield f"{rate:g} is the {end} rate tried: a {beyond} one may be better for {', '.join(at_it)}."


def read_rates(study: StudyConfig, path: Path) -> dict[str, float]:
    """The rate of each recipe that a study chose on another machine.

    Raises:
        ConfigError: it chose none for a recipe.
        DataError: there is no such file, or it holds no rates.
    """
    chosen = read_json(path, "A study that chooses rates writes it into its folder.", "chosen", "tried")["chosen"]
    if lacking := [encoder.shown for encoder in study.encoders if encoder.recipe and encoder.shown not in chosen]:
        raise ConfigError(f"rates.chosen: {path} has no rate of {', '.join(lacking)}.")
    return chosen
