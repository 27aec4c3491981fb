"""The one number of a benchmark: XTREME's own figures of its mock files, what is missing, seeds, and languages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from tests.unit.results.run_folders import score
from xalign_ray.errors import ConfigError
from xalign_ray.results.benchmark_average import AVERAGES, average_table, check_average, task_scores
from xalign_ray.results.claims import measured
from xalign_ray.results.compare import score_frame
from xalign_ray.results.run import Log, Run
from xalign_ray.results.tables import Table
from xalign_ray.verbs import options

# The averages over languages that evaluate_test.py of google-research/xtreme 838c13b expects of its mock files
XTREME = {
    "pawsx_accuracy": 51.42857142857143,
    "xnli_accuracy": 30.666666666666668,
    "ner_f1": 57.50793650793652,
    "pos_f1_seqeval0": 70.21746048354693,
    "bucc_f1": 55.0,
    "tatoeba_accuracy_from_english": 53.611111111111114,
    "xquad_f1": 79.9586776859504,
    "xquad_em": 77.27272727272727,
    "mlqa_f1": 81.76870748299321,
    "mlqa_em": 57.142857142857146,
    "tydiqa_f1": 97.22222222222223,
    "tydiqa_em": 88.88888888888889,
}
ALL_TASKS = 62.17319850507248  # `all_task` of its evaluate.py, of these figures


def frame(values: dict[str, float], label: str = "a", seeds: Sequence[int] = (0,), spread: float = 0.0) -> pd.DataFrame:
    """A score of each metric in each of XTREME's languages whose mean is the value, in percent."""
    found = []
    for seed in seeds:
        for task in AVERAGES["xtreme"]["tasks"].values():
            codes = ["zh" if code == "zh-cn" else code for code in task["languages"].split()]
            for metric in set(task["metrics"]) & set(values):
                for number, code in enumerate(codes):
                    shift = spread * ((number % 2) - 0.5) * (number < len(codes) // 2 * 2) + spread * seed
                    value = values[metric] / 100 + shift
                    layer = "last4" if "tatoeba" in metric else None
                    found.append(score(metric, value, language=code, layer=layer, seed=seed, run=label))
                    found.append(score(metric, 0.0, language=code, layer=3, seed=seed, run=label))
                found.append(score(metric, 0.9, language="eu-es", layer=None, seed=seed, run=label))
    run = Run(Path(label), {"seed": 0}, Log(), tuple(found), label=label)
    return score_frame([run])


def table_of(scores: pd.DataFrame, *labels: str) -> Table:
    return average_table(measured([], scores), labels or ["a"], "xtreme")


def column(table: Table, number: int = 1) -> dict[str, str]:
    return {row[0].text: row[number].text for row in table.rows}  # type: ignore[union-attr]


def test_the_average_of_xtremes_mock_files() -> None:
    scores = frame(XTREME, spread=0.01)
    of_tasks = [table["a"].mean() for table in task_scores(measured([], scores), ["a"], "xtreme").values()]
    assert 100 * sum(of_tasks) / 9 == pytest.approx(ALL_TASKS, abs=1e-9)
    table = table_of(scores)
    shown = column(table)
    assert shown["average"] == "62.17"
    assert shown["xquad"] == f"{(79.9586776859504 + 77.27272727272727) / 2:.1f}"
    assert "of questions the mean of F1 and exact match" in table.note
    assert "the mean of the nine tasks" in table.note
    assert column(table, 2)["udpos"] == "33 of 33"


def test_seeds_are_averaged_in_each_language() -> None:
    table = table_of(frame(XTREME, seeds=(0, 1), spread=0.1))
    assert float(column(table)["average"]) == pytest.approx(ALL_TASKS + 5, abs=0.005)


def test_languages_that_are_not_scored_are_named() -> None:
    scores = frame(XTREME)
    table = table_of(scores.loc[~((scores.metric == "tydiqa_f1") & scores.language.isin(["bn", "te"]))])
    (row,) = [row for row in table.rows if row[0].text == "tydiqa"]  # type: ignore[union-attr]
    assert str(row[2]) == "7 of 9 (without bn, te)"


@pytest.mark.parametrize(
    ("name", "left_out", "missing"),
    [
        ("xtreme", ["bucc_f1"], r"mean of 9 tasks, .*: bucc2018 \(xalign evaluate --task bucc\)\. A mean of fewer"),
        ("xtreme", ["mlqa_em"], r"no scores: mlqa \(xalign tune --task mlqa\)\."),
        (
            "mmbert-8",
            ["ner_f1"],
            r"8 tasks, .*: xcopa \(xalign tune --task xcopa\), wikiann \(xalign tune --task ner\)",
        ),
    ],
)
def test_a_missing_task_is_refused(name: str, left_out: list[str], missing: str) -> None:
    scores = frame({metric: value for metric, value in XTREME.items() if metric not in left_out})
    with pytest.raises(ConfigError, match=missing):
        average_table(measured([], scores), ["a"], name)


def test_one_encoder_without_a_task_is_enough_to_refuse() -> None:
    other = frame({metric: value for metric, value in XTREME.items() if metric != "xnli_accuracy"}, "b")
    with pytest.raises(ConfigError, match=r"xnli \(xalign tune --task xnli\)"):
        table_of(pd.concat([frame(XTREME), other], ignore_index=True), "a", "b")


def test_encoders_are_averaged_over_the_languages_that_all_of_them_have() -> None:
    """`b` equals `a`, and was not scored in the languages in which both are better."""
    a, b = (frame(XTREME, label, spread=0.1) for label in ("a", "b"))
    b = b.loc[~((b.metric == "xnli_accuracy") & b.language.isin(["bg", "el", "es", "hi"]))]
    table = table_of(pd.concat([a, b], ignore_index=True), "a", "b")
    assert column(table, 1) == column(table, 2)
    assert column(table, 3)["xnli"] == "11 of 15"


def test_one_test_set_counts_and_the_newest_step() -> None:
    """Not a mean with what else was scored by the metric: pairs of another domain, a dev set, the untrained encoder."""
    whole = frame(XTREME)
    own = whole.metric.isin(["xnli_accuracy", "tatoeba_accuracy_from_english"]) & ~whole.single_layer
    others = [whole.loc[own].assign(value=0.9, split=split) for split in ("dev", "retrieval")]
    first = whole.loc[~whole.single_layer].assign(value=0.0, step=0)
    scores = pd.concat([whole, *others, first], ignore_index=True)
    assert column(table_of(scores)) == column(table_of(whole))
    apart = pd.concat([whole, frame(XTREME, "b").replace({"split": {"test": "dev"}})], ignore_index=True)
    with pytest.raises(ConfigError, match="some have no scores of all encoders on one test set: pawsx"):
        table_of(apart, "a", "b")


def test_an_unknown_benchmark_is_named() -> None:
    with pytest.raises(ConfigError, match=r"--average xtrem: unknown. Did you mean 'xtreme'\? Known: xtreme, mmbert-8"):
        check_average("xtrem")
    assert tuple(AVERAGES) == options.AVERAGES
