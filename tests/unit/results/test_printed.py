"""The papers' printed tables: what does not add up is found, and the correlation that one of them prints."""

from __future__ import annotations

import numpy as np

from xalign_ray.results.difference import spearman
from xalign_ray.results.printed import printed_cells, printed_points, read_claims
from xalign_ray.tasks.registry import METRICS


def test_printed_cells_whose_own_arithmetic_fails_are_found_and_no_others() -> None:
    wrong = printed_cells().dropna(subset="recomputed")
    found = {
        (one.paper, one.table, f"{one.section}: {one.row}", one.column): (one.printed, round(one.recomputed, 1))
        for one in wrong.itertuples()
    }
    weam = {
        "translate-train: mBERT (Lewis et al.)": {"EM": (43.0, 41.5), "F1": (60.3, 59.1)},
        "translate-train: mBERT (ours)": {"EM": (48.1, 46.8), "F1": (65.7, 64.7)},
        "zero-shot: mBERT (Lewis et al.)": {"EM": (44.2, 42.7), "F1": (61.0, 59.9)},
        "zero-shot: mBERT+TLM": {"EM": (46.7, 45.4), "F1": (64.6, 63.6)},
        "zero-shot: mBERT+WEAM": {"EM": (48.2, 47.0), "F1": (66.2, 65.3)},
    }
    expected = {
        ("weam", "Table 1", row, f"avg_zero_shot_{metric}"): values
        for row, metrics in weam.items()
        for metric, values in metrics.items()
    }
    expected["weam", "Table 1", "zero-shot: mBERT+WEAM", "avg_all_EM"] = (51.7, 51.9)
    expected["align-mlm", "Table 8", "XLM: Trans", "XNLI_delta"] = (0.2, -0.2)
    assert found == expected


def test_alignment_and_what_is_lost_correlate_as_align_mlm_prints() -> None:
    points = {name: printed_points(one) for name, one in read_claims().items() if one.kind == "correlation"}
    assert {len(own) for own in points.values()} == {12}
    found = [round(float(spearman([x for *_, x, _ in own], [y for *_, y in own])), 3) for own in points.values()]
    assert found == [-0.727, -0.781, -0.734]
    in_text = printed_cells().loc[printed_cells().table == "In the text"].set_index("column").printed
    assert in_text[["XNLI", "NER", "POS"]].tolist() == [-one for one in found]


def test_numbers_stand_where_they_are_printed() -> None:
    cells = printed_cells()
    assert len(cells.groupby(["paper", "table"])) == 4 + 9 + 2 + 5
    places = cells.set_index(["paper", "table", "row", "column"]).sort_index()
    assert places.loc["ppa", "Table 2", "PPA 2M", "bg"].printed.iloc[0] == 73.8
    own = places.loc["dict-mlm", "Table 1", "DICT-MLM-90", "POS_acc"]
    assert (own.printed, own.printed_deviation) == (69.4, 2.3)
    quoted = {*cells.row[(cells.paper == "ppa") & (cells.quoted != "")]}
    assert {"XLM-R base", "Artetxe and Schwenk (2019)", "XLM (MLM+TLM)"} <= quoted
    assert not {"PPA 2M", "full"} & quoted


def test_every_number_that_is_ours_names_a_metric_of_the_list() -> None:
    quantities = printed_cells().quantity.dropna()
    assert len(quantities) > 500
    assert {part.metric for quantity in quantities for part in quantity.parts} <= set(METRICS)
    assert {"align-mlm-50", "align-mlm-dict"} <= {quantity.label for quantity in quantities}


def slow_rank(values: list[float]) -> list[float]:
    """The mean place of a value among the sorted ones."""
    ordered = sorted(values)
    return [float(np.mean([place for place, other in enumerate(ordered, 1) if other == one])) for one in values]


def test_the_correlation_is_that_of_ranks_for_each_series() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 5, (2, 20, 8)).astype(float)
    slow = [
        float(np.corrcoef(slow_rank(list(a)), slow_rank(list(b)))[0, 1]) for a, b in zip(first, second, strict=True)
    ]
    np.testing.assert_allclose(spearman(first, second), slow, atol=1e-12)
    assert np.isnan(spearman([1.0, 1.0], [1.0, 2.0]))
