"""Transfer gap: scores after fine-tuning on the tested language, beside zero-shot scores from English."""

from __future__ import annotations

from xalign_ray.results.aggregate import average, common
from xalign_ray.results.claims import Measured
from xalign_ray.results.printed import Quantity
from xalign_ray.results.tables import PLUS_MINUS, Entry, Row, Table, show_average
from xalign_ray.tasks.registry import METRICS

_SUPERVISED = "_supervised"


def transfer_table(known: Measured) -> Table | None:
    """SUP, ZS and delta of each metric that was fine-tuned for on both, a row an arm; all arms on one test set."""
    rows = list[Row]()
    for name, metric in METRICS.items():
        if not metric.of_tuned_head or f"{name}{_SUPERVISED}" not in METRICS:
            continue
        arms = known.of_arms(Quantity(metric=f"{name}{_SUPERVISED}", less=(("metric", name),)))
        if not arms:
            continue
        rows.append((Entry(metric.title, name),))
        parts = [Quantity(label=label, metric=part) for label in arms for part in (f"{name}{_SUPERVISED}", name)]
        scored = iter(known.values_of(parts))
        deltas = {label: round(100 * average(block)[0], 1) for label, block in arms.items()}
        same = len(arms) > 1 and len({tuple(block.index) for block in arms.values()}) == 1
        for (label, block), *both in zip(arms.items(), scored, scored, strict=True):
            scores = (show_average(common(part, block.index, block.columns)) for part in both)
            delta = Entry(show_average(block), mark="best" if same and deltas[label] == min(deltas.values()) else "")
            rows.append((label, *scores, delta, str(len(block)), str(len(block.columns))))
    if not rows:
        return None
    note = (
        "SUP: fine-tuned on the tested language itself. ZS: on English. Delta: SUP less ZS, what transfer loses, in "
        f"points; the lowest of the same languages is bold. {PLUS_MINUS} is over seeds. All three are over the same "
        "languages and seeds."
    )
    return Table("What transfer loses", ("", "SUP", "ZS", "delta", "languages", "seeds"), rows, note)
