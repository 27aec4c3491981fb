"""The papers' printed tables: what does not add up is found, and the correlation that one of them prints."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from xalign_ray.errors import ConfigError
from xalign_ray.results.difference import spearman
from xalign_ray.results.printed import PAPERS, PrintedCell, PrintedTable, cells, read_paper
from xalign_ray.tasks.registry import METRICS


def every_cell() -> list[tuple[str, str, PrintedCell]]:
    read = ((paper, read_paper(paper)) for paper in PAPERS)
    return [(name, table, cell) for name, one in read for table in one.tables for cell in cells(one, one.tables[table])]


def test_printed_cells_whose_own_arithmetic_fails_are_found_and_no_others() -> None:
    found = {
        (paper, table, cell.row.shown, cell.column): (cell.value, round(cell.computed, 1))
        for paper, table, cell in every_cell()
        if cell.computed is not None
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


def test_the_averages_that_are_right_were_looked_at() -> None:
    table = read_paper("ppa").tables["Table 5"]
    wrong = table.model_copy(update={"rows": (table.rows[0].model_copy(update={"values": (*[80.0] * 8, 80.2)}),)})
    assert [cell.computed for cell in cells(read_paper("ppa"), wrong)] == [*[None] * 8, 80.0]


@pytest.mark.parametrize(("task", "printed"), [("XNLI", 0.727), ("NER", 0.781), ("POS", 0.734)])
def test_alignment_and_delta_correlate_as_align_mlm_prints(task: str, printed: float) -> None:
    tables = read_paper("align-mlm").tables
    rows = [tuple((row.section, row.name) for row in tables[name].rows) for name in ("Table 8", "Table 3")]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 12
    found = spearman(tables["Table 8"].column("alignment"), tables["Table 3"].column(f"{task}_delta"))
    assert float(found) == pytest.approx(-printed, abs=0.0005)
    in_text = tables["In the text"]
    assert in_text.column(task) == [printed]


def test_numbers_stand_where_they_are_printed() -> None:
    ppa = read_paper("ppa").tables
    (row,) = [row for row in ppa["Table 2"].rows if row.shown == "zero-shot: PPA 2M"]
    assert dict(zip(ppa["Table 2"].columns, row.values, strict=True))["bg"] == 73.8
    (row,) = [row for row in read_paper("dict-mlm").tables["Table 1"].rows if row.name == "DICT-MLM-90"]
    assert (row.values[1], row.deviations[1]) == (69.4, 2.3)
    assert sum(len(one.tables) for one in map(read_paper, PAPERS)) == 4 + 9 + 2 + 5
    quoted = {cell.row.name for paper, _, cell in every_cell() if paper == "ppa" and cell.row.quoted}
    assert {"XLM-R base", "Artetxe and Schwenk (2019)", "XLM (MLM+TLM)"} <= quoted
    assert not {"PPA 2M", "full"} & quoted


def test_every_number_that_is_ours_names_a_metric_of_the_list() -> None:
    quantities = [cell.quantity for _, _, cell in every_cell() if cell.quantity]
    assert len(quantities) > 500
    parts = [one for quantity in quantities for one in (quantity, quantity.taken_away) if one]
    assert {one.metric for one in parts} <= set(METRICS)
    suffixed = {cell.quantity.label for _, table, cell in every_cell() if table == "Table 4" and cell.quantity}
    assert {"align-mlm-50", "align-mlm-dict"} <= suffixed


def test_an_unknown_paper_and_a_row_of_another_length_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"no printed tables of 'ppaa'\. Did you mean 'ppa'\?"):
        read_paper("ppaa")
    with pytest.raises(ValidationError, match="row a has 1 values for 2 columns"):
        PrintedTable.model_validate(
            {"caption": "", "unit": "", "columns": {"x": {}, "y": {}}, "rows": [{"name": "a", "values": [1]}]}
        )


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
