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


def test_a_log_gets_a_line_an_interval_and_the_last_one(clock: list[float]) -> None:
    out = io.StringIO()
    do(clock, out, 2.0, dict.fromkeys(range(6), 10e6), iter(range(6)))
    assert out.getvalue().splitlines() == [
        "preparing: 3 of 6 parts, 5.0 MB/s, 0m 06s left",
        "preparing: 6 of 6 parts, 5.0 MB/s, done in 0m 12s",
    ]


def test_what_takes_less_than_an_interval_leaves_no_line(clock: list[float]) -> None:
    log, terminal = io.StringIO(), Terminal()
    for out in (log, terminal):
        do(clock, out, 0.1, {0: 1e6, 1: 1e6}, iter([1, 0]))
    assert log.getvalue() == ""
    assert terminal.getvalue() == "\r\x1b[2Kpreparing: 0 of 2 parts\r\x1b[2K"


def test_the_time_left_is_of_bytes_not_of_parts(clock: list[float]) -> None:
    out = io.StringIO()
    do(clock, out, 6.0, {0: 90e6, 1: 10e6}, iter([0]))
    assert out.getvalue() == "preparing: 1 of 2 parts, 15.0 MB/s, 0m 01s left\n"


def test_a_terminal_has_one_line_that_is_redrawn(clock: list[float]) -> None:
    out = Terminal()
    do(clock, out, 2.0, dict.fromkeys(range(3), 10e6), iter(range(3)))
    assert out.getvalue().split("\r\x1b[2K") == [
        "",
        "preparing: 0 of 3 parts",
        "preparing: 1 of 3 parts, 5.0 MB/s, 0m 04s left",
        "preparing: 2 of 3 parts, 5.0 MB/s, 0m 02s left",
        "preparing: 3 of 3 parts, 5.0 MB/s, done in 0m 06s\n",
    ]


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


def test_without_sizes_parts_are_counted_alone(clock: list[float]) -> None:
    out = io.StringIO()
    do(clock, out, 6.0, {0: 0.0, 1: 0.0, 2: 0.0}, iter([0, 1]))
    assert out.getvalue().splitlines() == [
        "preparing: 1 of 3 parts, 0m 12s left",
        "preparing: 2 of 3 parts, 0m 06s left",
    ]


def test_an_empty_part_first_says_nothing_of_the_rest(clock: list[float]) -> None:
    out = io.StringIO()
    do(clock, out, 6.0, {0: 0.0, 1: 9e6}, iter([0]))
    assert out.getvalue() == "preparing: 1 of 2 parts\n"


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
