"""Decides which charts a report has: headline scores with intervals, training and held-out losses, scores by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from xalign_ray.report.compare import KEY, Comparison, Record, measure
from xalign_ray.report.figures import COLOURS, INK, LINE, RING, Chart, Styles
from xalign_ray.report.log import HELD_OUT, LOSSES, MASKED_LM, POINT, TOTAL, thin
from xalign_ray.report.run import Run, columns_of
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES

MAX_DRAWN = 160  # points of a curve; more are averaged, so that a long run is still a small page
_MAX_PANELS = 12
_MAX_DOTS = 40  # of a score chart: with more, families stand for their languages, and all languages for families
_MAX_NAME = 24  # letters of a baseline that fit above a panel
_LAYERED = "tatoeba_accuracy"
_MEAN = "mean over languages"
_MARKERS = "oDs^"  # of dots, the next one each time that all colours are taken
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
_WIDTH, _WIDER = 1.6, 2.4  # of a line, and what each later one that lies on it adds: points
_Z = 1.96  # standard errors to either side of a 95 % interval


def score_chart(comparison: Comparison, key: tuple[str, ...]) -> Chart:
    """One measurement by language, or by family where languages are too many, and the differences beside it."""
    by = {name: _cells(comparison, name, key) for name in ("task", "language", "family")}
    shown = next((by[name] for name in ("language", "family") if 0 < len(by[name]) <= _MAX_DOTS), [])
    cells = [*by["task"], *shown]
    styles = {
        label: {"color": COLOURS[number % len(COLOURS)], "marker": _MARKERS[number // len(COLOURS) % 4], "ls": ""}
        for number, label in enumerate(comparison.labels)
    }
    panels = {"percent": partial(_draw_scores, cells, styles)}
    caption = (
        f"{METRICS[key[0]].title}. Thin lines: 95 % interval of the score on this test set (Wilson, each of the n "
        "items an independent question). Dotted: chance."
    )
    caption += " Small dots: seeds." if any(cell["seeds"] > 1 for cell in cells) else ""
    if any(cell["difference"] is not None for cell in cells):
        name = comparison.baseline if len(comparison.baseline) <= _MAX_NAME else "the baseline"
        panels[f"points above {name}"] = partial(_draw_differences, cells, styles)
        caption += " Differences: 95 % interval of the paired bootstrap, none below three languages and three seeds."
    groups = len({cell["group"] for cell in cells})
    size = (4.2, 0.75 + groups * (0.08 + 0.1 * len(styles)))
    alt = f"{METRICS[key[0]].title} by encoder"
    return Chart("headline", alt, caption, "comparison.csv", styles, panels, size=size)


def loss_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One long frame of losses: label, run, seed, and what `Log.points` has, runs of one label equally thinned."""
    widths = {label: max(run.log.width for run in own) for label, own in columns_of(runs).items()}
    frames = [
        thin(run.log.points, widths[run.label])[0].assign(label=run.label, run=run.name, seed=run.seed) for run in runs
    ]
    return pd.concat(frames, ignore_index=True).reindex(columns=["label", "run", "seed", *POINT])


def training_chart(runs: Sequence[Run], losses: pd.DataFrame) -> Chart | None:
    """Masked-LM loss, every other loss on its own axis, and the total where it is more than the masked-LM loss."""
    own = losses.loc[losses.series.isin(LOSSES) & (losses.language == "")]
    others = sorted({*own.series} - {TOTAL, MASKED_LM})
    titles = {name: _name_loss(name) for name in (MASKED_LM, *others, *([TOTAL] if others else []))}
    caption = (
        "Training losses before their weights (in nats; the alignment loss is minus a mean cosine), each on its own "
        "axis. losses.csv has every logged step, of a long run means over equal numbers of steps."
    )
    if len({style["lw"] for style in _line_styles(columns_of(runs)).values()}) > 1:
        caption += " Where curves lie on each other, the first is the widest and the others are drawn inside it."
    curves = curves_of(own.rename(columns={"series": "panel", "step": "x", "run": "across"}))
    names = ("losses", "Training losses over steps", caption, "losses.csv")
    return _curve_chart(runs, curves, titles, *names, shared=False)


def held_out_chart(runs: Sequence[Run], losses: pd.DataFrame) -> Chart | None:
    """Held-out masked-LM loss: the mean over languages, then language by language."""
    own = losses.loc[losses.series == HELD_OUT]
    known = [code for run in runs for code in (run.data or {}).get("languages", ())]
    languages = [
        code for code in dict.fromkeys([*known, *sorted(set(own.language))]) if code in set(own.language) - {""}
    ]
    titles = ({} if len(languages) == 1 else {"": _MEAN}) | {code: code for code in languages}
    caption = (
        "Masked-LM loss (nats a label) on rows that training never saw, the same rows and masks in every run of the "
        "same data."
    )
    curves = curves_of(own.rename(columns={"language": "panel", "step": "x", "run": "across"}))
    return _curve_chart(runs, curves, titles, "held-out", "Held-out masked-LM loss over steps", caption, "losses.csv")


def layer_chart(runs: Sequence[Run], scores: pd.DataFrame) -> Chart | None:
    """Tatoeba accuracy at every layer: the mean over languages, then language by language."""
    measured = measure(scores.loc[scores.single_layer & (scores.metric == _LAYERED)])
    measured = measured.groupby(["label", "language", "layer", "seed"])[["value", "chance"]].mean().mul(100)
    measured = measured.reset_index().rename(columns={"language": "panel", "layer": "x", "seed": "across"})
    order = sorted(measured.panel.unique(), key=lambda language: (language != ALL_LANGUAGES, language))
    titles = {language: _MEAN if language == ALL_LANGUAGES else language for language in order}
    chances = measured.groupby("panel").chance.mean().dropna().to_dict()
    caption = (
        "Percent. Layer 0 is the embedding layer. The score in the tables is the mean of the last four layers (of all, "
        "where there are fewer). The dashed line is chance."
    )
    names = ("layers", "Tatoeba accuracy by layer", caption, "layers.csv")
    return _curve_chart(runs, curves_of(measured), titles, *names, chances=chances)


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


