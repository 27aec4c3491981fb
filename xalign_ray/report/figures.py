"""Draws panels as SVG for a page, its colours left to the style sheet, and all of a figure's panels as one PNG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from xalign_ray.report.curves import Curve

# Okabe and Ito's colours, told apart with any colour vision; the dashes tell them apart without colour.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#010101")  # SVG leaves plain black out
MARKERS = "oDs^"  # of dots, the next one each time that all colours are taken
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
INK, PALE, LINE, PAPER = "#333333", "#dddddd", "#999999", "#fefefe"
_VARIABLES = {colour: f"var(--series-{number})" for number, colour in enumerate(COLOURS)}
_VARIABLES |= {INK: "var(--ink)", PALE: "var(--grid)", LINE: "var(--line)", PAPER: "var(--paper)"}
RESTARTED = "went on from a checkpoint"
_WIDTH, _WIDER, _RING = 1.6, 2.4, 6.5  # of a line, what each that lies on it adds, and a ring: points
_RESTART: dict[str, Any] = {"ls": "", "marker": "o", "ms": _RING, "mfc": PAPER, "mew": 1.5}
_ON_EACH_OTHER = 0.01  # of a panel's height: curves that are nearer than that cannot be told apart
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "xalign",
    "text.parse_math": False,  # labels are text of users
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": PALE,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
_PER_ROW = 3  # panels of a PNG
_BEFORE_SVG = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_LEFT_OUT = re.compile(r'\s*<metadata>.*?</metadata>|\sxmlns(?::xlink)?="[^"]*"', re.DOTALL)
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_COLOUR = re.compile("|".join(_VARIABLES))

Styles = Mapping[str, dict[str, Any]]


@dataclass(frozen=True)
class Panel:
    """One small chart: curves, at most one a column, or whatever `draw` draws.

    Attributes:
        title: above it.
        curves: by label.
        chance: where a dashed line is drawn.
        draw: in place of curves.
        size: width and height in inches.
    """

    title: str
    curves: Sequence[Curve] = ()
    chance: float | None = None
    draw: Callable[[Axes, Styles], None] | None = None
    size: tuple[float, float] = (3.6, 2.3)


@dataclass(frozen=True)
class Chart:
    """Panels that share the horizontal axis and, if asked, the vertical one.

    Attributes:
        name: of its PNG, and what ids in its SVGs begin with.
        alt: what it shows, for who cannot see it.
        axis: the horizontal one.
        file: with the numbers, beside the page.
        shared: whether panels have one vertical axis.
    """

    name: str
    alt: str
    axis: str
    panels: Sequence[Panel]
    labels: Sequence[str]
    caption: str
    file: str
    shared: bool = True

    @property
    def has_restarts(self) -> bool:
        """Whether a ring is drawn anywhere."""
        return any(curve.restarts for panel in self.panels for curve in panel.curves)


def draw_svgs(chart: Chart) -> list[str]:
    """An `<svg>` element a panel: text as text, colours as the page's variables, ids that no other panel has."""
    found = []
    with matplotlib.rc_context(_STYLE):
        limits = _limits(chart) if chart.shared else None
        for number, panel in enumerate(chart.panels):
            figure = Figure(figsize=panel.size, layout="constrained", facecolor="none")
            FigureCanvasSVG(figure)
            _draw(figure.subplots(), panel, chart, styles_of(chart), limits)
            found.append(_embed(figure, f"{chart.name}-{number}-", f"{chart.alt}: {panel.title}"))
    return found


def draw_png(chart: Chart) -> bytes:
    """All panels on white, with a legend."""
    with matplotlib.rc_context(_STYLE):
        columns = min(_PER_ROW, len(chart.panels))
        rows = math.ceil(len(chart.panels) / columns)
        width, height = chart.panels[0].size
        figure = Figure(figsize=(columns * width, rows * height + 0.35), layout="constrained", facecolor="white")
        grid = figure.subplots(rows, columns, squeeze=False)
        limits = _limits(chart) if chart.shared else None
        for axes, panel in zip(grid.flat, chart.panels, strict=False):
            _draw(axes, panel, chart, styles_of(chart), limits)
        for axes in grid.flat[len(chart.panels) :]:
            axes.set_axis_off()
        handles = [Line2D([], [], label=label, **style) for label, style in styles_of(chart).items()]
        handles += [Line2D([], [], label=RESTARTED, **_RESTART, color=INK)] if chart.has_restarts else []
        if len(handles) > 1:
            longest = max(len(str(handle.get_label())) for handle in handles)
            ncols = max(1, min(len(handles), int(110 / (longest + 8))))
            figure.legend(handles=handles, loc="outside upper left", ncols=ncols, frameon=False, handlelength=3)
        found = io.BytesIO()
        FigureCanvasAgg(figure).print_png(found, metadata={"Software": None})
    return found.getvalue()


