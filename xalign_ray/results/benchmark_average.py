"""One number of a benchmark of many tasks: XTREME's, XTREME-R's and mmBERT's averages, each by its own rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from xalign_ray.config.explain import suggest
from xalign_ray.config.language_codes import check_language
from xalign_ray.errors import ConfigError
from xalign_ray.results.aggregate import common, over_languages
from xalign_ray.results.claims import Measured
from xalign_ray.results.printed import Quantity
from xalign_ray.results.tables import Entry, Row, Table

_F1_EM = ("f1", "em")


@dataclass(frozen=True)
class BenchmarkTask:
    """A task of a benchmark.

    Attributes:
        metrics: ours, whose mean is the task's score; none if nothing here scores it.
        command: verb and task that score it.
        languages: codes of the languages that the benchmark averages.
    """

    name: str
    metrics: tuple[str, ...]
    command: str
    languages: str


_NER = (
    "ar he vi id jv ms tl eu ml ta te af nl en de el bn hi mr ur fa fr it pt es bg ru ja ka ko th sw yo my zh kk tr et "
    "fi hu"
)
_POS = "af ar bg de el en es et eu fa fi fr he hi hu id it ja kk ko mr nl pt ru ta te th tl tr ur vi yo zh"
_TATOEBA = "ar he vi id jv tl eu ml ta te af nl de el bn hi mr ur fa fr it pt es bg ru ja ka ko th sw zh kk tr et fi hu"
_XQUAD = "en es de el ru tr ar vi th zh hi"


def _qa(name: str, languages: str, metrics: Sequence[str] = _F1_EM) -> BenchmarkTask:
    return BenchmarkTask(name, tuple(f"{name}_{metric}" for metric in metrics), f"tune --task {name}", languages)


_XNLI = BenchmarkTask("xnli", ("xnli_accuracy",), "tune --task xnli", "ar bg de el en es fr hi ru sw th tr ur vi zh")
_PAWSX = BenchmarkTask("pawsx", ("pawsx_accuracy",), "tune --task pawsx", "de en es fr ja ko zh")
_MLQA, _TYDIQA = _qa("mlqa", "en es de ar hi vi zh"), _qa("tydiqa", "en ar bn fi id ko ru sw te")
_XCOPA = BenchmarkTask("xcopa", ("xcopa_accuracy",), "tune --task xcopa", "et ht id it qu sw ta th tr vi zh")
_F1_OF_TAGS, _SEARCH = ("pos_f1_seqeval0",), ("tatoeba_accuracy_from_english",)
_RULE = "each task's score is the mean over its languages"


@dataclass(frozen=True)
class Benchmark:
    """The tasks in a benchmark's average, and the rule in words."""

    tasks: tuple[BenchmarkTask, ...]
    rule: str


BENCHMARKS = {
    "xtreme": Benchmark(
        (
            _PAWSX,
            _XNLI,
            BenchmarkTask("panx", ("ner_f1",), "tune --task ner", _NER),
            BenchmarkTask("udpos", _F1_OF_TAGS, "tune --task pos", _POS),
            BenchmarkTask("bucc2018", ("bucc_f1",), "evaluate --task bucc", "de fr ru zh"),
            BenchmarkTask("tatoeba", _SEARCH, "evaluate --task tatoeba", _TATOEBA),
            _qa("xquad", _XQUAD),
            _MLQA,
            _TYDIQA,
        ),
        f"XTREME: {_RULE}, of questions the mean of F1 and exact match; the average is the mean of the nine tasks.",
    ),
    "xtreme-r": Benchmark(
        (
            _XNLI,
            _XCOPA,
            BenchmarkTask("udpos", _F1_OF_TAGS, "tune --task pos", f"{_POS} lt pl uk wo ro"),
            BenchmarkTask("panx", ("ner_f1",), "tune --task ner", f"{_NER} qu pl uk az lt pa gu ro"),
            _qa("xquad", f"{_XQUAD} ro"),
            _MLQA,
            _TYDIQA,
            BenchmarkTask("tatoeba", _SEARCH, "evaluate --task tatoeba", f"{_TATOEBA} az lt pl uk ro"),
            BenchmarkTask("mewslix", (), "", "ar de en es fa ja pl ro ta tr uk"),
            BenchmarkTask("lareqa", (), "", "ar de el en es hi ru th tr vi zh"),
        ),
        f"XTREME-R: {_RULE}, of questions the mean of F1 and exact match; the average is the mean of the ten tasks.",
    ),
    "mmbert-8": Benchmark(
        (
            _XNLI,
            _PAWSX,
            _XCOPA,
            *(_qa(name, languages, ("f1",)) for name, languages in (
                ("xquad", _XQUAD), ("mlqa", _MLQA.languages), ("tydiqa", _TYDIQA.languages),
            )),
            BenchmarkTask("wikiann", ("ner_f1",), "tune --task ner", _NER),
            BenchmarkTask("udpos", _F1_OF_TAGS, "tune --task pos", _POS),
        ),
        f"mmBERT's eight tasks of XTREME: {_RULE}, of questions F1; the average is the mean of the eight tasks.",
    ),
}  # fmt: skip


