"""What transfer loses and how it goes with alignment: numbers by hand, and the points that a paper prints."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.unit.results.run_folders import entries
from tests.unit.results.test_claims import scored
from xalign_ray.results.tables import Entry
from xalign_ray.results.transfer import transfer_chart, transfer_frame, transfer_table

POS, SUP, ALIGNED = "pos_f1_seqeval1", "pos_f1_seqeval1_supervised", "alignment_all"
ZERO = np.array([[0.50, 0.60], [0.30, 0.40], [0.10, 0.20]])  # three languages, two seeds
LANGUAGES = ["en-x-inv", "en-x-syn", "fr"]
KNOWN = scored(
    {
        ("mlm", POS): ZERO,
        ("mlm", SUP): ZERO + np.array([[0.4], [0.2], [0.3]]),
        ("align-mlm", POS): ZERO + 0.1,
        ("align-mlm", SUP): ZERO + np.array([[0.2], [0.2], [0.2]]),
        ("mlm", ALIGNED): np.array([[0.0, 0.1], [0.3, 0.3], [0.2, 0.2]]),
        ("align-mlm", ALIGNED): np.array([[0.9, 0.8], [0.7, 0.7], [0.8, 0.8]]),
    },
    LANGUAGES,
)


def test_what_transfer_loses_is_the_score_of_own_training_less_that_from_english() -> None:
    table = transfer_table(KNOWN, "task", lambda _: (0, "all languages"))
    assert table is not None
    assert tuple(table.rows) == (
        entries(Entry("Parts of speech, F1 (ALIGN-MLM)", POS)),
        entries("mlm", "65.0 ± 7.1", "35.0 ± 7.1", "30.0 ± 0.0", "3", "2"),
        entries("align-mlm", "55.0 ± 7.1", "45.0 ± 7.1", Entry("10.0 ± 0.0", mark="best"), "3", "2"),
    )
    families = transfer_table(KNOWN, "family", lambda one: (0, "Romance") if one == "fr" else (1, "derived"))
    assert families is not None
    assert [row[0].text for row in families.rows if len(row) == 1] == [  # type: ignore[union-attr]
        "Parts of speech, F1 (ALIGN-MLM): Romance",
        "Parts of speech, F1 (ALIGN-MLM): derived",
    ]
    assert [row[3].text for row in families.rows if len(row) > 1] == [  # type: ignore[union-attr]
        *("30.0 ± 0.0", "10.0 ± 0.0"),
        *("30.0 ± 0.0", "10.0 ± 0.0"),
    ]
    zero_shot = scored({("mlm", POS): ZERO, ("align-mlm", POS): ZERO})
    assert transfer_table(zero_shot, "task", lambda _: (0, "")) is None


def test_a_point_is_an_arm_and_language_and_those_that_the_paper_prints_come_with_them() -> None:
    points = transfer_frame(KNOWN)
    ours = points.loc[points.source == "ours"].set_index(["label", "language"])
    assert ours.loc["mlm", "en-x-inv"][["alignment", "transfer"]].tolist() == pytest.approx([5.0, 40.0])
    assert len(ours) == 6
    printed = points.loc[points.source == "align-mlm"].set_index(["label", "language"])
    assert printed.loc["align-mlm", "en-x-inv"][["alignment", "transfer"]].tolist() == [95.2, 3.0]
    assert len(printed) == 6  # of these two arms, on three languages
    chart = transfer_chart(points, ["align-mlm", "mlm"])
    assert chart is not None
    axes = Figure().subplots()
    chart.panels["Parts of speech, F1 (ALIGN-MLM)"](axes)
    ranks = pd.DataFrame(ours[["alignment", "transfer"]].astype(float)).rank()
    slow = np.corrcoef(ranks.alignment, ranks.transfer)[0, 1]
    # Ranks of the printed ones: 1 2 3 4 5 6 and 6 4 2 5 3 1, so 1 - 6 * 60 / 210.
    assert axes.get_xlabel() == (
        f"Word translation, all pairs, %\nSpearman {slow:+.2f} (6 dots), printed -0.71 (6 dots)"
    )
    assert axes.get_ylabel() == "points lost"


def test_without_the_languages_own_training_the_zero_shot_score_is_drawn_and_one_arm_has_no_chart() -> None:
    one = {("mlm", POS): ZERO, ("mlm", ALIGNED): ZERO}
    assert not len(transfer_frame(scored(one)))
    points = transfer_frame(scored(one | {("weam", POS): ZERO, ("weam", ALIGNED): ZERO}))
    assert (set(points.is_lost), len(points), set(points.source)) == ({False}, 6, {"ours"})
    assert points.transfer.tolist()[:3] == pytest.approx([55.0, 35.0, 15.0])
    assert transfer_chart(points.iloc[:0], []) is None
