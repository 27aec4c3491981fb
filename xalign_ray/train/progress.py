"""Progress of a training run: one updated line in a terminal, a plain line an interval elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, TextIO

from xalign_ray.work.status_line import StatusLine, duration

_LOSS = "train/loss_"
_MAX_SHOWN = 16  # languages


class Progress:
    """Shows events of a running job, from the loop itself or from its log."""

    def __init__(self, steps: int, stream: TextIO, title: str = "") -> None:
        """`title` begins each line, where several runs are shown side by side."""
        self._steps = steps
        self._line = StatusLine(stream, title=title)
        self._began: tuple[float, int] | None = None
        self._kinds = {
            "start": self._start,
            "step": self._step,
            "held_out": partial(self._scored, title="held-out loss", metric="held_out/loss"),
            "retrieval": partial(self._scored, title="retrieval", metric="retrieval/accuracy"),
            "profile": self._text,
            "stalled": self._text,
        }

    def show(self, event: Mapping[str, Any]) -> None:
        """Shows one event of the log."""
        shown = self._kinds.get(event["event"])
        if shown:
            shown(event)

    def close(self) -> None:
        """Ends the line."""
        self._line.close()

    def _start(self, event: Mapping[str, Any]) -> None:
        self._began = None
        for note in event.get("notes", []):
            self._line.keep(note)
        workers = event["workers"]
        where = f"{workers} worker{'s' if workers > 1 else ''}, ZeRO {event['zero_stage']}, {event['execution']}"
        if event["step"]:
            self._line.keep(f"attempt {event['attempt']} continues after step {event['step']} ({where})")
        else:
            self._line.keep(f"training {event.get('recipe', '')} for {self._steps} steps ({where})")
            if values := event.get("values"):
                self._line.keep("; ".join(f"{name}: {value}" for name, value in values.items()))

    def _text(self, event: Mapping[str, Any]) -> None:
        for line in event["text"].splitlines():
            self._line.keep(line)

    def _step(self, event: Mapping[str, Any]) -> None:
        if self._began is None:
            self._began = event["time"], event["step"]
        now = time.monotonic()
        last = event["step"] == self._steps
        if not last and not self._line.is_due(now):
            return
        metrics = event["metrics"]
        losses = ", ".join(f"{key[len(_LOSS) :]} {_number(metrics[key])}" for key in metrics if key.startswith(_LOSS))
        text = (
            f"step {event['step']}/{self._steps}  loss {_number(metrics['train/loss'])}  "
            f"{metrics['train/tokens_per_s']:,.0f} tokens/s{self._time_left(event)}  ({losses})"
        )
        if last:
            self._line.keep(text)
        else:
            self._line.show(text, now)

    def _time_left(self, event: Mapping[str, Any]) -> str:
        assert self._began is not None
        began, first = self._began
        if event["step"] == self._steps:
            return "  done"
        if event["step"] == first:
            return ""
        seconds = (event["time"] - began) / (event["step"] - first) * (self._steps - event["step"])
        return f"  {duration(seconds)} left"

    def _scored(self, event: Mapping[str, Any], title: str, metric: str) -> None:
        score = _number(event["metrics"][metric])
        by_language = _by_language(event["languages"])
        self._line.keep(f"step {event['step']}/{self._steps}  {title} {score} ({by_language})")


def _by_language(losses: Mapping[str, float | None]) -> str:
    """Each language's number, or of many the three lowest and highest: all of them are in events.jsonl."""
    shown = [f"{language} {_number(loss)}" for language, loss in losses.items()]
    if len(shown) <= _MAX_SHOWN:
        return ", ".join(shown)
    ranked = sorted(losses, key=lambda language: math.inf if (loss := losses[language]) is None else loss)
    shown = [f"{language} {_number(losses[language])}" for language in ranked]
    return f"of {len(shown)} languages the lowest {', '.join(shown[:3])}, the highest {', '.join(shown[-3:])}"


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3f}"
