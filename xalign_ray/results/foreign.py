"""Results of other programs as runs of a report: a CSV file of scores, or a folder of mteb's result files."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from xalign_ray.config.language_codes import check_language, languages_of
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.results.run import Log, Run, frame_scores
from xalign_ray.sources.csv_rows import csv_rows
from xalign_ray.sources.open import read_lines
from xalign_ray.tasks.mteb_task import PREFIX, names_of_parts
from xalign_ray.tasks.registry import METRICS, load_task
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score
from xalign_ray.tasks.task import Metric
from xalign_ray.tasks.task_files import without_usual_script
from xalign_ray.work.status_line import say

NEEDED = ("encoder", "seed", "language", "metric", "value")
OPTIONAL = ("task", "split", "n", "chance")
META = "model_meta.json"  # of mteb: beside the results of a model's revision
PREDICTIONS = "_predictions.json"  # end of the names of mteb's files of predictions, which hold no score
EXPERIMENTS = "experiments"  # folder of results with other settings, below them
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
    scores: dict[tuple[str, int | None], dict[Any, Score]] = {}
    for line, row in _read_rows(path):
        try:
            score = _score(row)
            of_run = scores.setdefault((score.encoder, score.seed), {})
            if (key := (score.language, score.metric, score.split)) in of_run:
                second = f"a second {score.metric} of {score.encoder}, seed {score.seed}, in {score.language}."
                raise ValueError(second)
        except (ConfigError, ValueError) as error:
            hint = f" A mean over languages is called {ALL_LANGUAGES}." if isinstance(error, ConfigError) else ""
            raise DataError(f"{path} line {line}: {error}{hint}") from None
        of_run[key] = score
    if not scores:
        raise DataError(f"{path} has no row below its header; give {_FORM}.")
    return [_run(encoder, seed, run_scores.values()) for (encoder, seed), run_scores in scores.items()]


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a CSV file by column, each with the number of the line that it begins at.

    Raises:
        DataError: the file cannot be read, a column is missing or stands twice, or a row has fewer or more of them.
    """
    try:
        read = [row for row in csv_rows(read_lines(str(path)), ",") if row.fault or any(row.cells)]
    except DataError as error:
        raise DataError(f"{path} cannot be read ({error}); give {_FORM}.") from None
    header, rows = [cell.strip() for row in read[:1] for cell in row.cells], read[1:]
    if missing := [name for name in NEEDED if name not in header]:
        raise DataError(f"{path} has no column {', '.join(missing)}; give {_FORM}.")
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise DataError(f"{path} has the column {', '.join(twice)} twice; give {_FORM}.")
    if unread := [name for name in header if name not in (*NEEDED, *OPTIONAL)]:
        say(f"{path}: the columns {', '.join(unread)} are not read.")
    for row in rows:
        if row.fault or len(row.cells) != len(header):
            fault = row.fault or f"{len(row.cells)} columns, and the header has {len(header)}"
            quotes = ". Put quotes around a name with a comma" if len(row.cells) > len(header) else ""
            raise DataError(f"{path} line {row.number}: {fault}{quotes}.")
        yield row.number, dict(zip(header, map(str.strip, row.cells), strict=True))


def _score(row: Mapping[str, str]) -> Score:
    """The score of a row; ValueError or ConfigError where it means nothing."""
    for name in ("encoder", "metric"):
        if not row[name]:
            raise ValueError(f"{name} is empty.")
    language, task, metric = row["language"], row.get("task") or row["metric"], row["metric"]
    if language != ALL_LANGUAGES:
        language = "-".join(without_usual_script(check_language(code)) for code in languages_of(language))
    metric = metric if metric in {*_OURS, task} else f"{task} {metric}"
    # A metric that is none of ours is a share: higher is better, and differences are taken.
    METRICS.setdefault(metric, Metric(metric, metric, "as the program that wrote it defines it"))
    share = "write shares, such as 0.872 for 87.2 %. Higher must be better."
    chance = "write a share, such as 0.25 for 25 %."
    return Score(
        run=None, encoder=row["encoder"], objective=None, task=task,
        split=row.get("split") or "test", language=language, metric=metric,
        value=_number("value", row["value"], -1, 1, share),
        chance=_number("chance", row["chance"], 0, 1, chance) if row.get("chance") else None,
        n=_whole("n", row.get("n") or "0", 0, "write how many things were scored."),
        seed=_whole("seed", row["seed"]) if row["seed"] else None, step=None,
    )  # fmt: skip


