"""Results of other programs as runs of a report: a CSV file of scores, or a folder of mteb's result files."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from xalign_ray.config.language_codes import check_language, languages_of
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.results.run import Log, Run
from xalign_ray.tasks.registry import METRICS, PREFIX, language_of_part, load_task
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score
from xalign_ray.tasks.task import Metric
from xalign_ray.work.status_line import say

NEEDED = ("encoder", "seed", "language", "metric", "value")
OPTIONAL = ("task", "split", "n", "chance")
META = "model_meta.json"  # of mteb: beside the results of a model's revision
_OURS = frozenset(METRICS)  # each is of one task; of other programs, accuracy may be of several
_FORM = f"a CSV file with the columns {','.join(NEEDED)} and, if you like, {','.join(OPTIONAL)}"


def is_foreign(path: Path) -> bool:
    """Whether a name of a report is of scores that another program wrote."""
    return path.is_file() or next(_metas(path), None) is not None


def read_foreign(path: Path) -> list[Run]:
    """The encoders of a CSV file or of a folder of mteb's results, a run an encoder and seed.

    Raises:
        DataError: a row or file means nothing; names file and line.
    """
    return _read_csv(path) if path.is_file() else _read_mteb(path)


def _read_csv(path: Path) -> list[Run]:
    try:
        rows = pd.read_csv(path, dtype=str, encoding="utf-8-sig", keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas' own are ValueErrors
        raise DataError(f"{path} cannot be read ({error}); give {_FORM}.") from None
    if missing := [name for name in NEEDED if name not in rows.columns]:
        raise DataError(f"{path} has no column {', '.join(missing)}; give {_FORM}.")
    if unread := [name for name in rows.columns if name not in (*NEEDED, *OPTIONAL)]:
        say(f"{path}: the columns {', '.join(unread)} are not read.")
    scores: dict[tuple[str, int | None], list[Score]] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for line, row in enumerate(rows.to_dict("records"), start=2):
        try:
            encoder, seed, score = _score({str(name): str(value).strip() for name, value in row.items()})
        except (ValueError, ConfigError) as error:
            raise DataError(f"{path} line {line}: {error}") from None
        key = (encoder, str(seed), score.language, score.metric, score.split)
        seen[key] += 1
        if seen[key] > 1:
            raise DataError(
                f"{path} line {line}: a second {score.metric} of {encoder}, seed {seed}, in {score.language}."
            )
        scores.setdefault((encoder, seed), []).append(score)
    if not scores:
        raise DataError(f"{path} has no row below its header; give {_FORM}.")
    return [_run(encoder, seed, tuple(own)) for (encoder, seed), own in scores.items()]


def _score(row: Mapping[str, str]) -> tuple[str, int | None, Score]:
    """Encoder, seed and score of a row; ValueError or ConfigError where it means nothing."""
    for name in ("encoder", "metric"):
        if not row[name]:
            raise ValueError(f"{name} is empty.")
    value = _number("value", row["value"])
    if not -1 <= value <= 1:
        raise ValueError(f"value is {value:g}; write shares, such as 0.872 for 87.2 %. Higher must be better.")
    seed = _whole("seed", row["seed"]) if row["seed"] else None
    language = row["language"]
    if language != ALL_LANGUAGES:
        language = "-".join(check_language(one) for one in languages_of(language))
    n, task, metric = row.get("n", ""), row.get("task") or row["metric"], row["metric"]
    chance = _number("chance", row["chance"]) if row.get("chance") else None
    if chance is not None and not 0 <= chance <= 1:
        raise ValueError(f"chance is {chance:g}; write a share, such as 0.25 for 25 %.")
    metric = metric if metric in {*_OURS, task} else f"{task} {metric}"
    _know(metric)
    return row["encoder"], seed, Score(
        run=None, encoder=row["encoder"], objective=None, task=task,
        split=row.get("split") or "test", language=language, metric=metric, value=value,
        chance=chance, n=_whole("n", n) if n else 0, seed=seed, step=None,
    )  # fmt: skip


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} is {text}; it must be a number.")
    return value


def _whole(name: str, text: str) -> int:
    """A whole number, which may be written as pandas writes those of a column with empty cells: `3.0`."""
    if not (value := _number(name, text)).is_integer():
        raise ValueError(f"{name} is {text}; it must be a whole number.")
    return int(value)


def _share(value: Any) -> float:
    found = _number("main_score", str(value))
    if not -1 <= found <= 1:
        raise ValueError(f"main_score is {found:g}; it must be a share")
    return found


def _know(metric: str) -> None:
    """A metric that is none of ours is a share: higher is better, and differences are taken."""
    METRICS.setdefault(metric, Metric(metric, metric, "as the program that wrote it defines it"))


def _read_mteb(folder: Path) -> list[Run]:
    found = [(_read_object(meta), meta.parent) for meta in sorted(_metas(folder))]
    names = Counter(str(meta.get("name")) for meta, _ in found)
    runs = []
    for meta, results in found:
        name = str(meta.get("name") or results.parent.name)
        revision = str(meta.get("revision") or results.name)[:7]
        label = f"{name} ({revision})" if names[name] > 1 else name
        files = [path for path in sorted(results.glob("*.json")) if path.name != META]
        scores = tuple(score for path in files for score in _mteb_scores(path, name))
        if not scores:
            raise DataError(f"{results} has no result beside its {META}.")
        runs.append(_run(label, None, scores))
    return runs


def _mteb_scores(path: Path, encoder: str) -> Iterator[Score]:
    result = _read_object(path)
    try:
        task = f"{PREFIX}{result['task_name']}"
        load_task(task)
        for split, rows in result["scores"].items():
            for row in rows:
                yield Score(
                    run=None, encoder=encoder, objective=None, task=task, split=split,
                    language=language_of_part(row["languages"], row["hf_subset"]), metric=task,
                    value=_share(row["main_score"]), chance=None, n=0, seed=None, step=None, layer="last",
                    test_set=result.get("dataset_revision"),
                )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path} is not a result of mteb ({type(error).__name__}: {error}).") from None


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}).") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} is not a result of mteb: it is no JSON object.")
    return value


def _metas(folder: Path) -> Iterator[Path]:
    """At most a model and a revision below a folder, as mteb lays its results out."""
    return (path for depth in ("", "*/", "*/*/") for path in folder.glob(f"{depth}{META}"))


def _run(label: str, seed: int | None, scores: tuple[Score, ...]) -> Run:
    name = label.replace("/", "-") + ("" if seed is None else f", seed {seed}")
    return Run(Path(name), {}, Log(), scores, label=label, given_seed=seed)
