"""What transfer loses: scores of fine-tuning on the language next to those from English, and word alignment with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import pandas as pd
from matplotlib.axes import Axes

from xalign_ray.results.aggregate import Block, average, common
from xalign_ray.results.charts import PAPER, Chart, Styles, dot_styles
from xalign_ray.results.claims import Measured
from xalign_ray.results.compare import Place
from xalign_ray.results.difference import FEWEST, spearman
from xalign_ray.results.printed import Quantity, printed_points, read_claims
from xalign_ray.results.tables import PLUS_MINUS, Entry, Row, Table, show_average
from xalign_ray.tasks.registry import METRICS

POINTS = "transfer.csv"
COLUMNS = ["metric", "label", "language", "source", "alignment_metric", "alignment", "transfer", "is_lost"]
_ALIGNMENTS = ("alignment_all", "alignment_heldout")  # the first that two arms have; ALIGN-MLM scores all types
_OURS = "ours"
_SUPERVISED = "_supervised"


def _tuned() -> list[str]:
    """Metrics of fine-tuned heads; a task of the user's own adds to them."""
    return [name for name, metric in METRICS.items() if metric.of_tuned_head and not name.endswith(_SUPERVISED)]


def transfer_table(known: Measured, by: str, place_of: Callable[[str], Place]) -> Table | None:
    """SUP, ZS and delta of each metric that was fine-tuned for on both, a row an arm, by groups of languages."""
    rows = list[Row]()
    for metric in _tuned():
        scores, comparable = _scores_of(known, metric)
        for group in sorted({place_of(language) for lost, *_ in scores.values() for language in lost.index}):
            rows += _rows_of_group(
                metric, scores, comparable, group[1] if by != "task" else "", lambda one, g=group: place_of(one) == g
            )
    if not rows:
        return None
    note = (
        "SUP: fine-tuned on the tested language itself. ZS: on English. Delta: SUP less ZS, what transfer loses, in "
        f"points; the lowest of the same languages is bold. {PLUS_MINUS} is over seeds. All three are over the same "
        "languages and seeds."
    )
    name = "" if by == "task" else f" by {by}"
    return Table(f"What transfer loses{name}", ("", "SUP", "ZS", "delta", "languages", "seeds"), rows, note)


def transfer_frame(known: Measured) -> pd.DataFrame:
    """Alignment and transfer of each arm and language, the mean of its seeds, and of print; COLUMNS, in percent.

    Transfer is what it loses where arms were fine-tuned on the tested language too, else the zero-shot score. Only
    metrics with at least three points of two arms.
    """
    frames = [_points_of(known, metric) for metric in _tuned()]
    return pd.concat([pd.DataFrame(columns=COLUMNS), *(one for one in frames if len(one))], ignore_index=True)


def transfer_chart(points: pd.DataFrame, labels: Sequence[str]) -> Chart | None:
    """A panel a metric: a dot an arm and language, hollow where it is printed; Spearman's correlation of each."""
    if not len(points):
        return None
    styles = dot_styles([label for label in labels if label in set(points.label)])
    panels = {
        METRICS[metric].title: partial(_draw_points, points.loc[points.metric == metric], styles)
        for metric in points.metric.unique()
    }
    notes = ["Hollow: as the paper prints them."] if (points.source != _OURS).any() else []
    return Chart("transfer", "Word translation and transfer", notes, POINTS, styles, panels, size=(3.6, 2.8))


def _lost(metric: str, label: str = "") -> Quantity:
    return Quantity(label=label, metric=f"{metric}{_SUPERVISED}", less=(("metric", metric),))


