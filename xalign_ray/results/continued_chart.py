"""Chart of a continued encoder: the change in each language with its interval, and gain against loss of mixtures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from xalign_ray.results.charts import COLOURS, INK, LINE, MARKERS, Chart, Styles
from xalign_ray.results.continued import MEASURES, Continued, Row, is_kept

TRAINED, KEPT = "trained", "must not get worse"
_STYLES: Styles = {
    TRAINED: {"color": COLOURS[1], "marker": "o", "ls": ""},
    KEPT: {"color": COLOURS[0], "marker": "D", "ls": ""},
}
_MAX_ROWS = 60
_DRAWN = {name: measure for name, measure in MEASURES.items() if measure.is_bound and measure.in_points}


def change_chart(found: Continued) -> Chart | None:
    """Each language in points above the base; mixtures beside it, where a bound was asked for."""
    rows = [row for kept in (False, True) for name in _DRAWN for row in found.of(name, kept)]
    if not rows:
        return None
    notes = list[str]()
    if len(rows) > _MAX_ROWS:
        notes.append(f"The first {_MAX_ROWS} of {len(rows)} rows; comparison.json has all.")
        rows = rows[:_MAX_ROWS]
    panels = {f"points above {found.name}": partial(_draw_changes, rows)}
    if found.bound and any(name in mixture["kept"] for mixture in found.bound["mixtures"] for name in _DRAWN):
        panels["mixtures: gain, and change of what is kept"] = partial(_draw_mixtures, found.bound)
        notes.append("Right: each share of the trained weights, on the sentences that choose; dotted: the bound.")
    shown = {KEPT if is_kept(row) else TRAINED for row in rows}
    styles = {name: style for name, style in _STYLES.items() if name in shown}
    size = (4.2, max(2.2, 0.75 + 0.19 * len(rows)))
    title = ", ".join(dict.fromkeys(MEASURES[row["measure"]].title for row in rows))
    return Chart("change", title, notes, "../comparison.json", styles, panels, size=size)


def _draw_changes(rows: Sequence[Row], axes: Axes) -> None:
    axes.axvline(0, color=INK, lw=0.9, zorder=1)
    for place, row in enumerate(rows):
        style = _STYLES[KEPT if is_kept(row) else TRAINED]
        if row["low"] is not None:
            axes.plot([100 * row["low"], 100 * row["high"]], [place, place], color=style["color"], lw=1)
        axes.plot([100 * row["difference"]], [place], ms=5, **style)
    first = rows[0]["measure"]
    names = [row["language"] + f", {MEASURES[row['measure']].short}" * (row["measure"] != first) for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x")


def _draw_mixtures(bound: Mapping[str, Any], axes: Axes) -> None:
    """A curve of each measure, from the base on."""
    axes.axvline(0, color=INK, lw=0.9, zorder=1)
    axes.axvline(-bound["lose_at_most"], color=LINE, lw=1, ls=":", zorder=1)
    drawn = [name for name in _DRAWN if any(name in mixture["kept"] for mixture in bound["mixtures"])]
    for name, marker in zip(drawn, MARKERS, strict=False):
        mixtures = [mixture for mixture in bound["mixtures"] if name in mixture["kept"]]
        places = [(100 * mixture["kept"][name][0], 100 * (mixture["gain"] or 0.0)) for mixture in mixtures]
        axes.plot(*zip((0.0, 0.0), *places, strict=True), color=LINE, lw=1, zorder=1)
        if len(drawn) > 1:
            axes.annotate(_DRAWN[name].short, places[-1], (0, -11), textcoords="offset points", color=INK, ha="center")
        for mixture, (kept, gain) in zip(mixtures, places, strict=True):
            low, high = (100 * end for end in mixture["kept"][name][1:])
            colour = COLOURS[1] if mixture["share"] == bound["share"] else COLOURS[0]
            axes.plot([low, high], [gain, gain], color=colour, lw=1)
            axes.plot([kept], [gain], color=colour, marker=marker, ms=5)
            if name == drawn[0]:  # the gain is the same at each measure
                text = f"{100 * mixture['share']:g}%"
                axes.annotate(text, (kept, gain), (4, 3), textcoords="offset points", color=INK)
    axes.set_xlabel("change of what is kept, points")
    axes.set_ylabel("gain, points")
    axes.grid()
