"""Chart of a continued encoder: the change in each language with its interval, and gain against loss of mixtures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from xalign_ray.results.charts import COLOURS, INK, LINE, Chart, Styles
from xalign_ray.results.continued import Continued, Row

TRAINED, KEPT = "trained", "not trained"
_STYLES: Styles = {
    TRAINED: {"color": COLOURS[1], "marker": "o", "ls": ""},
    KEPT: {"color": COLOURS[0], "marker": "D", "ls": ""},
}
_MAX_ROWS = 60


def change_chart(found: Continued) -> Chart | None:
    """Translations found, in points above the base; beside it the mixtures, where one was chosen within a bound."""
    rows = [*found.of("retrieval", True), *found.of("retrieval", False)]
    if not rows:
        return None
    notes = list[str]()
    if len(rows) > _MAX_ROWS:
        notes.append(f"The first {_MAX_ROWS} of {len(rows)} languages; comparison.json has all.")
        rows = rows[:_MAX_ROWS]
    panels = {f"points above {found.name}": partial(_draw_changes, rows)}
    if found.bound and all("retrieval" in mixture["kept"] for mixture in found.bound["mixtures"]):
        panels["mixtures: gain, and change of what is kept"] = partial(_draw_mixtures, found.bound)
        notes.append("Right: each share of the trained weights, on the sentences that choose; dotted: the bound.")
    shown = {TRAINED if row["trained"] else KEPT for row in rows}
    styles = {name: style for name, style in _STYLES.items() if name in shown}
    size = (4.2, max(2.2, 0.75 + 0.19 * len(rows)))
    return Chart("change", "Translations found", notes, "../comparison.json", styles, panels, size=size)


def _draw_changes(rows: Sequence[Row], axes: Axes) -> None:
    axes.axvline(0, color=INK, lw=0.9, zorder=1)
    for place, row in enumerate(rows):
        style = _STYLES[TRAINED if row["trained"] else KEPT]
        if row["low"] is not None:
            axes.plot([100 * row["low"], 100 * row["high"]], [place, place], color=style["color"], lw=1)
        axes.plot([100 * row["difference"]], [place], ms=5, **style)
    axes.set_yticks(range(len(rows)), [row["language"] for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="x")


def _draw_mixtures(bound: Mapping[str, Any], axes: Axes) -> None:
    axes.axvline(0, color=INK, lw=0.9, zorder=1)
    axes.axvline(-bound["lose_at_most"], color=LINE, lw=1, ls=":", zorder=1)
    places = [(100 * mixture["kept"]["retrieval"][0], 100 * (mixture["gain"] or 0.0)) for mixture in bound["mixtures"]]
    axes.plot(*zip((0.0, 0.0), *places, strict=True), color=LINE, lw=1, zorder=1)
    for mixture, (kept, gain) in zip(bound["mixtures"], places, strict=True):
        low, high = (100 * end for end in mixture["kept"]["retrieval"][1:])
        colour = COLOURS[1] if mixture["share"] == bound["share"] else COLOURS[0]
        axes.plot([low, high], [gain, gain], color=colour, lw=1)
        axes.plot([kept], [gain], color=colour, marker="o", ms=5)
        axes.annotate(f"{mixture['share']:.0%}", (kept, gain), (4, 3), textcoords="offset points", color=INK)
    axes.set_xlabel("change of what is kept, points")
    axes.set_ylabel("gain, points")
    axes.grid()