def _scores_of(known: Measured, metric: str) -> tuple[dict[str, list[Block]], bool]:
    """What transfer loses, SUP and ZS of each label, and whether all labels were scored on one test set."""
    quantities = {
        label: [lost, Quantity(label=label, metric=f"{metric}{_SUPERVISED}"), Quantity(label=label, metric=metric)]
        for label in known.labels
        if len(known.values(lost := _lost(metric, label)))
    }
    every = list(chain.from_iterable(quantities.values()))
    if every and not known.why_apart(every):
        found = known.values_of(every)
        return {label: found[3 * place : 3 * place + 3] for place, label in enumerate(quantities)}, True
    return {label: known.values_of(own) for label, own in quantities.items()}, False


def _rows_of_group(
    metric: str, scores: Mapping[str, Sequence[Block]], comparable: bool, group: str, is_in: Callable[[str], bool]
) -> Iterator[Row]:
    own = {label: common(lost, [*filter(is_in, lost.index)]) for label, (lost, *_) in scores.items()}
    own = {label: values for label, values in own.items() if len(values)}
    shown = {label: round(100 * average(values)[0], 1) for label, values in own.items()}
    same = comparable and len(own) > 1 and len({tuple(values.index) for values in own.values()}) == 1
    title = METRICS[metric].title
    yield (Entry(f"{title}: {group}" if group else title, metric),)
    for label, values in own.items():
        both = [common(one, values.index, values.columns) for one in scores[label][1:]]
        lowest = same and shown[label] == min(shown.values())
        delta = Entry(show_average(values), mark="best" if lowest else "")
        yield (label, *map(show_average, both), delta, str(len(values)), str(len(values.columns)))


def _points_of(known: Measured, metric: str) -> pd.DataFrame:
    by_name = {name: known.of_arms(Quantity(metric=name)) for name in _ALIGNMENTS}
    alignment = next((name for name, arms in by_name.items() if len(arms) > 1), "")
    lost = known.of_arms(_lost(metric))
    lost = lost if len(lost) > 1 else {}
    reached = lost or known.of_arms(Quantity(metric=metric))
    rows = [
        (
            *(metric, label, language, _OURS, alignment),
            *(100 * average(common(values, [language]))[0] for values in (x, reached[label])),
            bool(lost),
        )
        for label, x in by_name.get(alignment, {}).items()
        if label in reached
        for language in common(x, reached[label].index).index
    ]
    points = pd.DataFrame(rows, columns=COLUMNS)
    if len(points) < FEWEST or points.label.nunique() < 2:
        return points.iloc[:0]
    return pd.concat([points, _printed(points)], ignore_index=True)


def _printed(points: pd.DataFrame) -> pd.DataFrame:
    """The points that a paper prints of these arms, where it claims this very correlation."""
    first = points.iloc[0]
    asked = (
        Quantity(metric=first.alignment_metric),
        _lost(first.metric) if first.is_lost else Quantity(metric=first.metric),
    )
    rows = [
        (first.metric, arm, language, claim.paper, first.alignment_metric, x, y, first.is_lost)
        for claim in read_claims().values()
        if claim.kind == "correlation" and (claim.x, claim.y) == asked
        for arm, language, x, y in printed_points(claim)
        if arm in set(points.label)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def _draw_points(points: pd.DataFrame, styles: Styles, axes: Axes) -> None:
    said = []
    for source, own in points.groupby("source", sort=False):
        for label, style in styles.items():
            dots = own.loc[own.label == label]
            face = {} if source == _OURS else {"mfc": PAPER, "alpha": 0.7}
            axes.plot(dots.alignment, dots.transfer, ms=5, **{**style, **face})
        found = float(spearman(own.alignment.to_numpy(float), own.transfer.to_numpy(float)))
        shown = "undefined" if math.isnan(found) else f"{found:+.2f}"
        said.append(f"{'Spearman' if source == _OURS else 'printed'} {shown} ({len(own)} dots)")
    first = points.iloc[0]
    axes.set_xlabel(f"{METRICS[first.alignment_metric].title}, %\n{', '.join(said)}")
    axes.set_ylabel("points lost" if first.is_lost else "zero-shot, %")
    axes.grid()