def styles_of(chart: Chart) -> dict[str, dict[str, Any]]:
    """Colours, and dashes; curves that lie on each other are whole instead, and the later ones narrower on top."""
    styles: dict[str, dict[str, Any]] = {}
    for number, label in enumerate(chart.labels):
        twins = [
            place for place, other in enumerate(chart.labels) if other != label and _are_twins(chart, label, other)
        ]
        styles[label] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": "-" if twins else _DASHES[number % len(_DASHES)],
            "lw": _WIDTH + _WIDER * sum(place > number for place in twins),
        }
    return styles


def legend(chart: Chart) -> list[dict[str, Any]]:
    """What a page's legend shows: label, colour, width and dashes of each line."""
    return [
        {
            "label": label,
            "colour": _VARIABLES[style["color"]],
            "width": style["lw"],
            "marker": MARKERS[number // len(COLOURS) % len(MARKERS)],
            "dashes": " ".join(str(2 * length) for length in style["linestyle"][1])
            if style["linestyle"] != "-"
            else "",
        }
        for number, (label, style) in enumerate(styles_of(chart).items())
    ]


def _draw(axes: Axes, panel: Panel, chart: Chart, styles: Styles, limits: tuple[float, float] | None) -> None:
    axes.set_title(panel.title, loc="left")
    axes.tick_params(length=2.5)
    axes.set_axisbelow(True)
    if panel.draw:
        panel.draw(axes, styles)
        return
    for curve in panel.curves:
        _draw_curve(axes, curve, styles[curve.label])
    if panel.chance is not None:
        axes.axhline(panel.chance, color=LINE, lw=1, ls=(0, (2, 2)))
    axes.set_xlabel(chart.axis)
    axes.grid(axis="y", lw=0.6)
    axes.locator_params(axis="y", nbins=5)
    axes.locator_params(axis="x", nbins=5, integer=chart.axis == "layer")
    if limits:
        axes.set_ylim(*limits)


def _draw_curve(axes: Axes, curve: Curve, style: dict[str, Any]) -> None:
    few = len(curve.x) <= 14
    axes.plot(curve.x, curve.mean, marker="o" if few else None, ms=3, **style)
    if restarts := [step for step in curve.restarts if min(curve.x) <= step <= max(curve.x)]:
        ring = _RESTART | {"ms": _RING + style["lw"] - _WIDTH}
        axes.plot(restarts, np.interp(restarts, curve.x, curve.mean), color=style["color"], zorder=3, **ring)
    if (curve.high > curve.low).any():
        band = {"color": style["color"], "alpha": 0.18, "lw": 0}
        axes.fill_between(curve.x, curve.low, curve.high, **band)


def _limits(chart: Chart) -> tuple[float, float] | None:
    """The vertical range of all panels."""
    ends = [end for panel in chart.panels for curve in panel.curves for end in (*curve.low, *curve.high)]
    ends += [panel.chance for panel in chart.panels if panel.chance is not None and panel.curves]
    if not ends:
        return None
    margin = 0.05 * (max(ends) - min(ends)) or 0.05
    return min(ends) - margin, max(ends) + margin


def _are_twins(chart: Chart, label: str, other: str) -> bool:
    """Whether the curves of two labels lie on each other in every panel that has either."""
    found = [(panel, [c for c in panel.curves if c.label in (label, other)]) for panel in chart.panels]
    return any(pair for _, pair in found) and all(_coincide(panel, pair) for panel, pair in found if pair)


def _coincide(panel: Panel, pair: Sequence[Curve]) -> bool:
    if len(pair) != 2 or not len(pair[0].x) or not np.array_equal(pair[0].x, pair[1].x):
        return False
    near = _ON_EACH_OTHER * np.ptp(np.concatenate([curve.mean for curve in panel.curves]))
    return bool((abs(pair[0].mean - pair[1].mean) <= near).all())


def _embed(figure: Figure, prefix: str, alt: str) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    body = _LEFT_OUT.sub("", _BEFORE_SVG.sub("", text.getvalue(), count=1)).replace("xlink:href", "href")
    body = _COLOUR.sub(lambda found: _VARIABLES[found[0]], _ID.sub(lambda found: f"{found[1]}{prefix}", body))
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)