def _curve_chart(
    runs: Sequence[Run],
    curves: pd.DataFrame,
    titles: Mapping[str, str],
    name: str,
    alt: str,
    caption: str,
    file: str,
    shared: bool = True,
    chances: Mapping[str, float] | None = None,
) -> Chart | None:
    """A panel for each of the titles that has curves, None where there is none; on one vertical axis if `shared`."""
    columns, chances = columns_of(runs), chances or {}
    drawn = [panel for panel in titles if panel in set(curves.panel)]
    if not drawn:
        return None
    caption += " Lines are means over seeds, bands reach from the lowest to the highest seed." * (
        len(runs) > len(columns)
    )
    if len(drawn) > _MAX_PANELS:
        caption += f" {len(drawn) - _MAX_PANELS} more are in {file}."
        drawn = drawn[:_MAX_PANELS]
    own = curves.loc[curves.panel.isin(drawn)]
    rings = {}
    if file == "losses.csv":
        steps = {label: {start["step"] for run in own for start in run.log.starts} for label, own in columns.items()}
        rings = {label: sorted(some - {0}) for label, some in steps.items() if some - {0}}
    ends = [own.low.min(), own.high.max(), *(chances[panel] for panel in drawn if panel in chances)]
    margin = 0.05 * (max(ends) - min(ends)) or 0.05
    limits = (min(ends) - margin, max(ends) + margin) if shared else None
    styles = _line_styles(columns)
    axis = "layer" if file == "layers.csv" else "step"
    panels = {
        titles[panel]: partial(
            _draw_curves, own.loc[own.panel == panel], styles, rings, axis, limits, chances.get(panel)
        )
        for panel in drawn
    }
    return Chart(name, alt, caption, file, styles, panels, rings)


def _line_styles(columns: Mapping[str, Sequence[Run]]) -> Styles:
    """Colours and dashes; curves of one recipe and seed lie on each other: they are whole, and later ones narrower."""
    made = [(own[0].settings, own[0].seed) if own[0].config else label for label, own in columns.items()]
    return {
        label: {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": "-" if made.count(made[number]) > 1 else _DASHES[number % len(_DASHES)],
            "lw": _WIDTH + _WIDER * made[number + 1 :].count(made[number]),
        }
        for number, label in enumerate(columns)
    }


def _name_loss(name: str) -> str:
    words = name.removeprefix(TOTAL).removeprefix("_").replace("_", " ").replace("masked lm", "masked LM")
    return f"{words} loss" if words else "total loss (weighted sum)"


def _cells(comparison: Comparison, by: str, key: tuple[str, ...]) -> list[Record]:
    return [cell for cell in comparison.records(by) if tuple(cell[name] for name in KEY) == key]


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
        own = curves.loc[curves.label == label]
        axes.plot(own.x, own["mean"], marker="o" if len(own) <= 14 else None, ms=3, **style)
        if (own.high > own.low).any():
            axes.fill_between(own.x, own.low, own.high, color=style["color"], alpha=0.18, lw=0)
        if steps := [step for step in rings.get(label, ()) if own.x.min() <= step <= own.x.max()]:
            ring = RING | {"ms": RING["ms"] + style["lw"] - _WIDTH, "color": style["color"]}
            axes.plot(steps, np.interp(steps, own.x, own["mean"]), zorder=3, **ring)
    if chance is not None:
        axes.axhline(chance, color=LINE, lw=1, ls=(0, (2, 2)))
    axes.set_xlabel(axis)
    axes.grid(axis="y")
    axes.locator_params(axis="y", nbins=5)
    axes.locator_params(axis="x", nbins=5, integer=axis == "layer")
    axes.set_ylim(limits)


def _draw_scores(cells: Sequence[Record], styles: Styles, axes: Axes) -> None:
    for cell, row, place, style in _places(cells, styles, axes):
        axes.plot([100 * end for end in _wilson(cell["mean"], cell["n"])], [place] * 2, color=style["color"], lw=0.9)
        if cell["seeds"] > 1:
            axes.plot(
                [100 * value for value in cell["values"]], [place] * cell["seeds"], ".", ms=3, color=style["color"]
            )
        axes.plot(100 * cell["mean"], place, ms=5, **style)
        if cell["chance"] is not None:
            axes.plot([100 * cell["chance"]] * 2, [row - 0.45, row + 0.45], color=LINE, lw=1, ls=(0, (1, 1.5)))
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))


def _draw_differences(cells: Sequence[Record], styles: Styles, axes: Axes) -> None:
    axes.axvline(0, color=INK, lw=0.8)
    for cell, _, place, style in _places(cells, styles, axes):
        if cell["low_95"] is not None:
            axes.plot([100 * cell["low_95"], 100 * cell["high_95"]], [place] * 2, color=style["color"], lw=1.6)
        if cell["difference"] is not None:
            axes.plot(100 * cell["difference"], place, ms=5, **style)


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


def _wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n independent questions (Wilson 1927)."""
    centre, width = share + _Z**2 / (2 * n), _Z * float(np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)))
    return (centre - width) / (1 + _Z**2 / n), (centre + width) / (1 + _Z**2 / n)
