"""Profiler of training steps: a trace of some steps of rank 0, and a summary of their time that fits a screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

SKIPPED, WARM_UP = 2, 1  # steps before those that are looked at: the first fill caches, then the profiler itself
SPAN = "step/"  # begins the names of the parts of a step, which `torch.profiler.record_function` marks in the code
ENCODER, ALL = f"{SPAN}encoder", f"{SPAN}all"  # a part of a forward pass; the step
COMMUNICATION = re.compile(r"(gloo|nccl):")
TRACE, SUMMARY = "trace.json", "summary.txt"
LONGEST = 10

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

    def _write(self, seen: Any) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        seen.export_chrome_trace(str(self._folder / TRACE))
        steps, text = summarize(seen.events(), self._device.type == "cuda")
        (self._folder / SUMMARY).write_text(text + "\n", encoding="utf-8")
        self._on_summary(steps, f"{text}\n{self._folder / TRACE} opens in https://ui.perfetto.dev.")


def summarize(events: Any, on_gpu: bool) -> tuple[int, str]:
    """The number of steps among the profiler's events, and lines of milliseconds a step by part and by operation."""
    host, device, calls = Counter[str](), Counter[str](), Counter[str]()
    alone, communicated, at_work = Counter[str](), 0.0, 0.0
    for event in events:
        if str(event.device_type).endswith("CPU"):
            host[event.name] += event.cpu_time_total
            device[event.name] += event.device_time_total
            calls[event.name] += 1
            if not event.name.startswith((SPAN, "ProfilerStep")):
                alone[event.name] += event.self_device_time_total if on_gpu else event.self_cpu_time_total
        elif not event.is_user_annotation:
            at_work += event.time_range.elapsed_us()
        if COMMUNICATION.match(event.name):
            communicated += event.time_range.elapsed_us()
    steps = max(calls[ALL], 1)
    total = host[ALL] or 1.0

    def line(name: str, micros: float, on_device: float | None = None) -> str:
        gpu = f"{(on_device or 0) / 1e3 / steps:>12.2f}" if on_gpu and on_device is not None else ""
        return f"{name:<36}{micros / 1e3 / steps:>10.2f}{micros / total:>9.1%}{gpu}"

    parts = [name for name in host if name.startswith(SPAN) and name not in (ENCODER, ALL)]
    named = sum(host[name] for name in parts)
    lines = [
        f"{steps} steps of rank 0, {total / 1e3 / steps:.1f} ms each",
        f"{'':<36}{'ms a step':>10}{'share':>9}{'GPU ms':>12}" if on_gpu else f"{'':<36}{'ms a step':>10}{'share':>9}",
        *(line(name.removeprefix(SPAN), host[name], device[name]) for name in sorted(parts, key=lambda n: -host[n])),
        line("other", total - named),
        line("encoder, within forward", host[ENCODER], device[ENCODER]),
        line("communication, within the others", communicated),
        *([line("the GPU at work", at_work)] if on_gpu else []),
        f"The {LONGEST} operations that take longest by themselves" + (" on the GPU:" if on_gpu else ":"),
        *(line(name[:35], micros) for name, micros in alone.most_common(LONGEST)),
    ]
    return steps, "\n".join(lines)
