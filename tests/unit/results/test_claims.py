"""Verdicts on claims: by hand where that is plain, simulated where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from tests.unit.results.run_folders import score
from xalign_ray.results.claims import Measured, Verdict, against_papers, judge, measured
from xalign_ray.results.compare import score_frame
from xalign_ray.results.printed import PAPERS, Claim, Quantity, printed_values, read_claims
from xalign_ray.results.run import Log, Run, frame_scores
from xalign_ray.tasks.registry import METRICS

POS, NER, ALIGNED = "pos_accuracy", "ner_f1", "alignment_heldout"
COLUMNS = ["label", "metric", "test_set", "language", "seed", "value", "n", "chance", "place"]
Arrays = Mapping[tuple[str, str], Any]  # [languages, seeds] by label and metric


def scored(arrays: Arrays, languages: Sequence[str] = "uvwxyz", without: str = "") -> Measured:
    rows = [
        (label, metric, "test", languages[place], f"pretraining {seed}", float(value), 100, None, 0)
        for (label, metric), values in arrays.items()
        for (place, seed), value in np.ndenumerate(np.asarray(values, float))
    ]
    return Measured(pd.DataFrame(rows, columns=COLUMNS), lambda language: language not in without)


def claim(kind: str, arms: Sequence[str] = "ab", **fields: Any) -> Claim:
    measure = {"metric": POS} | fields.pop("measure", {})
    return Claim("one", kind, "ppa", "Table 2", "a is above b", tuple(arms), measure=Quantity(**measure), **fields)


def order(*arms: str, **measure: Any) -> Claim:
    return claim("order", arms, measure=measure)


def estimates(found: Verdict) -> list[float | None]:
    return [step.estimate for step in found.steps]


def intervals(found: Verdict) -> list[Any]:
    return [step.interval for step in found.steps]


BASE = np.array([[0.5, 0.6], [0.1, 0.4], [0.3, 0.2]])
NOISE = np.array([[1.0, -1.0], [-1.0, 1.0], [0.5, -0.5]])
FEW, GROUPS = "too few languages", "too few groups of languages"


def near(within: float = 20) -> Claim:
    return claim("near", "a", within=within, measure={"less": (("label", "b"),)})


# A claim, the scores of arms above BASE (all of the first are BASE plus them), and the verdict with its estimates.
JUDGED: dict[str, tuple[Claim, Mapping[str, Any], str, str, Sequence[float]]] = {
    "above": (order("a", "b"), {"a": 0.1, "b": 0.0}, "holds", "", [0.1]),
    "below": (order("a", "b"), {"a": -0.1, "b": 0.0}, "does not hold", "", [-0.1]),
    "languages differ": (
        order("a", "b"),
        {"a": [[0.2] * 2, [-0.2] * 2, [0.2] * 2], "b": 0.0},
        "undecided",
        FEW,
        [0.2 / 3],
    ),
    "seeds differ": (order("a", "b"), {"a": [[0.2, -0.2]] * 3, "b": 0.0}, "undecided", "too few seeds", [0.0]),
    "no difference": (
        *(order("a", "b"), {"a": [[1e-3, 2e-3], [-1e-3, 0], [1e-3, 0]], "b": 0.0}),
        *("undecided", "no difference of more than 1 point", [0.0005]),
    ),
    "two steps": (order("a", "b", "c"), {"a": 0.2, "b": 0.1, "c": 0.0}, "holds", "", [0.1, 0.1]),
    "a step is reversed": (order("a", "c", "b"), {"a": 0.2, "b": 0.1, "c": 0.0}, "does not hold", "", [0.2, -0.1]),
    "above by 6": (claim("order", by=6), {"a": 0.1 + 1e-3 * NOISE, "b": 0.0}, "holds", "", [0.1]),
    "not by 6": (claim("order", by=6), {"a": 0.02 + 1e-3 * NOISE, "b": 0.0}, "does not hold", "", [0.02]),
    "by about 6": (
        claim("order", by=6),
        {"a": 0.06 + 1e-3 * NOISE, "b": 0.0},
        "undecided",
        "within 1 point of 6",
        [0.06],
    ),
    "near": (near(3), {"a": 1e-3 * NOISE, "b": 0.0}, "holds", "", [0.0]),
    "near by a point": (near(3), {"a": 0.01 + 1e-3 * NOISE, "b": 0.0}, "holds", "", [0.01]),
    "far above": (near(3), {"a": 0.1 + 1e-3 * NOISE, "b": 0.0}, "does not hold", "", [0.1]),
    "far below": (near(3), {"a": -0.1 + 1e-3 * NOISE, "b": 0.0}, "does not hold", "", [-0.1]),
    "near or not": (near(3), {"a": [[0.1] * 2, [-0.1] * 2, [0.05, 0.04]], "b": 0.0}, "undecided", FEW, [0.015]),
}


@pytest.mark.parametrize("case", JUDGED)
def test_a_claim_is_judged_by_whether_the_intervals_of_its_steps_lie_on_one_side(case: str) -> None:
    asked, gains, verdict, why, expected = JUDGED[case]
    found = judge(asked, scored({(arm, POS): BASE + np.array(gain) for arm, gain in gains.items()}))
    assert (found.verdict, found.why, found.languages, found.seeds) == (verdict, why, 3, 2)
    assert estimates(found) == pytest.approx(expected, abs=1e-9)
    for (low, high), step in zip(intervals(found), found.steps, strict=True):
        assert low - 1e-9 <= step.estimate <= high + 1e-9
    if case in ("above", "below"):  # an equal gain everywhere has no width
        assert intervals(found) == [pytest.approx((expected[0],) * 2)]
        assert found.steps[0].ours.endswith(" less 35.0 ± 7.1")  # the deviation of the seeds' means, 30 and 40


def test_one_seed_is_undecided_however_many_languages_agree_and_so_are_two_of_two() -> None:
    found = judge(order("a", "b"), scored({("a", POS): np.ones((6, 1)), ("b", POS): np.zeros((6, 1))}))
    assert (found.verdict, found.why, found.seeds) == ("undecided", "too few seeds (one)", 1)
    assert intervals(found) == [pytest.approx((1.0, 1.0))]
    for languages, verdict in ((2, "undecided"), (3, "holds")):
        values = {("a", POS): np.ones((languages, 2)), ("b", POS): np.zeros((languages, 2))}
        assert judge(order("a", "b"), scored(values)).verdict == verdict


def test_of_two_groups_of_languages_nothing_is_decided() -> None:
    scores = scored({("a", POS): BASE + 0.1, ("b", POS): BASE})
    for groups, verdict, why in (("xyz", "holds", ""), ("xxy", "undecided", GROUPS)):
        grouped = replace(scores, group=lambda languages, groups=groups: list(groups[: len(languages)]))
        for asked in (order("a", "b"), near()):
            found = judge(asked, grouped)
            assert (found.verdict, found.why) == (verdict, why)


def test_intervals_of_an_order_allow_for_its_steps() -> None:
    random = np.random.default_rng(0)
    values = {(arm, POS): random.normal(size=(1, 3)) for arm in "abcd"}
    one, three = (intervals(judge(order(*arms), scored(values))) for arms in ("ab", "abcd"))
    widths = [high - low for low, high in (one[0], three[0])]
    assert widths[1] / widths[0] == pytest.approx(student.ppf(1 - 0.025 / 3, 2) / student.ppf(0.975, 2))


def test_only_languages_and_seeds_that_all_arms_have_count() -> None:
    wide = np.full((4, 3), 0.9)
    found = judge(order("a", "b"), scored({("a", POS): wide, ("b", POS): BASE}))
    assert (found.languages, found.seeds) == (3, 2)
    assert found.steps[0].ours.startswith("90.0 ± 0.0 less ")


def test_what_is_missing_is_said() -> None:
    scores = scored({("a", POS): BASE, ("c", NER): BASE})
    assert judge(order("a", "b"), scores).why == "no b"
    assert judge(order("a", "c"), scores).why == "no pos_accuracy of all arms in one language"
    assert judge(order("a", "a", language="fr"), scores).verdict == "undecided"


def test_a_measure_may_be_of_one_language_of_all_but_english_or_a_difference() -> None:
    values = {("a", POS): BASE, ("a", f"{POS}_supervised"): BASE + np.array([[0.1], [0.2], [0.3]])}
    scores = scored(values, ("de", "en", "fr"))
    own = scores.values(Quantity(label="a", metric=POS, language="fr"))
    assert own.to_numpy().tolist() == [[0.3, 0.2]]
    assert scores.values(Quantity(label="a", metric=POS, language="zero-shot")).index.tolist() == ["de", "fr"]
    lost = scores.values(Quantity(label="a", metric=f"{POS}_supervised", less=(("metric", POS),)))
    assert lost.mean(axis=1).tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_a_gain_is_compared_between_languages_with_and_without_a_dictionary() -> None:
    base = np.random.default_rng(0).random((6, 2))
    gain = np.array([0.3, 0.3, 0.3, 0.1, 0.1, 0.1])[:, None]
    found = judge(claim("coverage"), scored({("a", POS): base + gain, ("b", POS): base}, without="xyz"))
    assert (found.verdict, estimates(found)) == ("holds", pytest.approx([0.2]))
    assert found.steps[0].ours == "30.0 ± 0.0 less 10.0 ± 0.0"
    assert intervals(found) == [pytest.approx((0.2, 0.2))]
    found = judge(claim("coverage"), scored({("a", POS): base + gain, ("b", POS): base}))
    assert found.why == "no language without a dictionary has pos_accuracy"


def test_coverage_interval_has_own_languages_and_common_seeds() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(0.3, 0.2, (7, 3)), rng.normal(0.1, 0.2, (7, 3))
    found = judge(claim("coverage"), scored({("a", POS): a, ("b", POS): b}, "stuvwxy", without="wxy"))
    first, second = (a - b)[:4], (a - b)[4:]
    seeds = (first.mean(axis=0) - second.mean(axis=0)).var(ddof=1) / 3
    languages = sum(group.mean(axis=1).var(ddof=1) / len(group) for group in (first, second))
    low, high = intervals(found)[0]
    assert (low + high) / 2 == pytest.approx(first.mean() - second.mean())
    # Between the normal quantile of the larger part alone and Student's of two degrees of freedom of both.
    assert 1.96 * max(seeds, languages) ** 0.5 < (high - low) / 2 < 4.31 * (seeds + languages) ** 0.5


def correlation(arms: Sequence[str] = "abc") -> Claim:
    return claim("correlation", arms, x=Quantity(metric=ALIGNED), y=Quantity(metric=POS))


def test_a_correlation_is_described_over_arms_and_languages() -> None:
    rng = np.random.default_rng(2)
    x = {arm: rng.random((4, 3)) for arm in "abc"}
    y = {arm: 0.4 * x[arm] + 0.1 * rng.random((4, 3)) for arm in "abc"}
    scores = scored({(arm, ALIGNED): x[arm] for arm in "abc"} | {(arm, POS): y[arm] for arm in "abc"})
    found = judge(correlation(), scores)
    points = [np.concatenate([values[arm].mean(axis=1) for arm in "abc"]) for values in (x, y)]
    ranks = [pd.Series(series).rank() for series in points]
    assert estimates(found) == pytest.approx([np.corrcoef(*ranks)[0, 1]])
    assert (found.verdict, found.why) == ("undecided", "described, not judged: 3 arms")
    assert (intervals(found), found.languages, found.seeds) == ([None], 4, 3)


def of_splits(**splits: Mapping[str, int]) -> Measured:
    """Three seeds of each arm, scored 40 points apart; of each arm the splits and their sizes."""
    runs = [
        Run(Path(f"{arm}{seed}"), {"seed": seed}, Log(), frame_scores(scores), label=arm)
        for place, (arm, own) in enumerate(splits.items())
        for seed in range(3)
        for scores in [[
            score(POS, 0.9 - 0.4 * place + seed / 100, layer=None, pooling=None, split=split, n=n, language=code)
            for split, n in own.items()
            for code in ("de", "fr", "hi")
        ]]
    ]  # fmt: skip
    return measured(runs, score_frame(runs))


def test_claims_across_test_sets_are_refused() -> None:
    found = judge(order("a", "b"), of_splits(a={"one": 100}, b={"two": 100}))
    assert (found.verdict, found.why) == ("undecided", "not scored alike: a on one; b on two")
    found = judge(order("a", "b"), of_splits(a={"test": 100}, b={"test": 90}))
    assert found.why == "not scored alike: a on test, n 100; b on test, n 90"
    assert not found.steps
    three = judge(correlation("ab"), of_splits(a={"one": 100}, b={"two": 100}))
    assert three.why == found.why.replace("a on test, n 100; b on test, n 90", "a on one; b on two")


def test_claims_are_judged_on_the_test_set_that_all_arms_have() -> None:
    scores = of_splits(a={"test": 100, "dev": 100}, b={"dev": 100})
    found = judge(order("a", "b"), scores)
    assert (found.verdict, estimates(found)) == ("holds", [pytest.approx(0.4)])
    both = of_splits(a={"dev": 100, "test": 50}, b={"dev": 100, "test": 50})
    assert set(both.frame.loc[both.frame.place == both.frame.place.min()].test_set) == {"test"}


def test_what_transfer_loses_is_of_one_test_set() -> None:
    supervised = [score(f"{POS}_supervised", 0.9, task="pos", layer=None, pooling=None, split="dev", language="de")]
    zero_shot = [score(POS, 0.4, task="pos", layer=None, pooling=None, split="test", language="de")]
    runs = [Run(Path("a"), {"seed": 0}, Log(), frame_scores([*supervised, *zero_shot]), label="a")]
    lost = Quantity(label="a", metric=f"{POS}_supervised", less=(("metric", POS),))
    assert len(measured(runs, score_frame(runs)).values(lost)) == 0


def test_every_claim_of_the_package_can_be_judged_and_follows_from_what_is_printed() -> None:
    claims = read_claims()
    assert {one.paper for one in claims.values()} == set(PAPERS)
    wrong = []
    for name, one in claims.items():
        assert {part.metric for quantity in one.quantities for part in quantity.parts} <= METRICS.keys()
        if one.kind == "near":
            wrong += [name] if any(abs(value) >= one.within for value in printed_values(one)) else []
        elif one.kind != "correlation":
            wrong += [name] if any(a <= b + one.by for a, b in pairwise(printed_values(one))) else []
    assert wrong == []
    assert printed_values(claims["weam-over-translations"]) == pytest.approx([65.2667, 64.7333], abs=1e-3)


def test_claims_that_nothing_is_known_of_come_last() -> None:
    values = {(arm, "xnli_accuracy"): BASE + step for arm, step in (("ppa-250k", 0.1), ("ppa-250k-no-tlm", 0.0))}
    claims = against_papers(replace(scored(values), scales={"ppa-250k": "", "ppa-250k-no-tlm": ""})).claims
    verdicts = claims.drop_duplicates("claim")
    assert [*verdicts.claim[:1], *verdicts.verdict[:1]] == ["ppa-tlm", "holds"]
    assert [*verdicts.verdict[1:]] == ["undecided"] * 7


def test_both_directions_of_a_pair_are_one_language_with_their_mean() -> None:
    values = {"en-de": 0.2, "de-en": 0.8, "en-fr": 0.4, "fr-en": 0.6}
    scores = frame_scores(score(value=v, language=k) for k, v in values.items())
    run = Run(Path("m"), {"seed": 0}, Log(), scores, label="m")
    found = measured([run], score_frame([run])).frame
    assert dict(zip(found.language, found.value, strict=True)) == pytest.approx({"de": 0.5, "fr": 0.5})
