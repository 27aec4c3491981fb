"""The word to stop on its way from the driver to the training workers, which may be on another machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError

ANSWER_S = 6.0  # for rank 0 to answer, after which it does not listen


class StopRequest:
    """The driver's side: asks rank 0 of the workers that train just then.

    Attributes:
        rank_zero: calls a function in rank 0, as the trainer's method does; gives no reference while there is none.
    """

    rank_zero: Callable[..., Any]

    def __init__(self) -> None:
        self.rank_zero = lambda *_: None

    def ask(self, name: str) -> bool:
        """Says that a signal asked the job to stop; whether a rank that takes steps has heard it."""
        if (answer := self.rank_zero(_hear, name)) is None:
            return False
        try:
            return ray.get(answer, timeout=ANSWER_S)
        except RayError:
            return False


_heard: list[str] = []
_listening = False


def hear_stop() -> Callable[[], str]:
    """Listens from now on in this process, rank 0's; gives the signal's name, empty while there is none."""
    global _listening
    _listening = True
    return lambda: _heard[0] if _heard else ""


def _hear(name: str) -> bool:
    if _listening:
        _heard.append(name)
    return _listening
