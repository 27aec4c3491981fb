"""The sentence that a report opens with: who is best, by how much, and honest about what is not decided."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.results.run_folders import score
from xalign_ray.results.charts import draw_svgs
from xalign_ray.results.compare import Comparison, compare_runs, score_frame
from xalign_ray.results.finding import MAX_WORDS, declared_metric, find
from xalign_ray.results.run import NO_SCORES, Log, Run, frame_scores
from xalign_ray.results.score_charts import score_chart
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import Score

FOUR = {"de": 0.2, "nl": 0.3, "fr": 0.4, "hi": 0.1}
Values = Mapping[str, float]


def compare(runs: Sequence[Run], baseline: str | None = None) -> Comparison:
    return compare_runs(runs, score_frame(runs), baseline=baseline)


def compared(by_label: Mapping[str, Sequence[Values]], baseline: str | None = None, **fields: Any) -> Comparison:
    """Scores by label, pretraining seed and language."""
    known: dict[str, Any] = {"chance": 0.01, "n": 1000} | fields
    runs = [
        Run(Path(f"{label}{seed}"), {"seed": seed}, Log(), frame_scores(scores), label=label)
        for label, seeds in by_label.items()
        for seed, values in enumerate(seeds)
        for scores in [[score(value=value, language=language, **known) for language, value in values.items()]]
    ]
    return compare(runs, baseline)


def of_one_run(by_label: Mapping[str, Sequence[Score]]) -> Comparison:
    """Scores by label."""
    runs = [Run(Path(label), {}, Log(), frame_scores(scores), label=label) for label, scores in by_label.items()]
    return compare(runs)


def shifted(values: Values, *gains: float) -> Values:
    return {
        language: value + gain for (language, value), gain in zip(values.items(), gains * len(values), strict=False)
    }


RETRIEVAL = "Sentence retrieval (Tatoeba)"
ONE_LANGUAGE, TWO_LANGUAGES = {"de": 0.2}, {"de": 0.2, "fr": 0.1}
INTERVAL = "the 95 % interval of the difference,"


@pytest.mark.parametrize(
    ("by_label", "brief", "detail"),
    [
        (
            {"mlm": [FOUR] * 3, "new": [shifted(FOUR, 0.1)] * 3},
            f"new is best on {RETRIEVAL}: 35.0 %, 10.0 points above mlm.",
            f"Over 4 languages and 3 seeds; {INTERVAL} [10.0, 10.0], excludes zero.",
        ),
        (
            {"mlm": [FOUR] * 3, "new": [shifted(FOUR, 0.1)] * 3, "other": [shifted(FOUR, 0.09)] * 3},
            f"new is best on {RETRIEVAL}: 35.0 %, 10.0 points above mlm.",
            "The interval allows for 2 comparisons. The next best, other (34.0 %), was not compared with new.",
        ),
        (  # a third arm is compared too, over three languages
            {"mlm": [FOUR] * 3, "new": [shifted(FOUR, 0.1)] * 3, "other": [shifted(FOUR, 0.09)] * 3}
            | {"few": [dict([*FOUR.items()][:3])] * 3},
            f"new is best on {RETRIEVAL}: 35.0 %, 10.0 points above mlm.",
            "compared with new. Left out, with scores in other languages: few.",
        ),
        (
            {"mlm": [FOUR] * 3, "new": [shifted(FOUR, -0.05)] * 3, "worse": [shifted(FOUR, -0.09)] * 3},
            f"mlm is best on {RETRIEVAL}: 25.0 %, 5.0 points above new.",
            "compared with mlm.",
        ),
        (
            {"mlm": [ONE_LANGUAGE] * 3, "new": [{"de": 0.5}, {"de": 0.51}, {"de": 0.52}]},
            f"new is best on {RETRIEVAL}: 51.0 %, 31.0 points above mlm.",
            "excludes zero and says nothing about other languages.",
        ),
        (  # two equal methods would differ in 34 % of the cases, where seeds vary as languages do
            {"mlm": [FOUR], "new": [shifted(FOUR, 0.1)]},
            f"Ahead in this one run on {RETRIEVAL}: new, 35.0 %, 10.0 points above mlm.",
            f"Over 4 languages and one seed; {INTERVAL} [10.0, 10.0], is over languages and says nothing about other "
            "seeds.",
        ),
        (
            {"mlm": [shifted(FOUR, 0.1), FOUR, FOUR], "new": [shifted(FOUR, 0.05)]},
            f"Undecided on {RETRIEVAL}: new is -5.0 points above mlm: one training run.",
            "is over languages and says nothing about other seeds.",
        ),
        (
            {
                "mlm": [FOUR] * 3,
                "new": [shifted(FOUR, *gains) for gains in [(0.2, -0.1)] * 2 + [(0.2, -0.1, 0.2, -0.12)]],
            },
            f"Undecided on {RETRIEVAL}: new is 4.8 points above mlm: too few languages.",
            "includes zero.",
        ),
        (
            {"mlm": [FOUR] * 3, "new": [shifted(FOUR, 0.2), shifted(FOUR, -0.1), shifted(FOUR, 0.1, 0.1, 0.1, 0.12)]},
            f"Undecided on {RETRIEVAL}: new is 6.8 points above mlm: too few seeds.",
            "includes zero.",
        ),
        (
            {"mlm": [FOUR] * 3, "new": [shifted(FOUR, gain) for gain in (0.001, 0.002, 0.0)]},
            f"new and mlm differ by at most 1 point on {RETRIEVAL}.",
            "new reaches 25.1 %, 0.1 points above mlm. Over 4 languages and 3 seeds; "
            f"{INTERVAL} [-0.1, 0.3], lies within 1 point of zero.",
        ),
        (
            {"mlm": [ONE_LANGUAGE], "new": [{"de": 0.5}]},
            f"Undecided on {RETRIEVAL}: new is 30.0 points above mlm: too few languages and seeds.",
            "new reaches 50.0 %. Over one language and one seed: no interval.",
        ),
        (
            {"mlm": [TWO_LANGUAGES], "new": [shifted(TWO_LANGUAGES, 0.3)]},
            f"Undecided on {RETRIEVAL}: new is 30.0 points above mlm: too few languages and seeds.",
            "Over 2 languages and one seed: no interval.",
        ),
        ({"mlm": [FOUR]}, f"mlm reaches 25.0 % on {RETRIEVAL}.", "Over 4 languages and one seed; chance is 1 %."),
        ({"mlm": [dict.fromkeys(FOUR, 0.01)]}, f"mlm is at chance on {RETRIEVAL}.", "over 4 languages and one seed."),
        (
            {label: [dict.fromkeys(FOUR, 0.01)] for label in ("mlm", "new")},
            f"Every encoder is at chance on {RETRIEVAL}.",
            "No more than guessing, over 4 languages and one seed.",
        ),
        ({"mlm": [{}]}, "Nothing has been scored yet that could be compared.", "`xalign evaluate RUN` scores a run."),
    ],
)
def test_a_page_opens_with_at_most_twenty_words_and_says_how_sure_they_are(
    by_label: Mapping[str, Sequence[Values]], brief: str, detail: str
) -> None:
    found = find(compared(by_label))
    assert found.brief == brief
    assert len(brief.split()) <= MAX_WORDS
    assert found.detail.endswith(detail)
    assert (found.key is None) == (by_label == {"mlm": [{}]})


@pytest.mark.parametrize("metric", METRICS)
def test_no_title_makes_the_first_sentence_too_long(metric: str) -> None:
    labels = {"contrast and mlm": [FOUR] * 3, "a name of words": [shifted(FOUR, 0.1)] * 3}
    fields = {"metric": metric, "task": "x", "layer": None, "pooling": None}
    assert len(find(compared(labels, **fields)).brief.split()) <= MAX_WORDS


def test_a_released_encoder_says_nothing_about_other_seeds_of_its_own() -> None:
    runs = [
        Run(Path(label), {} if seed is None else {"seed": seed}, Log(), frame_scores(scores), label=label)
        for label, seed, by in (("e5", None, 0.0), ("new", 0, 0.5), ("new", 1, 0.51), ("new", 2, 0.49))
        for scores in [[score(value=value + by, language=one, seed=seed) for one, value in FOUR.items()]]
    ]
    found = find(compare(runs))
    assert found.brief.endswith("50.0 points above e5.")
    assert found.detail == (
        f"Over 4 languages and 3 seeds of new; {INTERVAL} [47.5, 52.5], excludes zero and says nothing about other "
        "seeds of e5."
    )


@pytest.mark.parametrize(
    ("gains", "why"),
    [
        (((0.3, -0.1), (0.31, -0.09), (0.29, -0.11)), "too few languages"),
        (((0.3, 0.3), (0.0, 0.0), (-0.1, -0.1)), "too few seeds"),
    ],
)
def test_beside_a_released_encoder_the_seeds_of_the_other_are_few_or_not(
    gains: Sequence[tuple[float, float]], why: str
) -> None:
    def run(label: str, seed: int | None, by: Sequence[float]) -> Run:
        each = zip(FOUR.items(), [*by, *by], strict=True)
        scores = frame_scores(score(value=value + gain, language=one, seed=seed) for (one, value), gain in each)
        return Run(Path(f"{label}-{seed}"), {} if seed is None else {"seed": seed}, Log(), scores, label=label)

    runs = [run("e5", None, (0.0, 0.0)), *(run("new", seed, by) for seed, by in enumerate(gains))]
    assert find(compare(runs)).brief.endswith(f": {why}.")


def test_the_highest_of_several_equal_encoders_is_rarely_called_best() -> None:
    random, languages = np.random.default_rng(0), ["de", "fr", "hi", "nl", "pl", "ru", "sv", "uk", "zh"]
    called = 0
    for _ in range(30):
        values = 0.5 + 0.05 * random.standard_normal((8, 3, 9))
        arms = {f"a{n}": [dict(zip(languages, seed, strict=True)) for seed in own] for n, own in enumerate(values)}
        called += " is best on " in find(compared(arms)).brief
    assert called <= 3


def test_a_metric_on_which_all_guess_is_no_headline_but_said_and_a_trained_one_comes_last() -> None:
    def scored(value: float) -> list[Score]:
        guess = score("pos_accuracy", 0.3, chance=0.3, run="a")
        return [score(value=value, run="a"), guess, score("alignment_trained", 0.9 + value / 9, run="a")]

    found = find(of_one_run({"mlm": scored(0.3), "new": scored(0.4)}))
    assert (found.key or "")[0] == "tatoeba_accuracy"
    assert found.at_chance == ("Parts of speech",)
    seen = {label: [one for one in scored(0.3) if one.metric != "tatoeba_accuracy"] for label in ("mlm", "new")}
    assert (find(of_one_run(seen)).key or "")[0] == "pos_accuracy"


def test_transfer_of_a_tuned_head_comes_before_retrieval_and_what_all_have_before_both() -> None:
    retrieval = [score(value=0.5, run="a"), score(value=0.1, metric="pos_accuracy_supervised", run="a")]
    transfer = [score(value=0.4, metric="pos_accuracy", run="a")]
    both = of_one_run({"mlm": [*retrieval, *transfer], "new": [*retrieval, *transfer]})
    assert (find(both).key or "")[0] == "pos_accuracy"
    one = of_one_run({"mlm": [*retrieval, *transfer], "new": retrieval})
    assert (find(one).key or "")[0] == "tatoeba_accuracy"


def test_what_a_study_declares_as_its_own_metric_comes_first() -> None:
    own = [score(value=0.5, run="a"), score(value=0.4, metric="pos_accuracy", run="a")]
    both = of_one_run({"mlm": own, "new": own})
    assert (find(both, "tatoeba_accuracy").key or "")[0] == "tatoeba_accuracy"
    assert (find(both, "alignment_heldout").key or "")[0] == "pos_accuracy"  # which has no score here

    def of(**rates: Any) -> Run:
        return Run(Path("a"), {}, Log(), NO_SCORES, label="a", study={"name": "s", **rates})

    told = of(rates={"metric": "tatoeba_accuracy"})
    assert declared_metric([told, told]) == "tatoeba_accuracy"
    assert declared_metric([told, of()]) is declared_metric([Run(Path("a"), {}, Log(), NO_SCORES)]) is None


def test_the_chart_shows_languages_and_where_they_are_many_families() -> None:
    few = compared({"mlm": [FOUR], "new": [FOUR]})
    codes = re.findall(r"\w+", "af da de nl no sv ca es fr it pt ro bg cs hr mk pl ru sk sl uk")
    many = dict.fromkeys(codes, 0.3)
    lots = compared({"mlm": [many], "new": [shifted(many, 0.1)], "newer": [shifted(many, 0.2)]})
    for comparison, rows in ((few, ["all languages", "de", "nl"]), (lots, ["all languages", "Germanic", "Slavic"])):
        chart = score_chart(comparison, find(comparison).key or ())
        first, second = draw_svgs(chart)
        assert list(chart.panels) == ["percent", "points above mlm"]
        assert all(f">{row}</text>" in first for row in rows)
        assert "var(--series-1)" in second
    assert ">cs</text>" not in draw_svgs(score_chart(lots, find(lots).key or ()))[0]


def test_more_encoders_than_colours_are_told_apart_and_black_is_drawn_in_the_pages_ink() -> None:
    labels = [f"{'long-' * 6}{number}" for number in range(8)]
    comparison = compared({label: [shifted(FOUR, place / 20)] for place, label in enumerate(labels)})
    chart = score_chart(comparison, find(comparison).key or ())
    keys = {(style["color"], style["marker"]) for style in chart.styles.values()}
    assert len(keys) == 8
    assert "fill: var(--series-6)" in draw_svgs(chart)[0]
    assert list(chart.panels)[1] == "points above the baseline"


FIVE = {"de": 0.5, "fr": 0.5, "hi": 0.5, "nl": 0.5, "tr": 0.6}


@pytest.mark.parametrize(
    ("by_label", "brief", "said"),
    [
        (  # one language less must not take the best encoder out of the headline
            {"base": [FIVE], "mine": [shifted({**FOUR, "de": 0.3}, 0.1)], "other": [{"sw": 0.9}]},
            "mine is best on Sentence retrieval (Tatoeba): 37.5 %, 10.0 points above base.",
            "Left out, with scores in other languages: other.",
        ),
        (  # of several sets of languages a difference counts and not a mean
            {"base": [FIVE], "tiny": [{"tr": 0.7}], "mine": [{"de": 0.65, "fr": 0.65, "hi": 0.65, "nl": 0.65}]},
            "mine is best on Sentence retrieval (Tatoeba): 65.0 %, 15.0 points above base.",
            "The next best, tiny (70.0 %), was not compared with mine.",
        ),
        (
            {"base": [FIVE], "mine": [shifted(FIVE, 0.1)], **{name: [{"sw": 0.9}] for name in "abcde"}},
            "mine is best on Sentence retrieval (Tatoeba): 62.0 %, 10.0 points above base.",
            "Left out, with scores in other languages: a, b, c and 2 more.",
        ),
        (
            {"base": [FIVE, {"de": 0.5}], "mine": [shifted(FIVE, 0.1), {"de": 0.4}]},
            "mine is best on Sentence retrieval (Tatoeba): 62.0 %, 10.0 points above base.",
            "Not every seed has every language: 2 scores of base, mine are in no mean.",
        ),
    ],
)
def test_what_a_headline_leaves_out_is_named(by_label: Mapping[str, Sequence[Values]], brief: str, said: str) -> None:
    if "other" in by_label:
        by_label = {**by_label, "base": [{**FOUR, "de": 0.3, "tr": 0.9}]}
    found = find(compared({label: [*seeds[:1] * 2, *seeds] for label, seeds in by_label.items()}))
    assert found.brief == brief
    assert said in found.detail


def test_encoders_without_seeds_are_undecided_for_their_languages() -> None:
    """More seeds of two released encoders cannot be had."""
    given = {"base": [FOUR], "mine": [shifted(FOUR, 0.4, -0.15)]}
    found = find(
        of_one_run(
            {label: [score(value=v, language=k, seed=None) for k, v in one[0].items()] for label, one in given.items()}
        )
    )
    assert found.brief.endswith("mine is 12.5 points above base: too few languages.")
