"""Decides which charts a report has: headline scores with intervals, training and held-out losses, scores by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from xalign_ray.report.columns import Column
from xalign_ray.report.compare import Comparison, Record
from xalign_ray.report.curves import layer_curves, loss_curves
from xalign_ray.report.figures import COLOURS, INK, LINE, MARKERS, Chart, Panel, Styles
from xalign_ray.report.frames import KEY
from xalign_ray.report.log import HELD_OUT, LOSSES, MASKED_LM, TOTAL
from xalign_ray.tasks.registry import METRICS
from xalign_ray.tasks.scores import ALL_LANGUAGES

_MAX_PANELS = 12
_MAX_DOTS = 40  # of a score chart: with more, families stand for their languages, and all languages for families
_MAX_NAME = 24  # letters of a baseline that fit above a panel
_LAYERED = "tatoeba_accuracy"
_MEAN = "mean over languages"
_Z = 1.96  # standard errors to either side of a 95 % interval
_BAND = " Lines are means over seeds, bands reach from the lowest to the highest seed."
_NESTED = " Where curves lie on each other, the first is the widest and the others are drawn inside it."


def charts_of(columns: Sequence[Column], has_rings: bool) -> Iterator[Chart]:
    """The charts of curves; `has_rings` says that runs of one recipe and seed are among them."""
    yield from filter(None, (training_chart(columns, has_rings), held_out_chart(columns), layer_chart(columns)))


def score_chart(comparison: Comparison, key: tuple[str, ...]) -> Chart:
    """One measurement by language, or by family where languages are too many, and the differences beside it."""
    groups = [_cells(comparison, by, key) for by in ("language", "family", "task")]
    shown = next((cells for cells in groups[:2] if 0 < len(cells) <= _MAX_DOTS), [])
    cells = [*groups[2], *shown]
    rows = list(dict.fromkeys(cell["group"] for cell in cells))
    size = (4.2, 0.75 + len(rows) * (0.08 + 0.1 * len(comparison.labels)))
    panels = [Panel("percent", draw=partial(_draw_scores, cells, rows), size=size)]
    caption = (
        f"{METRICS[key[0]].title}. Thin lines: 95 % interval of the score on this test set (Wilson, each of the n "
        "items an independent question). Dotted: chance."
    )
    caption += " Small dots: seeds." if any(cell["seeds"] > 1 for cell in cells) else ""
    if any(cell["difference"] is not None for cell in cells):
        name = comparison.baseline if len(comparison.baseline) <= _MAX_NAME else "the baseline"
        title = f"points above {name}"
        panels.append(Panel(title, draw=partial(_draw_differences, cells, rows), size=size))
        caption += " Differences: 95 % interval of the paired bootstrap, none below three languages and three seeds."
    alt = f"{METRICS[key[0]].title} by encoder"
    return Chart("headline", alt, "", panels, comparison.labels, caption, "comparison.csv")


def training_chart(columns: Sequence[Column], has_rings: bool = False) -> Chart | None:
    """Masked-LM loss, every other loss on its own axis, and the total where it is more than the masked-LM loss."""
    curves = loss_curves(columns)
    others = sorted(name for name in LOSSES if name not in (TOTAL, MASKED_LM) and (name, "") in curves)
    shown = [MASKED_LM, *others, *([TOTAL] if others else [])]
    panels = [Panel(_name_loss(name), curves[name, ""]) for name in shown if (name, "") in curves]
    caption = (
        "Training losses before their weights (in nats; the alignment loss is minus a mean cosine), each on its own "
        f"axis. losses.csv has every logged step, of a long run means over equal numbers of steps.{_NESTED * has_rings}"
    )
    return _chart(columns, "losses", "Training losses over steps", panels, caption, shared=False)


def held_out_chart(columns: Sequence[Column]) -> Chart | None:
    """Held-out masked-LM loss: the mean over languages, then language by language."""
    curves = {language: curves for (name, language), curves in loss_curves(columns).items() if name == HELD_OUT}
    ids = [code for column in columns for run in column.runs for code in (run.data or {}).get("languages", ())]
    languages = [code for code in dict.fromkeys([*ids, *sorted(curves)]) if code and code in curves]
    mean = [""] if "" in curves and len(languages) != 1 else []
    panels = [Panel(code or _MEAN, curves[code]) for code in [*mean, *languages]]
    caption = (
        "Masked-LM loss (nats a label) on rows that training never saw, the same rows and masks in every run of the "
        "same data."
    )
    return _chart(columns, "held-out", "Held-out masked-LM loss over steps", panels, caption)


def layer_chart(columns: Sequence[Column]) -> Chart | None:
    """Tatoeba accuracy at every layer: the mean over languages, then language by language."""
    found = layer_curves(columns, _LAYERED, _MAX_PANELS)
    panels = [Panel(_MEAN if code == ALL_LANGUAGES else code, *own) for code, own in found.items()]
    caption = (
        "Percent. Layer 0 is the embedding layer. The score in the tables is the mean of the last four layers (of all, "
        "where there are fewer). The dashed line is chance."
    )
    return _chart(columns, "layers", "Tatoeba accuracy by layer", panels, caption, axis="layer", file="layers.csv")


def _chart(
    columns: Sequence[Column],
    name: str,
    alt: str,
    panels: Sequence[Panel],
    caption: str,
    axis: str = "step",
    file: str = "losses.csv",
    shared: bool = True,
) -> Chart | None:
    caption += _BAND if any(len(column.runs) > 1 for column in columns) else ""
    caption += f" {len(panels) - _MAX_PANELS} more are in {file}." if len(panels) > _MAX_PANELS else ""
    labels = [column.label for column in columns]
    return Chart(name, alt, axis, panels[:_MAX_PANELS], labels, caption, file, shared) if panels else None


def _name_loss(name: str) -> str:
    words = name.removeprefix(TOTAL).removeprefix("_").replace("_", " ").replace("masked lm", "masked LM")
    return f"{words} loss" if words else "total loss (weighted sum)"


def _cells(comparison: Comparison, by: str, key: tuple[str, ...]) -> list[Record]:
    return [cell for cell in comparison.records(by) if tuple(cell[name] for name in KEY) == key]


def _draw_scores(cells: Sequence[Record], rows: Sequence[str], axes: Axes, styles: Styles) -> None:
    for cell, place, colour, marker in _places(cells, rows, axes, styles):
        low, high = _wilson(cell["mean"], cell["n"])
        axes.plot([100 * low, 100 * high], [place, place], color=colour, lw=0.9)
        if len(cell["values"]) > 1:
            axes.plot(
                [100 * value for value in cell["values"].values()],
                [place] * len(cell["values"]),
                ".",
                ms=3,
                color=colour,
            )
        axes.plot(100 * cell["mean"], place, marker, ms=5, color=colour)
        if cell["chance"] is not None:
            at = rows.index(cell["group"])
            axes.plot([100 * cell["chance"]] * 2, [at - 0.45, at + 0.45], color=LINE, lw=1, ls=(0, (1, 1.5)))
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))


def _draw_differences(cells: Sequence[Record], rows: Sequence[str], axes: Axes, styles: Styles) -> None:
    axes.axvline(0, color=INK, lw=0.8)
    for cell, place, colour, marker in _places(cells, rows, axes, styles):
        if cell["difference"] is not None:
            if cell["low_95"] is not None:
                axes.plot([100 * cell["low_95"], 100 * cell["high_95"]], [place, place], color=colour, lw=1.6)
            axes.plot(100 * cell["difference"], place, marker, ms=5, color=colour)


def _places(
    cells: Sequence[Record], rows: Sequence[str], axes: Axes, styles: Styles
) -> Iterator[tuple[Record, float, str, str]]:
    """Each cell with its height, colour and marker: a row a group from above, its labels below each other."""
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", lw=0.6)
    axes.tick_params(axis="y", length=0)
    labels = list(styles)
    for cell in cells:
        number = labels.index(cell["label"])
        place = rows.index(cell["group"]) + (number - (len(labels) - 1) / 2) * 0.75 / len(labels)
        yield cell, place, styles[cell["label"]]["color"], MARKERS[number // len(COLOURS) % len(MARKERS)]


def _wilson(share: float, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of n independent questions (Wilson 1927)."""
    centre, width = share + _Z**2 / (2 * n), _Z * float(np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)))
    return (centre - width) / (1 + _Z**2 / n), (centre + width) / (1 + _Z**2 / n)
