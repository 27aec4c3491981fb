"""How busy this process's host is, under the names that MLflow shows as system metrics."""

from __future__ import annotations

import psutil
import torch

MB = 1e6


def host_metrics(device: torch.device) -> dict[str, float]:
    """The mean use of the CPUs since the last call (0 at the first), and the memory in use now."""
    memory = psutil.virtual_memory()
    found = {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),
        "system/system_memory_usage_megabytes": memory.used / MB,
        "system/system_memory_usage_percentage": memory.percent,
    }
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        found |= {
            "system/gpu_memory_usage_megabytes": (total - free) / MB,
            "system/gpu_memory_usage_percentage": 100 * (1 - free / total),
        }
    return found
