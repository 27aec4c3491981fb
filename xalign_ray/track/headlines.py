"""The few scores that MLflow shows of a run: averaged as its report does, by the same functions."""

from __future__ import annotations

from typing import Any

import pandas as pd

from xalign_ray.results.aggregate import ALL_LANGUAGES, KEY, headline_values, means

_COLUMNS = [*KEY, "language", "value", "chance", "n", "test_set", "seed", "step"]


def headline_scores(records: list[dict[str, Any]], max_keys: int) -> dict[str, tuple[float, int]]:
    """The scores that stand for a run, averaged as its report does: one value for each metric and language.

    A record of a numbered layer belongs to a layer curve and is no headline. Of a metric with several splits, layers or
    poolings the first counts: test before development sets, then as they were written. A metric has a mean over
    languages where a record has one.

    Args:
        records: score records in the order of writing.
        max_keys: largest number of keys; means over languages come first.

    Returns:
        MLflow key -> (value, training step of the encoder, 0 where it is not known); the key is the metric for the mean
        over languages, else `metric_language`.
    """
    if not records:
        return {}
    frame = pd.DataFrame(records, dtype=object).reindex(columns=_COLUMNS)
    frame = frame.loc[frame.value.notna()].assign(label="", run="", replicate="", of_tuned_head=False)
    frame["language"] = frame.language.where(frame.language.notna(), ALL_LANGUAGES)
    averaged = set(frame.metric[frame.language == ALL_LANGUAGES])
    shown = headline_values(frame)
    overall = means(shown.loc[shown.metric.isin(averaged)], ["metric"]).assign(language=ALL_LANGUAGES)
    single = means(shown.loc[shown.language != ALL_LANGUAGES], ["metric", "language"])
    chosen = pd.concat([overall, single])[:max_keys]
    steps = shown.groupby("metric").step.max()
    return {
        metric if language == ALL_LANGUAGES else f"{metric}_{language}": (mean, int(steps[metric]))
        for metric, language, mean in zip(chosen.metric, chosen.language, chosen["mean"], strict=True)
    }


def table(records: list[dict[str, Any]]) -> str:
    """All records as CSV, which MLflow shows as a table."""
    return pd.DataFrame(records, dtype=object).to_csv(index=False, lineterminator="\n") if records else ""
