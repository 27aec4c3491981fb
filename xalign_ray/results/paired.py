"""Encoders beside each other on the same test pairs, and the bases of continued runs among them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xalign_ray.results.aggregate import over_languages
from xalign_ray.results.continued import read_continued
from xalign_ray.results.difference import MeanEstimate, accuracy_gain, holm_intervals
from xalign_ray.results.run import FIELDS, Run, read_run
from xalign_ray.results.tables import NONE, Entry, Table, points
from xalign_ray.tasks.scores import read_scores
from xalign_ray.tasks.task import right_key
from xalign_ray.work.run_folder import PREDICTIONS, RunFolder


def with_bases(runs: Sequence[Run]) -> list[Run]:
    """The runs, and of each that was continued the encoder that it began from, scored on the run's own test.

    Each base is one column; it stands first where it is the only run's.
    """
    bases: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        if run.on_disk and (base := read_continued(run.folder)) and RunFolder(run.folder).base.is_dir():
            scored = read_run(RunFolder(run.folder).base)
            scores = scored.scores[FIELDS].itertuples(index=False, name=None)
            bases.setdefault((base.name, *scores), replace(scored, label=base.name))
    return [*bases.values(), *runs] if len(runs) == 1 else [*runs, *bases.values()]


def paired_table(runs: Sequence[Run], baseline: str) -> Table | None:
    """Encoders beside the baseline on the same test pairs, with intervals over these; None where none share a test.

    An interval of a language allows for the number of languages (Holm). They are about other sentences like these, and
    not about another seed.
    """
    results = {run.label: result for run in reversed(runs) if run.on_disk and (result := _found_by(run.folder))}
    base = results.pop(baseline, {})
    languages = [key for key in base if all(key in result for result in results.values())]
    if not languages or not results:
        return None

    def with_mean(result: Mapping[Any, _OfTest]) -> list[float]:
        values = [result[key].value for key in languages]
        return [*values, float(over_languages(values))]

    before = with_mean(base)
    named = [*((key[0], f"{len(base[key].pairs):,}") for key in languages), ("mean", NONE)]
    rows: list[tuple[Entry | str, ...]] = [
        (*name, f"{100 * value:.1f}") for name, value in zip(named, before, strict=True)
    ]
    header = ("language", "n", baseline, *reversed(results))
    for result in reversed(results.values()):
        gains = [accuracy_gain(base[key].pairs, result[key].pairs) for key in languages]
        error = sum(gain.standard_error**2 for gain in gains) ** 0.5 / len(gains)
        mean = MeanEstimate(float(over_languages([gain.value for gain in gains])), error)
        intervals = [*holm_intervals(gains), mean.interval()]
        for number, (value, of_base, (low, high)) in enumerate(zip(with_mean(result), before, intervals, strict=True)):
            gap = f"{points(value - of_base)}, {points(low)} to {points(high)}"
            rows[number] = (*rows[number], Entry(f"{100 * value:.1f}", gap, "best" if low > 0 else ""))
    note = (
        f"In percent; in brackets the difference from {baseline} in points and its 95 % interval over the pairs of the "
        "test, corrected for the number of languages (Holm). It is about these runs: another seed may differ."
    )
    return Table("Translations found, pair by pair on the same test", header, rows, note)


class _OfTest(NamedTuple):
    """A score of a run's test, and how many of each pair's sentences find each other: 0, 0.5 or 1, `[N]`."""

    value: float
    pairs: NDArray[np.float64]


def _found_by(folder: Path) -> dict[tuple[str, str], _OfTest]:
    """A run's results on its test, by language and hash of the test."""
    results = {}
    for file in RunFolder(folder).score_files:
        for score in read_scores(file):
            path = file.parent / PREDICTIONS / f"{score.language}.jsonl"
            if (score.metric, score.split) == ("retrieval_accuracy", "test") and score.test_set and path.is_file():
                rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
                digits = {row["key"]: row["prediction"] for row in rows}.get(right_key(score.metric, score.layer))
                if digits:
                    results[score.language, score.test_set] = _OfTest(score.value, np.array([*map(int, digits)]) / 2)
    return results
