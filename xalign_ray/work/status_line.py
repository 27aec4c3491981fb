"""Progress line of a job: redrawn in a terminal, a plain line an interval elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

EVERY_S = 5.0  # between two plain lines
STILL_S = 60.0  # after which the line of a job's parts is shown again, though none was done
_REDRAW_S = 0.2


class StatusLine:
    """A line that is replaced by the next one in a terminal; elsewhere those in between are left out.

    Args:
        stream: the terminal or log.
        shown_at: when the first interval begins; without it the first line is due at once.
        title: begins each line. Lines of several writers cannot replace each other: they are plain.
    """

    def __init__(self, stream: TextIO, shown_at: float = 0.0, title: str = "") -> None:
        self.terminal = stream.isatty() and not title
        self._title = f"{title}: " if title else ""
        self._stream = stream
        self._shown_at = shown_at
        self._is_open = False

    def is_due(self, now: float) -> bool:
        """Whether the last one has stood for an interval."""
        return self.stands_since(now) >= (_REDRAW_S if self.terminal else EVERY_S)

    def stands_since(self, now: float) -> float:
        """Seconds since the last one was shown."""
        return now - self._shown_at

    def show(self, text: str, now: float) -> None:
        """Shows a line that the next one may replace."""
        self._shown_at = now
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1  # a wrapped line cannot be redrawn
            self._stream.write(f"\r\x1b[2K{text[:width]}")
            self._stream.flush()
            self._is_open = True
        else:
            self.keep(text)

    def keep(self, text: str) -> None:
        """Shows a line that stays."""
        line = f"{self._title}{text}\n"
        self._stream.write(f"\r\x1b[2K{line}" if self._is_open else line)
        self._stream.flush()
        self._is_open = False

    def erase(self) -> None:
        """Takes the line back."""
        self.close("\r\x1b[2K")

    def close(self, end: str = "\n") -> None:
        """Ends the line, so that the next message begins a new one."""
        if self._is_open:
            self._stream.write(end)
            self._stream.flush()
        self._is_open = False


class PartsDone:
    """Counts the parts of a job while they are done; a job shorter than an interval leaves no line.

    While a part takes long, the line comes again each minute, with the time left.

    Args:
        what: the job, as the line begins.
        sizes: bytes of each part, 0 where they are not known.
        stream: standard error if not given.
        part: the noun for a part.
    """

    def __init__(self, what: str, sizes: Mapping[Any, float], stream: TextIO | None = None, part: str = "part") -> None:
        self._began = time.monotonic()
        self._line = StatusLine(stream or sys.stderr, self._began)
        self._what, self._sizes = what, sizes
        self._total_parts = f"{len(sizes):,} {part}{'s' if len(sizes) != 1 else ''}"
        self._total = sum(sizes.values())
        self._done = 0
        self._bytes = 0.0
        self._lock = threading.Lock()
        self._is_over = threading.Event()

    def __enter__(self) -> PartsDone:
        if self._line.terminal and self._sizes:
            self._line.show(f"{self._what}: 0 of {self._total_parts}", self._began)
        threading.Thread(target=self._show_again, daemon=True, name="parts done").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        with self._lock:
            (self._line.close if error else self._line.erase)()

    def _show_again(self) -> None:
        while not self._is_over.wait(STILL_S):
            with self._lock:
                if self._line.stands_since(now := time.monotonic()) >= STILL_S and not self._is_over.is_set():
                    self._line.show(self._text(now), now)

    def add(self, part: Any) -> None:
        """Another part is done."""
        with self._lock:
            self._done += 1
            self._bytes += self._sizes[part]
            now = time.monotonic()
            if self._done == len(self._sizes):
                if now - self._began >= EVERY_S:
                    self._line.keep(self._text(now))
            elif self._line.is_due(now):
                self._line.show(self._text(now), now)

    def _text(self, now: float) -> str:
        seconds = now - self._began
        speed = [f"{self._bytes / seconds / 1e6:,.1f} MB/s"] if self._bytes and seconds else []
        share = self._bytes / self._total if self._total else self._done / len(self._sizes)
        so_far = [f"{duration(seconds)} so far"] if seconds >= STILL_S else []
        left = [f"{duration(seconds / share - seconds)} left"] if share else so_far
        rest = [f"done in {duration(seconds)}"] if self._done == len(self._sizes) else left
        return ", ".join([f"{self._what}: {self._done:,} of {self._total_parts}", *speed, *rest])


def say(text: str) -> None:
    """One line for the user, on stderr; of the processes that torchrun starts only the first writes it."""
    if os.environ.get("RANK", "0") == "0":
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


_next: list[str] = []  # hints that a command line prints after the verb's result


def say_next(*commands: str) -> None:
    """Keeps a hint for the user, which the command line prints after the verb's result; the Python API prints none."""
    _next[:] = commands


def forget_next() -> None:
    """A command begins."""
    _next.clear()


def show(result: Any, **_: Any) -> None:
    """A command ends: its result, text or paths, goes to stdout, and what may be done next to stderr."""
    if os.environ.get("RANK", "0") == "0":
        for line in result if isinstance(result, list) else [result]:
            if isinstance(line, str | os.PathLike):
                sys.stdout.write(f"{os.fspath(line)}\n")
        sys.stdout.flush()
    if _next:
        say(f"Next: {', or '.join(_next)}")


def duration(seconds: float) -> str:
    """Minutes and seconds, from an hour on hours and minutes."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {seconds:02d}s"
