"""Tables of a report on several encoders: decisions, costs, learning rates, and scores for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan
from typing import cast

import pandas as pd

from xalign_ray.results.compare import Comparison
from xalign_ray.results.difference import NEAR_ZERO
from xalign_ray.results.run import Run, columns_of, studies_of
from xalign_ray.results.tables import (
    AT_CHANCE,
    NONE,
    TITLES,
    Entry,
    Row,
    Table,
    percent,
    points,
    show_chance,
    show_difference,
    show_mean,
    show_span,
)
from xalign_ray.tasks.registry import METRICS
from xalign_ray.work.status_line import duration


def terminal_table(comparison: Comparison, by: str) -> Table:
    """A grouping with a row an encoder below each metric and group: fits however many encoders there are."""
    several, alone, rows, last = len(comparison.labels) > 1, by == "task", list[Row](), ""
    title = TITLES[by] + (f"; difference: points above {comparison.baseline}" if several else "")
    title += ", with 95 % intervals" if comparison.frame.loc[comparison.frame.by == by].low_95.notna().any() else ""
    for cells in comparison.rows(by):
        metric = cells[0]["metric"] + cells[0]["apart"]
        chance, n = show_chance(cells), show_span(cells, "n", "{:,.0f}".format)
        rows += [(metric, "", "", "")] if not alone and metric != last else []
        name = metric if alone else f"  {cells[0]['group']}"
        rows.append((name, f"chance {chance}" if chance else "", f"n {n}" if n else "", ""))
        last = metric
        for cell in cells:
            mean = Entry(show_mean(cell), AT_CHANCE if cell["at_chance"] else "")
            rows.append(
                (f"{'  ' if alone else '    '}{cell['label']}", mean, show_difference(cell), str(cell["seeds"]))
            )
    return Table(title, ("", "percent", "difference" if several else "", "seeds"), rows)


def decided_table(comparison: Comparison) -> Table:
    """One row a metric: the encoders above the baseline, below it, and undecided ones.

    Empty where two encoders are compared, which the scores show as well.
    """
    rows: list[Row] = []
    for cells in comparison.rows("task") if len(comparison.labels) > 2 else ():
        labels_by_group: dict[str, list[str]] = {"above": [], "not decided": [], "below": [], NEAR_ZERO: []}
        compared = [cell for cell in cells if cell["difference"] is not None]
        for cell in sorted(compared, key=lambda cell: -cell["difference"]):
            why, sign = cell["undecided"], "above" if cell["difference"] > 0 else "below"
            group = why if why == NEAR_ZERO else "not decided" if why else sign
            gap = "" if group == NEAR_ZERO else f"\u00a0{points(cell['difference'])}"
            labels_by_group[group].append(f"{cell['label']}{gap}")
        if compared:
            shown = (
                Entry(", ".join(labels_of_group)) if labels_of_group else NONE
                for labels_of_group in labels_by_group.values()
            )
            rows.append((Entry(cells[0]["title"], cells[0]["metric"]), *shown))
    base = comparison.baseline
    header = ("", f"above {base}", "not decided", f"below {base}", "within 1 point")
    note = f"Points by which an encoder differs from {base}; scores and intervals stand below." if rows else ""
    return Table(f"What is decided against {base}", header, rows, note, names=len(header))


def cost_table(runs: Sequence[Run], costs: pd.DataFrame) -> Table | None:
    """One column an encoder, as in the table of scores: what its trainings took; None where nothing is known."""
    if costs.empty:
        return None
    columns = columns_of(runs)
    means = cast(pd.DataFrame, costs.groupby("encoder").mean(numeric_only=True)).reindex(list(columns))

    def row(title: str, note: str, name: str, show: Callable[[float], str]) -> Row:
        return (Entry(title, note), *(NONE if isnan(value) else show(value) for value in means[name]))

    rows = [
        row("Time of a training", "mean over seeds, all attempts", "seconds", duration),
        row("Worker hours", "time x training processes", "worker_hours", "{:,.2f}".format),
        row("Tokens", "that it was trained on", "tokens", "{:,.0f}".format),
        row("CPU minutes", "of all processes of a command", "cpu_seconds", lambda seconds: f"{seconds / 60:,.1f}"),
        row(
            "Memory",
            "of all processes of a command, at most",
            "peak_memory_mb",
            lambda megabytes: f"{megabytes / 1e3:,.1f} GB",
        ),
    ]
    rows = [row for row in rows if {*row[1:]} != {NONE}]
    note = "Of the encoder itself; fine-tunings and evaluations stand below Running. - is an encoder that was given."
    return Table("What it cost", ("", *columns), rows, note)


def rates_tables(runs: Sequence[Run]) -> list[Table]:
    """The learning rates that each study tried, with development scores and its choices."""
    tables, header = [], ("encoder", "learning rate", "score", "chosen")
    studies = {name: study["rates"] for name, study in studies_of(runs).items() if "rates" in study}
    for name, rates in studies.items():
        rows = list[Row]()
        for tried_rate in rates["tried"]:
            encoder, rate, chosen = tried_rate["encoder"], tried_rate["learning_rate"], Entry("")
            if rate == rates["chosen"][encoder]:
                tried = [other["learning_rate"] for other in rates["tried"] if other["encoder"] == encoder]
                ends = {max(tried): ", the highest tried", min(tried): ", the lowest tried"} if len(tried) > 1 else {}
                chosen = Entry(f"chosen{ends.get(rate, '')}", mark="best")
            rows.append((encoder, f"{rate:g}", percent(rates["metric"], tried_rate["score"]), chosen))
        note = (
            f"{METRICS[rates['metric']].title} in {', '.join(rates['languages'])}, which nothing else here is scored "
            "in. Beyond the lowest or the highest rate there may be a better one."
        )
        tables.append(Table(f"Learning rates tried by {name}", header, rows, note))
    return tables
