"""The papers' printed tables: what does not add up is found, and the correlation that one of them prints."""

from __future__ import annotations

import pytest

from xalign_ray.results.printed import printed_cells, read_claims
from xalign_ray.tasks.registry import METRICS

MEANS = {
    ("weam", "Table 1", f"avg_{what}_{metric}"): [f"{code}_{metric}" for code in codes]
    for metric in ("EM", "F1")
    for what, codes in (("all", ("en", "es", "de", "zh")), ("zero_shot", ("es", "de", "zh")))
} | {
    ("weam", "Table 2", "avg_all"): ["en", "es", "de", "zh"],
    ("weam", "Table 2", "avg_zero_shot"): ["es", "de", "zh"],
    **{("ppa", f"Table {n}", "avg"): ["en", "fr", "es", "de", "bg", "ar", "zh", "hi"] for n in (2, 5)},
    ("ppa", "Table 4", "avg"): ["en", "ar", "de", "es", "hi", "zh"],
}
LOST = {f"{task}_delta": (f"{task}_SUP", f"{task}_ZS") for task in ("XNLI", "NER", "POS")}


def test_printed_cells_whose_own_arithmetic_fails_are_corrected_and_no_others() -> None:
    """A mean of one decimal is off by at most 0.1, a difference of two by 0.15."""
    cells = printed_cells()
    rows = cells.pivot_table("printed", ["paper", "table", "line"], "column")
    corrected = cells.dropna(subset="recomputed").set_index(["paper", "table", "line", "column"]).recomputed.to_dict()
    checked = {}
    for (paper, table, line), row in rows.iterrows():  # type: ignore[misc]
        means = {name: row[own] for (of, where, name), own in MEANS.items() if (of, where) == (paper, table)}
        follows = {name: (own.mean(), 0.1) for name, own in means.items() if own.notna().all()}
        follows |= {
            name: (row[sup] - row[zs], 0.15) for name, (sup, zs) in LOST.items() if {sup, zs} <= {*row.dropna().index}
        }
        wrong = {name: value for name, (value, off) in follows.items() if abs(row[name] - value) > off + 1e-9}
        checked |= {(paper, table, line, name): value for name, value in wrong.items()}
    assert corrected.pop(("align-mlm", "Table 8", 3, "XNLI_delta")) == -0.2  # as in Table 3
    assert corrected == pytest.approx(checked, abs=1e-4)
    assert len(checked) == 11


def test_correlations_that_claims_state_are_those_in_the_text() -> None:
    in_text = printed_cells().loc[printed_cells().table == "In the text"].set_index("column").printed
    stated = [one.printed for one in read_claims().values() if one.kind == "correlation"]
    assert in_text[["XNLI", "NER", "POS"]].tolist() == [-one for one in stated]


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
