"""Draws charts with matplotlib: each panel as SVG, its colours left to the style sheet, and all panels as one PNG."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Okabe and Ito's colours, told apart with any colour vision; dashes and markers tell them apart without colour.
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
_PER_ROW = 3  # panels of a PNG
_LEGEND_WIDTH = 110  # letters above a PNG
_LEFT_OUT = re.compile(r'^.*?(?=<svg)|\s*<metadata>.*?</metadata>|\sxmlns(?::xlink)?="[^"]*"', re.DOTALL)
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_COLOUR = re.compile("|".join(VARIABLES))

Styles = Mapping[str, Mapping[str, Any]]  # how matplotlib draws each label


@dataclass(frozen=True)
class Chart:
    """Small panels of one kind, with one legend.

    Attributes:
        name: of its PNG, and what ids in its SVGs begin with.
        alt: what it shows, for who cannot see it.
        caption: below it.
        file: with the numbers, beside the page.
        styles: of each label.
        panels: what draws each one, by the title above it.
        rings: the steps after which a run of a label went on from a checkpoint.
        size: of a panel: width and height in inches.
    """

    name: str
    alt: str
    caption: str
    file: str
    styles: Styles
    panels: Mapping[str, Callable[[Axes], None]]
    rings: Mapping[str, Sequence[int]] = field(default_factory=dict)
    size: tuple[float, float] = (3.6, 2.3)


def draw_svgs(chart: Chart) -> list[Markup]:
    """An `<svg>` element a panel: text as text, colours as the page's variables, ids that no other panel has."""
    found = []
    with matplotlib.rc_context(_STYLE):
        for number, (title, draw) in enumerate(chart.panels.items()):
            figure = Figure(figsize=chart.size, layout="constrained", facecolor="none")
            FigureCanvasSVG(figure)
            axes = figure.subplots()
            axes.set_title(title)
            draw(axes)
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None})
            body = _ID.sub(rf"\g<1>{chart.name}-{number}-", _LEFT_OUT.sub("", text.getvalue()))
            body = _COLOUR.sub(lambda match: VARIABLES[match[0]], body).replace("xlink:href", "href")
            found.append(
                Markup(body.replace("<svg", f'<svg role="img" aria-label="{escape(f"{chart.alt}: {title}")}"', 1))
            )
    return found


def draw_png(chart: Chart) -> bytes:
    """All panels on white, with a legend."""
    with matplotlib.rc_context(_STYLE):
        columns = min(_PER_ROW, len(chart.panels))
        rows = math.ceil(len(chart.panels) / columns)
        size = (columns * chart.size[0], rows * chart.size[1] + 0.35)
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        for number, (title, draw) in enumerate(chart.panels.items(), start=1):
            axes = figure.add_subplot(rows, columns, number)
            axes.set_title(title)
            draw(axes)
        handles = [Line2D([], [], label=label, **style) for label, style in chart.styles.items()]
        handles += [Line2D([], [], label=RESTARTED, color=INK, **RING)] if chart.rings else []
        if len(handles) > 1:
            per_row = _LEGEND_WIDTH // (max(len(str(handle.get_label())) for handle in handles) + 8)
            ncols = max(1, min(len(handles), per_row))
            figure.legend(handles=handles, loc="outside upper left", ncols=ncols, frameon=False, handlelength=3)
        found = io.BytesIO()
        FigureCanvasAgg(figure).print_png(found, metadata={"Software": None})
    return found.getvalue()
