"""Verdicts on claims: by hand where that is plain, against a slow bootstrap of all cells where it is not."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.unit.published.test_tables import slow_rank
from xalign_ray.published.claims import Correlation, Coverage, Order, printed_values, read_claims
from xalign_ray.published.quantity import Quantity
from xalign_ray.published.tables import PAPERS
from xalign_ray.report.quantities import Measured
from xalign_ray.report.verdicts import judge, judge_all
from xalign_ray.tasks.registry import METRICS

POS, NER, ALIGNED = "pos_accuracy", "ner_f1", "alignment_heldout"
ABOVE = {"paper": "ppa", "table": "Table 2", "says": "a is above b", "arms": ("a", "b")}
Arrays = Mapping[tuple[str, str], Any]  # [languages, seeds] by label and metric


def scored(arrays: Arrays, languages: Sequence[str] = "uvwxyz", without: str = "") -> Measured:
    rows = [
        (label, metric, languages[place], str(seed), float(value))
        for (label, metric), values in arrays.items()
        for (place, seed), value in np.ndenumerate(np.asarray(values, float))
    ]
    frame = pd.DataFrame(rows, columns=["label", "metric", "language", "seed", "value"])
    return Measured(frame, lambda language: language not in without)


def order(*arms: str, **measure: Any) -> Order:
    return Order(**ABOVE | {"arms": arms}, measure=Quantity(**{"metric": POS} | measure))


BASE = np.array([[0.5, 0.6], [0.1, 0.4], [0.3, 0.2]])


@pytest.mark.parametrize(
    ("gain", "verdict", "why"),
    [
        (0.1, "holds", ""),
        (-0.1, "does not hold", ""),
        ([[0.2, 0.2], [-0.2, -0.2], [0.2, 0.2]], "undecided", "the interval includes zero"),
    ],
)
def test_a_sign_is_judged_by_whether_its_interval_includes_zero(gain: Any, verdict: str, why: str) -> None:
    found = judge("one", order("a", "b"), scored({("a", POS): BASE + np.array(gain), ("b", POS): BASE}))
    assert (found.verdict, found.why, found.languages, found.seeds) == (verdict, why, 3, 2)
    assert found.estimates == pytest.approx([np.mean(gain)])
    assert [mean for mean, _ in found.ours] == pytest.approx([(BASE + np.array(gain)).mean(), BASE.mean()])
    assert found.ours[1][1] == pytest.approx(np.std([0.3, 0.4], ddof=1))  # of the seeds' means
    if isinstance(gain, float):  # an equal gain everywhere has no width
        assert found.intervals == [pytest.approx((gain, gain))]


def test_one_seed_is_undecided_however_many_languages_agree() -> None:
    found = judge("one", order("a", "b"), scored({("a", POS): np.ones((6, 1)), ("b", POS): np.zeros((6, 1))}))
    assert (found.verdict, found.why, found.seeds) == ("undecided", "one seed", 1)
    assert found.intervals == [pytest.approx((1.0, 1.0))]


def test_two_seeds_of_two_languages_are_too_few_and_of_three_languages_are_not() -> None:
    for languages, verdict in ((2, "undecided"), (3, "holds")):
        values = {("a", POS): np.ones((languages, 2)), ("b", POS): np.zeros((languages, 2))}
        assert judge("one", order("a", "b"), scored(values)).verdict == verdict


def test_an_order_holds_if_every_step_does_and_not_if_one_is_reversed() -> None:
    a, b, c = ({(name, POS): BASE + step} for name, step in (("a", 0.2), ("b", 0.1), ("c", 0.0)))
    found = judge("one", order("a", "b", "c"), scored(a | b | c))
    assert (found.verdict, found.estimates) == ("holds", pytest.approx([0.1, 0.1]))
    found = judge("one", order("a", "c", "b"), scored(a | b | c))
    assert (found.verdict, found.estimates) == ("does not hold", pytest.approx([0.2, -0.1]))


def test_only_languages_and_seeds_that_all_arms_have_are_drawn() -> None:
    wide = np.full((4, 3), 0.9)
    found = judge("one", order("a", "b"), scored({("a", POS): wide, ("b", POS): BASE}))
    assert (found.languages, found.seeds) == (3, 2)
    assert found.ours[0][0] == pytest.approx(0.9)


def test_what_is_missing_is_said() -> None:
    scores = scored({("a", POS): BASE, ("c", NER): BASE})
    assert judge("one", order("a", "b"), scores).why == "no b"
    assert judge("one", order("a", "c"), scores).why == "no pos_accuracy of all arms in one language"
    assert judge("one", order("a", "a", language="fr"), scores).verdict == "undecided"


def test_a_measure_may_be_of_one_language_of_all_but_english_or_a_difference() -> None:
    values = {("a", POS): BASE, ("a", f"{POS}_supervised"): BASE + np.array([[0.1], [0.2], [0.3]])}
    scores = scored(values, ("de", "en", "fr"))
    own = scores.values(Quantity(label="a", metric=POS, language="fr"))
    assert own.to_numpy().tolist() == [[0.3, 0.2]]
    assert list(scores.values(Quantity(label="a", metric=POS, language="zero-shot")).index) == ["de", "fr"]
    lost = scores.values(Quantity(label="a", metric=f"{POS}_supervised", less={"metric": POS}))
    assert lost.mean(axis=1).tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_a_gain_is_compared_between_languages_with_and_without_a_dictionary() -> None:
    base = np.random.default_rng(0).random((6, 2))
    gain = np.array([0.3, 0.3, 0.3, 0.1, 0.1, 0.1])[:, None]
    claim = Coverage(**ABOVE, measure=Quantity(metric=POS))
    found = judge("one", claim, scored({("a", POS): base + gain, ("b", POS): base}, without="xyz"))
    assert (found.verdict, found.estimates) == ("holds", pytest.approx([0.2]))
    assert [mean for mean, _ in found.ours] == pytest.approx([0.3, 0.1])
    assert found.intervals == [pytest.approx((0.2, 0.2))]
    found = judge("one", claim, scored({("a", POS): base + gain, ("b", POS): base}))
    assert found.why == "no language without a dictionary has pos_accuracy"


def slow_ends(draws: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Between which numbers the ends of an interval of 10,000 draws must lie."""
    low, high = (np.quantile(draws, [level - 0.009, level + 0.009]) for level in (0.025, 0.975))
    return low, high


