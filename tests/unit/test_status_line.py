"""How far a job is: one line redrawn in a terminal, a plain line an interval in a log, and how long the rest takes."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest

from xalign_ray.work import status_line
from xalign_ray.work.status_line import PartsDone, StatusLine, duration


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What time it is, to be changed."""
    now = [100.0]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(status_line.time, "monotonic", lambda: now[0])
    return now


def do(clock: list[float], out: io.StringIO, seconds: float, sizes: dict[int, float], parts: Iterator[int]) -> None:
    with PartsDone("preparing", sizes, out) as done:
        for part in parts:
            clock[0] += seconds
            done.add(part)


BACK = "\r\x1b[2K"
LINES: dict[str, tuple[type[io.StringIO], float, list[float], list[int], str]] = {
    "a log gets a line an interval, and the last one": (
        *(io.StringIO, 2.0, [10e6] * 6, [0, 1, 2, 3, 4, 5]),
        "preparing: 3 of 6 parts, 5.0 MB/s, 0m 06s left\npreparing: 6 of 6 parts, 5.0 MB/s, done in 0m 12s\n",
    ),
    "what takes less than an interval leaves no line": (io.StringIO, 0.1, [1e6] * 2, [1, 0], ""),
    "in a terminal neither": (Terminal, 0.1, [1e6] * 2, [1, 0], f"{BACK}preparing: 0 of 2 parts{BACK}"),
    "the time left is of bytes, not of parts": (
        *(io.StringIO, 6.0, [90e6, 10e6], [0]),
        "preparing: 1 of 2 parts, 15.0 MB/s, 0m 01s left\n",
    ),
    "without sizes parts are counted alone": (
        *(io.StringIO, 6.0, [0.0] * 3, [0, 1]),
        "preparing: 1 of 3 parts, 0m 12s left\npreparing: 2 of 3 parts, 0m 06s left\n",
    ),
    "an empty part first says nothing of the rest": (io.StringIO, 6.0, [0.0, 9e6], [0], "preparing: 1 of 2 parts\n"),
    "a terminal has one line that is redrawn": (
        *(Terminal, 2.0, [10e6] * 3, [0, 1, 2]),
        f"{BACK}preparing: 0 of 3 parts{BACK}preparing: 1 of 3 parts, 5.0 MB/s, 0m 04s left"
        f"{BACK}preparing: 2 of 3 parts, 5.0 MB/s, 0m 02s left"
        f"{BACK}preparing: 3 of 3 parts, 5.0 MB/s, done in 0m 06s\n",
    ),
}


@pytest.mark.parametrize(("stream", "seconds", "sizes", "done", "shown"), LINES.values(), ids=LINES)
def test_lines_of_parts(
    clock: list[float], stream: type[io.StringIO], seconds: float, sizes: list[float], done: list[int], shown: str
) -> None:
    out = stream()
    do(clock, out, seconds, dict(enumerate(sizes)), iter(done))
    assert out.getvalue() == shown


def test_a_terminal_is_not_redrawn_more_often_than_can_be_read(clock: list[float]) -> None:
    out = Terminal()
    do(clock, out, 0.01, dict.fromkeys(range(100), 1e6), iter(range(100)))
    assert out.getvalue().count("\r") <= 7


def test_an_error_in_the_middle_begins_a_line_of_its_own() -> None:
    out = Terminal()
    with pytest.raises(KeyError), PartsDone("preparing", {0: 1.0, 1: 1.0}, out):
        raise KeyError
    assert out.getvalue().endswith("preparing: 0 of 2 parts\n")


def test_a_line_longer_than_the_terminal_is_cut_for_a_wrapped_one_cannot_be_redrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()
    line = StatusLine(out)
    line.show("x" * 50, 0.0)
    line.keep("y" * 50)
    assert out.getvalue() == "\r\x1b[2K" + "x" * 19 + "\r\x1b[2K" + "y" * 50 + "\n"


def test_while_a_part_takes_long_the_line_comes_again_with_what_is_left_by_now(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but time tells it: it began at 100 s, half was done after 6, and it is asked 90 and 120 s later."""
    monkeypatch.setattr(status_line, "STILL_S", 0.01)
    out, lines = io.StringIO(), []
    with PartsDone("preparing", {0: 9e6, 1: 9e6}, out) as done:
        for seconds in (0, 90, 120):
            clock[0] = 106.0 + seconds
            if not seconds:
                done.add(0)
            while len(lines := out.getvalue().splitlines()) < 1 + bool(seconds) + (seconds > 90):
                time.sleep(0.01)
    assert lines == [
        f"preparing: 1 of 2 parts, {left} left" for left in ("1.5 MB/s, 0m 06s", "0.1 MB/s, 1m 36s", "0.1 MB/s, 2m 06s")
    ]


def test_one_part_is_one_part() -> None:
    out = Terminal()
    with PartsDone("reading", {"a": 1.0}, out, part="file"):
        pass
    assert "reading: 0 of 1 file\r" in out.getvalue()


def test_times_are_said_in_the_two_units_that_matter() -> None:
    assert [duration(seconds) for seconds in (0.4, 61, 3_600, 90_000)] == ["0m 00s", "1m 01s", "1h 00m", "25h 00m"]
