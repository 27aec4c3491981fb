"""One number of a benchmark of many tasks: XTREME's, XTREME-R's and mmBERT's averages, each by its own rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from xalign_ray.config.explain import suggest
from xalign_ray.config.language_codes import check_language
from xalign_ray.errors import ConfigError
from xalign_ray.results.aggregate import blocks, over_languages, preferred, seed_values, without_layers
from xalign_ray.results.tables import Entry, Row, Table

_F1_EM = ("f1", "em")


@dataclass(frozen=True)
class BenchmarkTask:
    """A task of a benchmark.

    Attributes:
        metrics: ours, of which the task's score is the mean; none if nothing here scores it.
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
    """The tasks of which a benchmark's average is the mean, and that rule in words."""

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


ByTask = dict[str, dict[str, float]]  # a task's score in each language, in [0, 1]


def task_scores(scores: pd.DataFrame, labels: Sequence[str], name: str) -> dict[str, ByTask]:
    """The scores of a benchmark's tasks, by encoder, in the languages that all encoders have.

    Args:
        scores: as `score_frame` makes it.
        labels: of the encoders.
        name: of the benchmark.

    Raises:
        ConfigError: an encoder has no score of a task; all that are missing are named, and what scores them.
    """
    tasks, measured = check_benchmark(name).tasks, seed_values(without_layers(scores))
    by_task = {task.name: _task_scores(measured, labels, task) for task in tasks}
    found = {label: {task.name: by_task[task.name][label] for task in tasks} for label in labels}
    missing = [
        f"{task.name} ({f'xalign {task.command}' if task.command else 'nothing here scores it'})"
        for task in tasks
        if not all(found[label][task.name] for label in labels)
    ]
    if missing:
        alike = " of all encoders on one test set" * (len(labels) > 1)
        raise ConfigError(
            f"--average {name} is the mean of {len(tasks)} tasks, and of these some have no scores{alike}: "
            f"{', '.join(missing)}. A mean of fewer tasks has another meaning, so there is none."
        )
    return found


def average_of(by_task: ByTask) -> float:
    """The mean of the tasks' means over languages, in [0, 1]."""
    return float(over_languages([over_languages([*by_language.values()]) for by_language in by_task.values()]))


def average_table(scores: pd.DataFrame, labels: Sequence[str], name: str) -> Table:
    """A row a task and the average, a column an encoder, in percent; languages that are not scored are named.

    Arguments and errors are those of `task_scores`.
    """
    found = task_scores(scores, labels, name)
    rows: list[Row] = []
    for task in check_benchmark(name).tasks:
        wanted = task.languages.split()
        of_labels = [found[label][task.name] for label in labels]
        lacking = [code for code in wanted if check_language(code) not in of_labels[0]]
        note = f"without {', '.join(lacking)}" if lacking else ""
        values = [f"{100 * over_languages([*one.values()]):.1f}" for one in of_labels]
        rows.append(
            (
                Entry(task.name, ", ".join(task.metrics)),
                *values,
                Entry(f"{len(wanted) - len(lacking)} of {len(wanted)}", note),
            )
        )
    rows.append(("average", *(f"{100 * average_of(found[label]):.2f}" for label in labels), Entry("")))
    return Table(f"Average of {name}", ("task", *labels, "languages"), rows, check_benchmark(name).rule)


def _task_scores(measured: pd.DataFrame, labels: Sequence[str], task: BenchmarkTask) -> ByTask:
    """The score of each label in the languages that all have, the mean of its metrics; empty where one has none.

    All are of the first test set that all labels have, averaged over seeds as a report does.
    """
    codes = {check_language(code) for code in task.languages.split()}
    of_metrics: list[dict[str, dict[str, float]]] = []
    for metric in task.metrics:
        own = measured.loc[(measured.metric == metric) & measured.language.isin(codes)].sort_values("place")
        shared = [split for split, rows in own.groupby("split", sort=False) if {*rows.label} >= {*labels}]
        by_label = blocks(preferred(own.loc[own.split.isin(shared[:1])]), ["label"])
        of_metrics.append(
            {str(label): dict(zip(one.index, over_languages(one.T), strict=True)) for label, one in by_label.items()}
        )
    every = [scores.get(label, {}) for scores in of_metrics for label in labels]
    common = sorted(set.intersection(*map(set, every))) if every else []
    return {
        label: {code: float(over_languages([scores[label][code] for scores in of_metrics])) for code in common}
        for label in labels
    }
