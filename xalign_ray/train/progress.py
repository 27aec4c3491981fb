"""What a user sees of a run while it trains: one updated line in a terminal, a plain line an interval elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TextIO

EVERY_S = 5.0  # between two plain lines
_REDRAW_S = 0.2
_LOSS = "train/loss_"


class Progress:
    """Shows events as they are written, wherever they come from: the loop itself, or the log it writes."""

    def __init__(self, steps: int, stream: TextIO) -> None:
        self._steps = steps
        self._stream = stream
        self._terminal = stream.isatty()
        self._shown_at = 0.0
        self._began: tuple[float, int] | None = None
        self._open_line = False

    def show(self, event: Mapping[str, Any]) -> None:
        """Shows one event of the log."""
        shown = {"start": self._start, "step": self._step, "held_out": self._held_out}.get(event["event"])
        if shown:
            shown(event)

    def _start(self, event: Mapping[str, Any]) -> None:
        self._began = None
        for note in event.get("notes", []):
            self._line(note)
        workers = event["workers"]
        where = f"{workers} worker{'s' if workers > 1 else ''}, ZeRO {event['zero_stage']}"
        if event["step"]:
            self._line(f"attempt {event['attempt']} continues after step {event['step']} ({where})")
        else:
            self._line(f"training {event.get('recipe', '')} for {self._steps} steps ({where})")

    def _step(self, event: Mapping[str, Any]) -> None:
        if self._began is None:
            self._began = event["time"], event["step"]
        now = time.monotonic()
        last = event["step"] == self._steps
        if not last and now - self._shown_at < (_REDRAW_S if self._terminal else EVERY_S):
            return
        self._shown_at = now
        metrics = event["metrics"]
        losses = ", ".join(f"{key[len(_LOSS) :]} {_number(metrics[key])}" for key in metrics if key.startswith(_LOSS))
        text = (
            f"step {event['step']}/{self._steps}  loss {_number(metrics['train/loss'])} ({losses})  "
            f"{metrics['train/tokens_per_s']:,.0f} tokens/s  {self._time_left(event)}"
        )
        text = text.rstrip()
        if self._terminal and not last:
            self._stream.write(f"\r\x1b[2K{text}")
            self._stream.flush()
            self._open_line = True
        else:
            self._line(text)

    def _time_left(self, event: Mapping[str, Any]) -> str:
        assert self._began is not None
        began, first = self._began
        if event["step"] == self._steps:
            return "done"
        if event["step"] == first:
            return ""
        seconds = round((event["time"] - began) / (event["step"] - first) * (self._steps - event["step"]))
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}h {minutes:02d}m left" if hours else f"{minutes}m {seconds:02d}s left"

    def _held_out(self, event: Mapping[str, Any]) -> None:
        languages = ", ".join(f"{language} {loss:.3f}" for language, loss in event["languages"].items())
        self._line(
            f"step {event['step']}/{self._steps}  held-out loss {event['metrics']['held_out/loss']:.3f} ({languages})"
        )

    def _line(self, text: str) -> None:
        self._stream.write(f"{chr(13)}\x1b[2K{text}\n" if self._open_line else f"{text}\n")
        self._stream.flush()
        self._open_line = False


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3f}"
