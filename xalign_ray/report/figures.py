"""Draws curves as small multiples in SVG that can stand inside a page: no outside reference, no clash of ids."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from xalign_ray.report.curves import Curve

# Okabe and Ito's colours, told apart with any colour vision; the dashes tell them apart without colour.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_INK, _PALE = "#333333", "#dddddd"
RESTARTED = "went on from a checkpoint"
_LINE, _WIDER, _RING = 1.6, 2.4, 6.5  # width of a line, what each that lies on it adds, and a ring: points
_RESTART: dict[str, Any] = {"ls": "", "marker": "o", "ms": _RING, "mfc": "white", "mew": 1.5}
_ON_EACH_OTHER = 0.01  # of a panel's height: curves that are nearer than that cannot be told apart
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "xalign",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_PER_ROW, _WIDTH, _HEIGHT = 3, 3.6, 2.3  # panels in a row, inches
_BEFORE_SVG = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_NAMESPACE = re.compile(r'\sxmlns(?::xlink)?="[^"]*"')


@dataclass(frozen=True)
class Panel:
    """One small chart.

    Attributes:
        title: above it.
        curves: at most one a column.
        unit: of the vertical axis.
        chance: where a dashed line is drawn.
    """

    title: str
    curves: Sequence[Curve]
    unit: str
    chance: float | None = None


@dataclass(frozen=True)
class Chart:
    """Panels that share the horizontal axis and, if asked, the vertical one."""

    name: str
    alt: str
    axis: str
    panels: Sequence[Panel]
    labels: Sequence[str]
    shared: bool = True
    whole_numbers: bool = False
    scale: float = 1.0


def draw(chart: Chart) -> str:
    """An `<svg>` element: light background, text as text, ids that begin with the chart's name."""
    with matplotlib.rc_context(_STYLE):
        columns = min(_PER_ROW, len(chart.panels))
        rows = math.ceil(len(chart.panels) / columns)
        height = rows * _HEIGHT + 0.35
        figure = Figure(figsize=(columns * _WIDTH, height), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        grid = figure.subplots(rows, columns, squeeze=False, sharey=chart.shared)
        styles = _styles(chart)
        for number, axes in enumerate(grid.flat):
            if number < len(chart.panels):
                _draw_panel(axes, chart.panels[number], chart, styles)
            else:
                axes.set_axis_off()
        for axes in grid.flat[max(0, len(chart.panels) - columns) : len(chart.panels)]:
            axes.set_xlabel(chart.axis)
        handles = [Line2D([], [], label=label, **styles[label]) for label in chart.labels]
        if any(curve.restarts for panel in chart.panels for curve in panel.curves):
            handles.append(Line2D([], [], label=RESTARTED, **_RESTART, color=_INK))
        if len(handles) > 1:
            _draw_legend(figure, handles)
        return _embed(figure, chart)


def _draw_panel(axes, panel: Panel, chart: Chart, styles: Mapping[str, dict[str, Any]]) -> None:
    for curve in panel.curves:
        style = styles[curve.label]
        few = len(curve.x) <= 14
        axes.plot(curve.x, chart.scale * curve.mean, marker="o" if few else None, ms=3, **style)
        if restarts := [step for step in curve.restarts if min(curve.x) <= step <= max(curve.x)]:
            at = np.interp(restarts, curve.x, curve.mean)
            ring = _RESTART | {"ms": _RING + style["lw"] - _LINE}
            axes.plot(restarts, chart.scale * at, color=style["color"], zorder=3, **ring)
        if (curve.high > curve.low).any():
            band = {"color": style["color"], "alpha": 0.15, "lw": 0}
            axes.fill_between(curve.x, chart.scale * curve.low, chart.scale * curve.high, **band)
    if panel.chance is not None:
        axes.axhline(chart.scale * panel.chance, color="#888888", lw=1, ls=(0, (2, 2)))
    axes.set_title(panel.title, loc="left")
    axes.set_ylabel(panel.unit)
    axes.grid(axis="y", color=_PALE, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=2.5, labelleft=True)
    axes.locator_params(axis="y", nbins=5)
    axes.locator_params(axis="x", nbins=5, integer=chart.whole_numbers)


def _styles(chart: Chart) -> dict[str, dict[str, Any]]:
    """Colours, and dashes; curves that lie on each other are whole instead, and the later ones narrower on top."""
    styles: dict[str, dict[str, Any]] = {}
    for number, label in enumerate(chart.labels):
        twins = [place for place, other in enumerate(chart.labels) if _are_twins(chart, label, other)]
        styles[label] = {
            "color": _COLOURS[number % len(_COLOURS)],
            "linestyle": "-" if twins else _DASHES[number % len(_DASHES)],
            "lw": _LINE + _WIDER * sum(place > number for place in twins),
        }
    return styles


def _are_twins(chart: Chart, label: str, other: str) -> bool:
    """Whether the curves of two labels lie on each other in every panel that has either."""
    found = [(panel, [c for c in panel.curves if c.label in (label, other)]) for panel in chart.panels]
    return any(pair for _, pair in found) and all(_coincide(panel, pair) for panel, pair in found if pair)


def _coincide(panel: Panel, pair: Sequence[Curve]) -> bool:
    if len(pair) != 2 or not len(pair[0].x) or not np.array_equal(pair[0].x, pair[1].x):
        return False
    near = _ON_EACH_OTHER * np.ptp(np.concatenate([curve.mean for curve in panel.curves]))
    return bool((abs(pair[0].mean - pair[1].mean) <= near).all())


def _draw_legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), int(110 / (longest + 8))))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns, frameon=False, handlelength=3)


def _embed(figure: Figure, chart: Chart) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    body = _METADATA.sub("", _BEFORE_SVG.sub("", text.getvalue(), count=1))
    body = _NAMESPACE.sub("", body).replace("xlink:href", "href")
    body = _ID.sub(lambda found: f"{found[1]}{chart.name}-", body)
    return body.replace("<svg", f'<svg role="img" aria-label="{chart.alt}"', 1)