def check_benchmark(name: str) -> Benchmark:
    """The benchmark of a name; ConfigError with the nearest name if there is none."""
    if name not in BENCHMARKS:
        raise ConfigError(f"--average {name}: unknown.{suggest(name, BENCHMARKS)} Known: {', '.join(BENCHMARKS)}.")
    return BENCHMARKS[name]


def task_scores(known: Measured, labels: Sequence[str], name: str) -> dict[str, pd.DataFrame]:
    """[languages, labels] scores of each task of a benchmark, in [0, 1], in the languages that all encoders have.

    They are the mean of a task's metrics, each on the first test set that all encoders have, averaged over seeds.

    Args:
        known: the scores of a report.
        labels: of the encoders.
        name: of the benchmark.

    Raises:
        ConfigError: an encoder has no score of a task; all that are missing are named, and what scores them.
    """
    tables, missing, tasks = dict[str, pd.DataFrame](), list[str](), check_benchmark(name).tasks
    for task in tasks:
        codes = tuple(map(check_language, task.languages.split()))
        by_metric = [known.of_arms(Quantity(metric=metric, languages=codes), labels) for metric in task.metrics]
        blocks = [arms[label] for arms in by_metric for label in labels if label in arms]
        languages = sorted(code for code in codes if all(code in block.index for block in blocks))
        if len(blocks) < max(1, len(by_metric)) * len(labels) or not languages:
            missing.append(f"{task.name} ({f'xalign {task.command}' if task.command else 'nothing here scores it'})")
            continue
        values = [over_languages(common(block, languages).T) for block in blocks]
        of_metrics = np.reshape(values, (len(by_metric), len(labels), len(languages)))
        tables[task.name] = pd.DataFrame(over_languages(of_metrics).T, languages, list(labels))
    if missing:
        alike = " of all encoders on one test set" * (len(labels) > 1)
        raise ConfigError(
            f"--average {name} is the mean of {len(tasks)} tasks, and of these some have no scores{alike}: "
            f"{', '.join(missing)}. A mean of fewer tasks has another meaning, so there is none."
        )
    return tables


def average_table(known: Measured, labels: Sequence[str], name: str) -> Table:
    """A row a task and the average, a column an encoder, in percent; languages that are not scored are named.

    Arguments and errors as in `task_scores`.
    """
    tables, rows, means = task_scores(known, labels, name), list[Row](), list[Any]()
    for task in check_benchmark(name).tasks:
        wanted, table = task.languages.split(), tables[task.name]
        lacking = [code for code in wanted if check_language(code) not in table.index]
        note = f"without {', '.join(lacking)}" if lacking else ""
        means.append(over_languages(table))
        count = Entry(f"{len(wanted) - len(lacking)} of {len(wanted)}", note)
        rows.append((Entry(task.name, ", ".join(task.metrics)), *(f"{100 * mean:.1f}" for mean in means[-1]), count))
    rows.append(("average", *(f"{100 * mean:.2f}" for mean in over_languages(means)), Entry("")))
    return Table(f"Average of {name}", ("task", *labels, "languages"), rows, check_benchmark(name).rule)