def test_the_interval_of_two_gains_is_that_of_a_slow_bootstrap() -> None:
    rng, other = np.random.default_rng(5), random.Random(1)
    a, b = rng.normal(0.3, 0.2, (7, 3)), rng.normal(0.1, 0.2, (7, 3))
    claim = Coverage(**ABOVE, measure=Quantity(metric=POS))
    found = judge("one", claim, scored({("a", POS): a, ("b", POS): b}, "stuvwxy", without="wxy"))
    draws = []
    for _ in range(10_000):
        seeds = [other.randrange(3) for _ in range(3)]
        groups = [[other.choice(group) for _ in group] for group in (range(4), range(4, 7))]
        means = [np.mean([a[row, seed] - b[row, seed] for row in rows for seed in seeds]) for rows in groups]
        draws.append(means[0] - means[1])
    for end, (low, high) in zip(found.intervals[0], slow_ends(draws), strict=True):
        assert low <= end <= high


def correlation(sign: str) -> Correlation:
    arms = {"arms": ("a", "b", "c")}
    return Correlation(**ABOVE | arms, sign=sign, x=Quantity(metric=ALIGNED), y=Quantity(metric=POS))  # type: ignore[arg-type]


def test_a_correlation_is_that_of_arms_and_languages_and_its_interval_that_of_a_slow_bootstrap() -> None:
    rng, other = np.random.default_rng(2), random.Random(2)
    x = {arm: rng.random((4, 3)) for arm in "abc"}
    y = {arm: 0.4 * x[arm] + 0.1 * rng.random((4, 3)) for arm in "abc"}
    scores = scored({(arm, ALIGNED): x[arm] for arm in "abc"} | {(arm, POS): y[arm] for arm in "abc"})
    found = judge("one", correlation("positive"), scores)

    def slow(languages: Sequence[int], seeds: Sequence[int]) -> float:
        points = [
            [np.mean([values[arm][row, seed] for seed in seeds]) for arm in "abc" for row in languages]
            for values in (x, y)
        ]
        ranks = [slow_rank([round(float(one), 12) for one in series]) for series in points]
        return float(np.corrcoef(*ranks)[0, 1])

    assert found.estimates == pytest.approx([slow(range(4), range(3))])
    draws = [slow([other.randrange(4) for _ in range(4)], [other.randrange(3) for _ in range(3)]) for _ in range(2000)]
    for end, (low, high) in zip(found.intervals[0], slow_ends(draws), strict=True):
        assert low <= end <= high
    assert (found.verdict, found.languages, found.seeds) == ("holds", 4, 3)
    assert judge("one", correlation("negative"), scores).verdict == "does not hold"


def test_a_correlation_of_one_seed_or_of_one_point_is_undecided() -> None:
    values = np.arange(12.0).reshape(3, 4, 1)
    one_seed = {(arm, metric): values[n] for n, arm in enumerate("abc") for metric in (ALIGNED, POS)}
    found = judge("one", correlation("positive"), scored(one_seed))
    assert (found.verdict, found.why, found.estimates) == ("undecided", "one seed", [1.0])
    flat = {(arm, metric): np.ones((4, 2)) for arm in "abc" for metric in (ALIGNED, POS)}
    assert judge("one", correlation("positive"), scored(flat)).why == "too few languages and seeds"


def test_every_claim_of_the_package_can_be_judged_and_follows_from_what_is_printed() -> None:
    claims = read_claims()
    assert len(claims) >= 12
    assert {claim.paper for claim in claims.values()} == set(PAPERS)
    wrong = []
    for name, claim in claims.items():
        measures = (claim.x, claim.y) if isinstance(claim, Correlation) else (claim.measure,)
        assert {one.metric for measure in measures for one in (measure, measure.taken_away) if one} <= METRICS.keys()
        if not isinstance(claim, Correlation):
            values = printed_values(claim)
            wrong += [name] if any(one <= next_one for one, next_one in pairwise(values)) else []
    assert wrong == []
    assert printed_values(claims["weam-over-translations"]) == pytest.approx([65.2667, 64.7333], abs=1e-3)  # type: ignore[arg-type]


def test_claims_that_nothing_is_known_of_come_last() -> None:
    values = {(arm, "xnli_accuracy"): BASE + step for arm, step in (("ppa-250k", 0.1), ("ppa-250k-no-tlm", 0.0))}
    first, *others = judge_all(["ppa"], scored(values))
    assert (first.name, first.verdict) == ("ppa-tlm", "holds")
    assert {one.verdict for one in others} == {"undecided"}
    assert len(others) == 7
