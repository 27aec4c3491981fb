"""Charts of a page as SVG, and its curves: losses, held-out losses, retrieval while training."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from xalign_ray.results.run import HELD_OUT, MASKED_LM, POINT, RETRIEVAL, TOTAL, Run, columns_of, is_loss, thin_points

# Okabe and Ito's colours, distinct for any colour vision; dashes and markers differ too.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#010101")  # SVG leaves plain black out
INK, PALE, LINE, PAPER = "#333333", "#dddddd", "#999999", "#fefefe"
VARIABLES = {colour: f"var(--series-{number})" for number, colour in enumerate(COLOURS)}
VARIABLES |= {INK: "var(--ink)", PALE: "var(--grid)", LINE: "var(--line)", PAPER: "var(--paper)"}
RESTARTED = "went on from a checkpoint"
RING: dict[str, Any] = {"ls": "", "marker": "o", "ms": 6.5, "mfc": PAPER, "mew": 1.5}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "xalign",
    "text.parse_math": False,  # labels are text of users
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "xtick.major.size": 2.5,
    "ytick.color": INK,
    "ytick.major.size": 2.5,
}
NAMES = ("headline", "change", "sizes", "losses", "held-out", "retrieval", "layers")  # of the charts of a report
_PER_ROW = 3  # panels of a file
_LEGEND_LETTERS, _LEGEND_HANDLE = 11, 8  # letters of an inch of a legend, and those that a dot or line takes
_LEGEND_LINE = 0.19  # inches
_LEFT_OUT = re.compile(r'^.*?(?=<svg)|\s*<metadata>.*?</metadata>|\sxmlns(?::xlink)?="[^"]*"', re.DOTALL)
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_COLOUR = re.compile("|".join(VARIABLES))

Styles = Mapping[str, Mapping[str, Any]]  # how matplotlib draws each label
MAX_DRAWN = 160  # points of a curve; more are averaged, so that a long run is still a small page
_MAX_PANELS = 12
MEAN = "mean over languages"
MARKERS = "oDs^"  # of dots, the next one each time that all colours are taken
TOLD_APART = len(COLOURS) * len(MARKERS)  # labels of a chart; there are as many pairs of colour and dash
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_WIDTH = 1.6  # of a line, in points


@dataclass(frozen=True)
class Chart:
    """Small panels of one kind, with one legend.

    Attributes:
        name: of its files, and what ids in its SVGs begin with.
        alt, notes, file: its description, the last sentences of its caption, the file with its numbers.
        styles, rings: of each label; a ring is a step after which a run of it went on from a checkpoint.
        panels: what draws each one, by the title above it.
        size: of a panel: width and height in inches.
    """

    name: str
    alt: str
    notes: Sequence[str]
    file: str
    styles: Styles
    panels: Mapping[str, Callable[[Axes], None]]
    rings: Mapping[str, Sequence[int]] = field(default_factory=dict)
    size: tuple[float, float] = (3.6, 2.3)


def draw_svgs(chart: Chart) -> list[Markup]:
    """An `<svg>` element a panel: text as text, colours as the page's variables, ids that no other panel has."""
    files = []
    for number, (title, draw) in enumerate(chart.panels.items()):
        panel = replace(chart, panels={title: draw}, styles={}, rings={})
        body = _ID.sub(rf"\g<1>{chart.name}-{number}-", _LEFT_OUT.sub("", draw_file(panel, "none")))
        body = _COLOUR.sub(lambda match: VARIABLES[match[0]], body).replace("xlink:href", "href")
        label = escape(f"{chart.alt}: {title}")
        files.append(Markup(body.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)))
    return files


