"""One number of a benchmark of many tasks: XTREME's and mmBERT's averages, each by its own rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xalign_ray.config.explain import suggest
from xalign_ray.config.language_codes import check_language
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError
from xalign_ray.results.aggregate import common, over_languages
from xalign_ray.results.claims import Measured
from xalign_ray.results.printed import Quantity
from xalign_ray.results.tables import Entry, Row, Table
from xalign_ray.tasks.registry import METRICS

AVERAGES: Mapping[str, Any] = parse_yaml(Path(__file__).with_name("averages.yaml").read_text(encoding="utf-8"))


def check_average(name: str) -> Mapping[str, Any]:
    """Rule and tasks of a benchmark; ConfigError with the nearest name if there is none."""
    if name not in AVERAGES:
        raise ConfigError(f"--average {name}: unknown.{suggest(name, AVERAGES)} Known: {', '.join(AVERAGES)}.")
    return AVERAGES[name]


def task_scores(known: Measured, labels: Sequence[str], name: str) -> dict[str, pd.DataFrame]:
    """[languages, labels] scores of each task of a benchmark, in [0, 1], in the languages that all encoders have.

    They are the mean of a task's metrics, each on the first test set that all encoders have, averaged over seeds.

    Raises:
        ConfigError: an encoder has no score of a task; all that are missing are named, and what scores them.
    """
    tables, missing, tasks = dict[str, pd.DataFrame](), list[str](), check_average(name)["tasks"]
    for task, row in tasks.items():
        codes = tuple(map(check_language, row["languages"].split()))
        by_metric = [known.of_arms(Quantity(metric=metric, languages=codes), labels) for metric in row["metrics"]]
        blocks = [arms[label] for arms in by_metric for label in labels if label in arms]
        languages = sorted(code for code in codes if all(code in block.index for block in blocks))
        if len(blocks) < len(by_metric) * len(labels) or not languages:
            verb = "tune" if METRICS[row["metrics"][0]].of_tuned_head else "evaluate"
            missing.append(f"{task} (xalign {verb} --task {row['metrics'][0].partition('_')[0]})")
            continue
        values = [over_languages(common(block, languages).T) for block in blocks]
        of_metrics = np.reshape(values, (len(by_metric), len(labels), len(languages)))
        tables[task] = pd.DataFrame(over_languages(of_metrics).T, languages, list(labels))
    if missing:
        alike = " of all encoders on one test set" * (len(labels) > 1)
        raise ConfigError(
            f"--average {name} is the mean of {len(tasks)} tasks, and of these some have no scores{alike}: "
            f"{', '.join(missing)}. A mean of fewer tasks has another meaning, so there is none."
        )
    return tables


def average_table(known: Measured, labels: Sequence[str], name: str) -> Table:
    """A row a task and the average, a column an encoder, in percent; languages that are not scored are named.

    Errors as in `task_scores`.
    """
    tables, rows, means = task_scores(known, labels, name), list[Row](), list[Any]()
    for task, row in check_average(name)["tasks"].items():
        wanted, table = row["languages"].split(), tables[task]
        lacking = [code for code in wanted if check_language(code) not in table.index]
        note = f"without {', '.join(lacking)}" if lacking else ""
        means.append(over_languages(table))
        count = Entry(f"{len(wanted) - len(lacking)} of {len(wanted)}", note)
        rows.append((Entry(task, ", ".join(row["metrics"])), *(f"{100 * mean:.1f}" for mean in means[-1]), count))
    rows.append(("average", *(f"{100 * mean:.2f}" for mean in over_languages(means)), Entry("")))
    return Table(f"Average of {name}", ("task", *labels, "languages"), rows, check_average(name)["rule"])
