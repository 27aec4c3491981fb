"""Profiler of training steps: torch's trace of some steps of rank 0, and a table of the parts of a step"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

SKIPPED, WARM_UP = 2, 1  # steps before those that are looked at: the first fill caches, then the profiler itself
SPAN = "step/"  # begins the names of the parts of a step, which `torch.profiler.record_function` marks in the code
ALL = f"{SPAN}all"  # the step
TRACE, SUMMARY, OPERATIONS = "trace.json", "summary.txt", "operations.txt"

OnSummary = Callable[[int, str], None]


class StepProfile:
    """Used as a context around each step; writes its files once its steps are over.

    `summary.txt` has the parts of a step, `operations.txt` torch's own table of operations, `trace.json` the trace.
    """

    def __init__(self, folder: Path, steps: int, device: torch.device, on_summary: OnSummary) -> None:
        """`on_summary` is called with the number of profiled steps, and the summary."""
        self._folder, self._on_gpu, self._on_summary = folder, device.type == "cuda", on_summary
        self._span = ExitStack()
        self._profile = None
        if steps:
            self._profile = profile(
                activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])],
                schedule=schedule(skip_first=SKIPPED, wait=0, warmup=WARM_UP, active=steps, repeat=1),
                on_trace_ready=self._write,
                acc_events=True,
            )
            self._profile.start()

    def __enter__(self) -> None:
        self._span.enter_context(torch.profiler.record_function(ALL))

    def __exit__(self, *_: object) -> None:
        self._span.close()
        if self._profile:
            self._profile.step()

    def close(self) -> None:
        """Ends it, also before its steps are over: then it is of those that were."""
        if self._profile:
            self._profile.stop()

    def _write(self, seen: profile) -> None:
        averages = seen.key_averages()
        parts = {row.key: row for row in averages if row.key.startswith(SPAN) and str(row.device_type).endswith("CPU")}
        steps = parts.pop(ALL)
        lines = [f"{steps.count} steps of rank 0, {steps.cpu_time_total / 1e3 / steps.count:.1f} ms each"]
        head = f"{'parts, some within others':<36}{'ms a step':>10}{'share':>9}{'GPU ms' * self._on_gpu:>12}"
        lines.append(head.rstrip())
        for row in sorted(parts.values(), key=lambda row: -row.cpu_time_total):
            milliseconds, on_gpu = (time / 1e3 / steps.count for time in (row.cpu_time_total, row.device_time_total))
            share = row.cpu_time_total / steps.cpu_time_total
            line = f"{row.key.removeprefix(SPAN)[:35]:<36}{milliseconds:>10.2f}{share:>9.1%}"
            lines.append(line + f"{on_gpu:>12.2f}" * self._on_gpu)
        self._folder.mkdir(parents=True, exist_ok=True)
        seen.export_chrome_trace(str(self._folder / TRACE))
        own_time = "self_device_time_total" if self._on_gpu else "self_cpu_time_total"
        (self._folder / OPERATIONS).write_text(averages.table(sort_by=own_time, row_limit=50), encoding="utf-8")
        (self._folder / SUMMARY).write_text("\n".join([*lines, ""]), encoding="utf-8")
        lines.append(f"{self._folder / TRACE} opens in https://ui.perfetto.dev.")
        self._on_summary(steps.count, "\n".join(lines))
