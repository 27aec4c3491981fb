"""Names the worker that holds the others up: they wait for it in each step, and it for none of them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

ENOUGH_STEPS = 5  # the first of an attempt is late where a process starts late
SHARE = 0.2  # of a step that the others wait for it, before it is said; of their wait that it may wait itself


def slow_worker(held: Sequence[float], waits: Sequence[float], step: float, hosts: Sequence[str]) -> str:
    """The sentence on a straggler, empty where there is none.

    What is seen is when each process comes to the sum that begins a step. A GPU works behind its process, and all of
    them are equally late where one is slow: of GPUs this finds what their hosts do slowly, rows and copies.

    Args:
        held: how long each rank waited for the others in a step, ms.
        waits: how long it waited for its rows, ms.
        step: a step's wall time, ms.
        hosts: where each rank is.
    """
    if len(held) < 2:
        return ""
    rank = min(range(len(held)), key=held.__getitem__)
    others = median([*held[:rank], *held[rank + 1 :]])
    if others < SHARE * step or held[rank] > SHARE * others:
        return ""
    late = waits[rank] > others / 2
    why = f"it waits {waits[rank]:.0f} ms for its rows" if late else "its share of the work takes longer"
    return (
        f"Worker {rank} on {hosts[rank]} holds the others up: they wait {others:.0f} of the {step:.0f} ms of a step "
        f"for it, because {why}."
    )
