"""Profiler of training steps: a trace of some steps of rank 0, and a summary of their time that fits a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

SKIPPED, WARM_UP = 2, 1  # steps before those that are looked at: the first fill caches, then the profiler itself
SPAN = "step/"  # begins the names of the parts of a step, which `torch.profiler.record_function` marks in the code
ALL = f"{SPAN}all"  # the step
TRACE, SUMMARY = "trace.json", "summary.txt"
LONGEST = 12  # of parts, and of operations

OnSummary = Callable[[int, str], None]


class StepProfile:
    """Used as a context around each step; writes `trace.json` and `summary.txt` once its steps are over."""

    def __init__(self, folder: Path, steps: int, device: torch.device, on_summary: OnSummary) -> None:
        """`on_summary` is called with the number of profiled steps, and the summary."""
        self._folder, self._device, self._on_summary = folder, device, on_summary
        self._left = SKIPPED + WARM_UP + steps if steps else 0
        self._profile: profile | None = None
        self._steps = steps
        self._span = ExitStack()

    def __enter__(self) -> None:
        if self._left and self._profile is None:
            cuda = [ProfilerActivity.CUDA] if self._device.type == "cuda" else []
            when = schedule(skip_first=SKIPPED, wait=0, warmup=WARM_UP, active=self._steps, repeat=1)
            self._profile = profile(
                activities=[ProfilerActivity.CPU, *cuda], schedule=when, on_trace_ready=self._write, acc_events=True
            )
            self._profile.start()
        self._span.enter_context(torch.profiler.record_function(ALL))

    def __exit__(self, *_: object) -> None:
        self._span.close()
        if self._profile is None:
            return
        self._left -= 1
        if self._left:
            self._profile.step()
        else:
            self.close()

    def close(self) -> None:
        """Ends it, also before its steps are over: then it is of those that were."""
        if self._profile is not None:
            self._profile.stop()
        self._profile, self._left = None, 0

    def _write(self, seen: profile) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        seen.export_chrome_trace(str(self._folder / TRACE))
        steps, text = summarize(seen.key_averages(), self._device.type == "cuda")
        (self._folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
        self._on_summary(steps, f"{text}\n{self._folder / TRACE} opens in https://ui.perfetto.dev.")


def summarize(averages: Sequence[Any], on_gpu: bool) -> tuple[int, str]:
    """The number of profiled steps, and lines of milliseconds a step by part and by operation.

    Args:
        averages: the profiler's events, summed by name; parts of a step are marked SPAN.
    """
    of_host = [row for row in averages if str(row.device_type).endswith("CPU")]  # each with the device's time for it
    spans = {row.key.removeprefix(SPAN): row for row in of_host if row.key.startswith(SPAN)}
    whole = spans.pop("all")
    own_time = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    operations = [row for row in of_host if not row.key.startswith((SPAN, "ProfilerStep"))]

    def lines(rows: Sequence[Any], time: str, device: bool = False) -> Iterator[str]:
        for row in sorted(rows, key=lambda row: -getattr(row, time))[:LONGEST]:
            micros, name = getattr(row, time), row.key.removeprefix(SPAN)[:35]
            on_device = f"{row.device_time_total / 1e3 / whole.count:>12.2f}" if device else ""
            yield f"{name:<36}{micros / 1e3 / whole.count:>10.2f}{micros / whole.cpu_time_total:>9.1%}{on_device}"

    return whole.count, "\n".join(
        [
            f"{whole.count} steps of rank 0, {whole.cpu_time_total / 1e3 / whole.count:.1f} ms each",
            f"{'parts, some within others':<36}{'ms a step':>10}{'share':>9}{'GPU ms' * on_gpu:>12}".rstrip(),
            *lines([*spans.values()], "cpu_time_total", device=on_gpu),
            f"The {LONGEST} operations that take longest by themselves" + (" on the GPU:" if on_gpu else ":"),
            *lines(operations, own_time),
        ]
    )