def draw_file(chart: Chart, paper: str = "white") -> str:
    """All panels as one SVG, with a legend above them where there are several styles."""
    columns = min(_PER_ROW, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    width, height, text = columns * chart.size[0], rows * chart.size[1], io.StringIO()
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # a browser has other fonts
        figure = Figure(figsize=(width, height), layout="constrained", facecolor=paper)
        FigureCanvasSVG(figure)
        for number, (title, draw) in enumerate(chart.panels.items(), start=1):
            axes = figure.add_subplot(rows, columns, number)
            axes.set_title(title)
            draw(axes)
        handles = [Line2D([], [], label=label, **style) for label, style in chart.styles.items()]
        handles += [Line2D([], [], label=RESTARTED, color=INK, **RING)] if chart.rings else []
        if len(handles) > 1:
            longest = max(len(str(handle.get_label())) for handle in handles) + _LEGEND_HANDLE
            fitting = max(1, min(len(handles), int(width * _LEGEND_LETTERS // longest)))
            figure.set_figheight(height + _LEGEND_LINE * (1 + math.ceil(len(handles) / fitting)))
            figure.legend(handles=handles, loc="outside upper left", frameon=False, handlelength=3, ncols=fitting)
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def loss_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One long frame of losses: label, run, seed, and what `Log.points` has, runs of one label equally thinned."""
    widths = {label: max(run.log.width for run in label_runs) for label, label_runs in columns_of(runs).items()}
    frames = [
        thin_points(run.log.points, widths[run.label])[0].assign(label=run.label, run=run.name, seed=run.seed)
        for run in runs
    ]
    return pd.concat(frames, ignore_index=True).reindex(columns=["label", "run", "seed", *POINT])


def training_chart(runs: Sequence[Run], losses: pd.DataFrame) -> Chart | None:
    """Masked-LM loss, every other loss on its own axis, and the total where it is more than the masked-LM loss."""
    shown = losses.loc[losses.series.map(is_loss) & (losses.language == "")]
    others = sorted({*shown.series} - {TOTAL, MASKED_LM})
    titles = {name: f"{name.removeprefix(f'{TOTAL}_').replace('_', ' ')} loss" for name in (MASKED_LM, *others)}
    titles |= {MASKED_LM: "masked LM loss"} | ({TOTAL: "total loss (weighted sum)"} if others else {})
    points = shown.rename(columns={"series": "panel", "step": "x", "run": "across"})
    return curve_chart(runs, points, titles, "losses", "Training losses", shared=False)


def held_out_chart(runs: Sequence[Run], losses: pd.DataFrame) -> Chart | None:
    """Held-out masked-LM loss: the mean over languages, then language by language, of many the largest."""
    return _language_chart(runs, losses.loc[losses.series == HELD_OUT], "held-out", "Held-out masked-LM loss")


def retrieval_chart(runs: Sequence[Run], losses: pd.DataFrame) -> Chart | None:
    """Retrieval on the recipe's tests while training went on, from the untrained model at step 0, in percent."""
    shown = losses.loc[losses.series == RETRIEVAL]
    shown = shown.assign(value=100 * shown.value)
    return _language_chart(runs, shown, "retrieval", "Translations found while training (%)")


def _language_chart(runs: Sequence[Run], own: pd.DataFrame, name: str, subject: str) -> Chart | None:
    """The mean over languages, then language by language, of many those with most text."""
    in_runs = [code for run in runs for code in (run.data or {}).get("languages", ())]
    languages = [
        code for code in dict.fromkeys([*in_runs, *sorted(set(own.language))]) if code in set(own.language) - {""}
    ]
    if len(languages) >= _MAX_PANELS:  # not all are drawn: those with most text
        pools = {name: pool for run in runs for name, pool in (run.data or {}).get("pools", {}).items()}
        languages.sort(key=lambda code: -pools.get(f"text/{code}", {}).get("tokens", 0))
    titles = ({} if len(languages) == 1 else {"": MEAN}) | {code: code for code in languages}
    points = own.rename(columns={"language": "panel", "step": "x", "run": "across"})
    return curve_chart(runs, points, titles, name, subject)


def curves_of(points: pd.DataFrame) -> pd.DataFrame:
    """The mean over the runs of a label with the lowest and the highest, at the places that all its runs have.

    Args:
        points: a row a value: panel, label, across (the run or seed), x and value.

    Returns:
        A row a point: panel, label, x, mean, low, high; at most MAX_DRAWN a curve, each the mean of its neighbours.
    """
    curve = ["panel", "label"]
    runs = points.groupby(curve).across.nunique().rename("runs")
    places = points.groupby([*curve, "x"]).value.agg(mean="mean", low="min", high="max", there="size")
    places = places.join(runs).reset_index().astype({"x": float})
    places = places.loc[places.there == places.runs]
    number, size = places.groupby(curve).cumcount(), places.groupby(curve).x.transform("size")
    bins = places.assign(bin=number * np.minimum(size, MAX_DRAWN) // size).groupby([*curve, "bin"])
    return bins[["x", "mean", "low", "high"]].mean().reset_index().drop(columns="bin")


def curve_chart(
    runs: Sequence[Run],
    points: pd.DataFrame,
    titles: Mapping[str, str],
    name: str,
    subject: str,
    axis: str = "step",
    shared: bool = True,
    chances: Mapping[str, float] | None = None,
) -> Chart | None:
    """A panel for each of the titles that has points, None where there is none; on one vertical axis if `shared`."""
    columns, chances, file = columns_of(runs), chances or {}, "layers.csv" if axis == "layer" else "losses.csv"
    curves = curves_of(points)
    drawn = [panel for panel in titles if panel in set(curves.panel)]
    if not drawn:
        return None
    several = "Lines are means over seeds, bands reach from the lowest to the highest seed."
    notes = [several] if len(runs) > len(columns) else []
    if len(drawn) > _MAX_PANELS:
        notes.append(f"{len(drawn) - _MAX_PANELS} more are in {file}.")
        drawn = drawn[:_MAX_PANELS]
    if len(columns) > TOLD_APART:
        notes.append(f"The first {TOLD_APART} of {len(columns)} encoders; {file} has all.")
        columns = dict(islice(columns.items(), TOLD_APART))
    drawn_curves = curves.loc[curves.panel.isin(drawn) & curves.label.isin(columns)]
    starts = {label: {start["step"] for run in runs for start in run.log.starts} for label, runs in columns.items()}
    rings = {label: sorted(steps - {0}) for label, steps in starts.items() if axis == "step" and steps - {0}}
    ends = [drawn_curves.low.min(), drawn_curves.high.max(), *(chances[panel] for panel in drawn if panel in chances)]
    margin = 0.05 * (max(ends) - min(ends)) or 0.05
    limits = (min(ends) - margin, max(ends) + margin) if shared else None
    styles = line_styles(columns)
    panels = {
        titles[panel]: partial(
            _draw_curves, drawn_curves.loc[drawn_curves.panel == panel], styles, rings, axis, limits, chances.get(panel)
        )
        for panel in drawn
    }
    return Chart(name, f"{subject} by {axis}", notes, file, styles, panels, rings)


def line_styles(labels: Iterable[str]) -> Styles:
    """A colour and a dash for each label."""
    return {
        label: {"color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[number % len(_DASHES)], "lw": _WIDTH}
        for number, label in enumerate(labels)
    }


def _draw_curves(
    curves: pd.DataFrame,
    styles: Styles,
    rings: Mapping[str, Sequence[int]],
    axis: str,
    limits: tuple[float, float] | None,
    chance: float | None,
    axes: Axes,
) -> None:
    for label, style in styles.items():
        rows = curves.loc[curves.label == label]
        axes.plot(rows.x, rows["mean"], marker="o" if len(rows) <= 14 else None, ms=3, **style)
        if (rows.high > rows.low).any():
            axes.fill_between(rows.x, rows.low, rows.high, color=style["color"], alpha=0.18, lw=0)
        if steps := [step for step in rings.get(label, ()) if rows.x.min() <= step <= rows.x.max()]:
            axes.plot(steps, np.interp(steps, rows.x, rows["mean"]), zorder=3, color=style["color"], **RING)
    if chance is not None:
        axes.axhline(chance, color=LINE, lw=1, ls=(0, (2, 2)))
    axes.set_xlabel(axis)
    axes.grid(axis="y")
    axes.locator_params(axis="y", nbins=5)
    axes.locator_params(axis="x", nbins=5, integer=axis == "layer")
    axes.set_ylim(limits)
