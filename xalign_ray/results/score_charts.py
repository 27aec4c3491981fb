"""Charts of scores: the headline measurement with its intervals, and scores by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from xalign_ray.results.aggregate import means, seed_values
from xalign_ray.results.charts import (
    COLOURS,
    INK,
    LINE,
    MARKERS,
    MEAN,
    TOLD_APART,
    Chart,
    Styles,
    curve_chart,
    line_styles,
)
from xalign_ray.results.compare import OF_FINDING, Comparison, Record
from xalign_ray.results.run import Run
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES
from xalign_ray.tasks.task import SHARE

_MAX_DOTS = 60  # of a score chart: with more, families stand for their languages, and all languages for families
_MAX_NAME = 24  # letters of a baseline that fit above a panel
_ALL_SCORES = "comparison.csv"
_LAYERED = "tatoeba_accuracy"
_SIZED = re.compile(r"(.+) (\d+)")  # a label: of a tool, and how many pairs it had


def score_chart(comparison: Comparison, key: tuple[str, ...]) -> Chart:
    """One measurement by language, or by family where languages are too many, and the differences next to it."""
    cells_of = {by: [cell for cell in comparison.records(by) if cell["key"] == key] for by in OF_FINDING}
    baseline, all_cells = comparison.baseline, cells_of["task"]

    def rank(cell: Record) -> tuple[Any, ...]:  # means may be over other languages, differences are over common ones
        gap = cell["difference"]
        return cell["label"] != baseline, gap is None, -(gap or 0), -cell["mean"]

    best = {cell["label"] for cell in sorted(all_cells, key=rank)[:TOLD_APART]}
    by = {name: [cell for cell in cells if cell["label"] in best] for name, cells in cells_of.items()}
    shown = next((by[name] for name in ("language", "family") if 0 < len(by[name]) <= _MAX_DOTS), [])
    cells = [*by["task"], *shown]
    styles = {
        label: {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number // len(COLOURS) % 4], "ls": ""}
        for number, label in enumerate(label for label in comparison.labels if label in best)
    }  # another marker where all colours are taken
    panels = {"percent": partial(_draw_scores, cells, styles)}
    notes = ["Small dots: seeds."] if any(cell["seeds"] > 1 for cell in cells) else []
    if len(best) < len(all_cells):
        notes.append(
            f"{len(best)} of {len(all_cells)} encoders: {baseline} and the best others; {_ALL_SCORES} has all."
        )
    if any(cell["difference"] is not None for cell in cells):
        name = baseline if len(baseline) <= _MAX_NAME else "the baseline"
        panels[f"points above {name}"] = partial(_draw_differences, cells, styles)
        notes.append(
            "Differences: 95 % confidence interval over languages and seeds, which allows for all encoders of a row; "
            "none below three languages and three seeds."
        )
    groups = len({cell["group"] for cell in cells})
    size = (4.2, 0.75 + groups * (0.08 + 0.1 * len(styles)))
    return Chart("headline", cells[0]["title"], notes, _ALL_SCORES, styles, panels, size=size)


def size_chart(comparison: Comparison) -> Chart | None:
    """Differences from the baseline by the number that ends labels ("mnrl 200"), a line a tool; None without such.

    A panel is the first measurement of a task on a test set.
    """
    points: dict[tuple[str, str], dict[str, list[tuple[int, Record]]]] = {}
    for cell in comparison.records("task"):
        if (sized := _SIZED.fullmatch(cell["label"])) and cell["difference"] is not None:
            panel = points.setdefault((METRICS[cell["metric"]].title, cell["split"]), {})
            panel.setdefault(sized[1], []).append((int(sized[2]), cell))
    several = {tool for panel in points.values() for tool, cells in panel.items() if len(cells) > 1}
    if not several:
        return None
    first = {split: title for title, split in reversed(points)}  # of each test set
    styles = line_styles(sorted(several))
    panels = {
        f"{title} ({split})": partial(_draw_sizes, panel, styles)
        for (title, split), panel in points.items()
        if first[split] == title
    }
    alt = f"Points above {comparison.baseline} by the number in an encoder's label"
    return Chart("sizes", alt, (), _ALL_SCORES, styles, panels)


def _draw_sizes(panel: Mapping[str, Sequence[tuple[int, Record]]], styles: Styles, axes: Axes) -> None:
    axes.axhline(0, color=INK, lw=0.8)
    for tool, style in styles.items():
        cells = sorted(panel.get(tool, ()), key=lambda sized: sized[0])
        sizes, differences = [size for size, _ in cells], [100 * cell["difference"] for _, cell in cells]
        axes.plot(sizes, differences, marker="o", ms=3, **style)
        for size, cell in cells:
            if cell["low_95"] is not None:
                axes.plot([size] * 2, [100 * cell["low_95"], 100 * cell["high_95"]], color=style["color"], lw=0.9)
    axes.set_xscale("log")
    ticks = sorted({size for cells in panel.values() for size, _ in cells})
    axes.set_xticks(ticks, [f"{size:,}" for size in ticks])
    axes.minorticks_off()
    axes.grid(axis="y")


def layer_chart(runs: Sequence[Run], scores: pd.DataFrame) -> Chart | None:
    """Tatoeba accuracy at every layer: the mean over languages, then language by language.

    Of several test sets it is the one that most encoders have, of these the first; the chart is named after it.
    """
    means_of_layers = seed_values(scores.loc[scores.metric == _LAYERED], of_layers=True)
    splits = means_of_layers.sort_values("place", kind="stable").groupby("split", sort=False).label.nunique()
    subject = "Tatoeba accuracy" + (f" ({splits.idxmax()})" if len(splits) > 1 else "")
    means_of_layers = means_of_layers.loc[means_of_layers.split == splits.idxmax()] if len(splits) else means_of_layers
    single = means_of_layers.loc[means_of_layers.language != ALL_LANGUAGES]
    panels = [
        (single if len(single) else means_of_layers).assign(panel=ALL_LANGUAGES),
        single.assign(panel=single.language),
    ]
    averaged = means(pd.concat(panels), ["panel", "label", "layer"])
    rows = [
        (row.panel, row.label, row.layer, seed, 100 * value)
        for row in averaged.itertuples()
        for seed, value in zip(row.block.columns, row.values, strict=True)
    ]
    points = pd.DataFrame(rows, columns=["panel", "label", "x", "across", "value"])
    titles = {ALL_LANGUAGES: MEAN} | {language: language for language in sorted(single.language.unique())}
    chances = {row.panel: 100 * row.chance for row in averaged.itertuples() if row.chance is not None}
    return curve_chart(runs, points, titles, "layers", subject, "layer", chances=chances)


def _draw_scores(cells: Sequence[Record], styles: Styles, axes: Axes) -> None:
    for cell, row, at, style in _places(cells, styles, axes):
        if cell["of_test"] and METRICS[cell["metric"]].unit == SHARE:  # others give no count of questions
            axes.plot([100 * end for end in cell["of_test"]], [at] * 2, color=style["color"], lw=0.9)
        if cell["seeds"] > 1:
            axes.plot([100 * value for value in cell["values"]], [at] * cell["seeds"], ".", ms=3, color=style["color"])
        axes.plot(100 * cell["mean"], at, ms=5, **style)
        if cell["chance"] is not None:
            axes.plot([100 * cell["chance"]] * 2, [row - 0.45, row + 0.45], color=LINE, lw=1, ls=(0, (1, 1.5)))
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))


def _draw_differences(cells: Sequence[Record], styles: Styles, axes: Axes) -> None:
    axes.axvline(0, color=INK, lw=0.8)
    for cell, _, at, style in _places(cells, styles, axes):
        if cell["low_95"] is not None:
            axes.plot([100 * cell["low_95"], 100 * cell["high_95"]], [at] * 2, color=style["color"], lw=1.6)
        if cell["difference"] is not None:
            axes.plot(100 * cell["difference"], at, ms=5, **style)


def _places(
    cells: Sequence[Record], styles: Styles, axes: Axes
) -> Iterator[tuple[Record, int, float, Mapping[str, Any]]]:
    """Each cell with its row, height and style: a row a group from above, its labels below each other."""
    rows, labels = list(dict.fromkeys(cell["group"] for cell in cells)), list(styles)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    for cell in cells:
        row = rows.index(cell["group"])
        shift = (labels.index(cell["label"]) - (len(labels) - 1) / 2) * 0.75 / len(labels)
        yield cell, row, row + shift, styles[cell["label"]]