def _number(name: str, text: str, low: float = -math.inf, high: float = math.inf, hint: str = "") -> float:
    """A number from `low` to `high`; ValueError with the right form in a sentence."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} is {text}; it must be a number.")
    if not low <= value <= high:
        raise ValueError(f"{name} is {value:g}; {hint}")
    return value


def _whole(name: str, text: str, low: float = -math.inf, hint: str = "") -> int:
    """A whole number, which may have pandas' form in a column with empty cells: `3.0`."""
    if not (value := _number(name, text, low, hint=hint)).is_integer():
        raise ValueError(f"{name} is {text}; it must be a whole number.")
    return int(value)


def _read_mteb(folder: Path) -> list[Run]:
    metas = {meta.parent: _read_object(meta) for meta in sorted(_metas(folder))}
    parts: dict[str, dict[str, Collection[str]]] = defaultdict(dict)
    rows = {results: [*_mteb_rows(results, parts)] for results in metas}
    names = {task: names_of_parts(languages) for task, languages in parts.items()}
    runs: dict[str, Run] = {}
    models = {results: str(meta.get("name") or results.parent.name) for results, meta in metas.items()}
    for results, rows_of_run in rows.items():
        model = models[results]
        label = model if [*models.values()].count(model) == 1 else f"{model} ({results.name})"
        if not rows_of_run:
            raise DataError(f"{results} has no result beside its {META}.")
        if label in runs:
            raise DataError(f"{results} is a second {label}, as {META} says; give one of them.")
        named = (replace(score, encoder=label, language=names[score.task][score.language]) for score in rows_of_run)
        runs[label] = _run(label, None, named)
    return [*runs.values()]


def _mteb_rows(results: Path, parts: dict[str, dict[str, Collection[str]]]) -> Iterator[Score]:
    """The scores in a folder by mteb's names of their parts; into `parts` go the languages of each, by task."""
    seen: set[tuple[str, str, str]] = set()
    for path in sorted(results.glob("*.json")):
        if path.name == META or path.name.endswith(PREDICTIONS):
            continue
        result = _read_object(path)
        try:
            task = f"{PREFIX}{result['task_name']}"
            load_task(task)
            for split, rows in result["scores"].items():
                for row in rows:
                    if (key := (task, split, row["hf_subset"])) in seen:
                        raise DataError(f"{path}: a second score of {row['hf_subset']}, split {split}; keep one.")
                    seen.add(key)
                    name = f"main_score of {row['hf_subset']}, split {split},"
                    value = _number(name, str(row["main_score"]), -1, 1, "it must be a share.")
                    parts[task][row["hf_subset"]] = row["languages"]
                    yield Score(
                        run=None, encoder="", objective=None, task=task, split=split,
                        language=row["hf_subset"], metric=task,
                        value=value, chance=None, n=0, seed=None, step=None, layer="last",
                        test_set=result.get("dataset_revision"),
                    )  # fmt: skip
        except ValueError as error:
            raise DataError(f"{path}: {error}") from None
        except (KeyError, TypeError, AttributeError) as error:
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
    """At most a model and a revision below a folder, or below its `results`, as mteb lays its results out."""
    places = ("", "*/", "*/*/", "results/*/*/")
    return (
        path
        for place in places
        for prefix in ("", f"{EXPERIMENTS}/*/")
        for path in folder.glob(f"{place}{prefix}{META}")
    )


def _run(label: str, seed: int | None, scores: Iterable[Score]) -> Run:
    name = label.replace("/", "-") + ("" if seed is None else f", seed {seed}")
    return Run(Path(name), {}, Log(), frame_scores(scores), label=label, given_seed=seed)
