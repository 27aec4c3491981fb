"""Numbers that the loop logs: losses and speed of steps, rows and tokens so far, waits by rank, use of the host."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import numpy as np
import psutil
import torch

from xalign_ray.config.training import TrainConfig
from xalign_ray.train.devices import peak_tflops
from xalign_ray.train.distributed import Workers
from xalign_ray.train.step import Outcome, Totals

MB = 1e6


def host_metrics(device: torch.device) -> dict[str, float]:
    """The mean use of the CPUs since the last call (0 at the first), and the memory in use now."""
    memory = psutil.virtual_memory()
    metrics = {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),
        "system/system_memory_usage_megabytes": memory.used / MB,
        "system/system_memory_usage_percentage": memory.percent,
    }
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        metrics |= {
            "system/gpu_memory_usage_megabytes": (total - free) / MB,
            "system/gpu_memory_usage_percentage": 100 * (1 - free / total),
        }
    return metrics


@dataclass
class Spent:
    """Seconds and work since the last step event: a device may do a step while the next is queued."""

    steps: int = 0
    seconds: float = 0.0
    waited: float = 0.0  # rank 0, for its rows
    tokens: int = 0
    flops: float = 0.0

    def add(self, totals: Totals, seconds: float) -> None:
        """One more step."""
        self.steps += 1
        self.seconds += seconds
        self.waited += float(totals.waits[0])
        self.tokens += totals.tokens
        self.flops += totals.flops

    def metrics(self, outcome: Outcome, workers: Workers, train: TrainConfig) -> dict[str, float]:
        """Of the step that the outcome is of; speeds and times are means over all steps here."""
        totals = outcome.totals
        tflops = self.flops / self.seconds / workers.size / 1e12
        if workers.on_gpu:
            peak = peak_tflops(torch.cuda.get_device_name(workers.device), train)
            peak_memory = torch.cuda.max_memory_allocated(workers.device)
        else:  # of the process; on Linux `ru_maxrss` is in KiB
            peak, peak_memory = None, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "train/loss": outcome.loss,
            **{f"train/loss_{kind}": value for kind, value in outcome.losses.items()},
            **outcome.metrics,
            "train/learning_rate": outcome.learning_rate,
            "train/gradient_norm": outcome.gradient_norm,
            "train/labels": totals.labels,
            "train/tokens_per_s": self.tokens / self.seconds,
            "train/tflops": tflops,
            **({"train/mfu": tflops / peak} if peak else {}),
            "train/padding_share": 1 - totals.tokens / totals.positions,
            "train/cross_lingual_label_share": totals.cross_lingual / max(totals.labels, 1),
            "data/fallback_words": totals.no_room,
            "train/step_ms": self.seconds / self.steps * 1e3,
            "train/data_wait_ms": self.waited / self.steps * 1e3,
            "train/peak_memory_mb": peak_memory / 1e6,
        }


class Delivered:
    """Rows and tokens since the start of the attempt, and each rank's waits for the feed and for other ranks."""

    def __init__(self, languages: int, ranks: int) -> None:
        self.rows = self.tokens = 0
        self.language_tokens = np.zeros(languages, np.int64)
        self._of_steps = np.zeros((2, ranks))  # seconds of waiting for rows, and for the others
        self._steps = 0

    def add(self, totals: Totals, rows: int) -> None:
        """One more step."""
        self.rows += rows
        self.tokens += totals.tokens
        self.language_tokens += totals.language_tokens
        self._of_steps += [totals.waits, totals.held]
        self._steps += 1

    def take_ms(self) -> tuple[list[float], list[float]]:
        """Each rank's wait for a step's rows, and for the others, in ms: means of the steps since the last call."""
        waits, held = ([round(ms, 3) for ms in of] for of in (self._of_steps / self._steps * 1e3).tolist())
        self._of_steps[:], self._steps = 0, 0
        return waits, held
