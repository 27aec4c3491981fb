"""Peak speed and memory of GPUs by name; `devices.yaml` is the table. Without torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xalign_ray.config.training import TrainConfig
from xalign_ray.config.yaml_text import parse_yaml

_FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Device:
    """A kind of GPU: dense products at most, in TFLOP/s by precision, and its memory in GiB."""

    bf16: float
    tf32: float
    fp32: float
    memory_gib: float

    def peak(self, precision: str) -> float:
        """TFLOP/s at most in a precision of `precision_of`."""
        return {"bf16": self.bf16, "TF32": self.tf32, "fp32": self.fp32}[precision]


@cache
def known_devices() -> Mapping[str, Device]:
    """The table."""
    return {name: Device(**facts) for name, facts in parse_yaml(_FILE.read_text(encoding="utf-8")).items()}


def precision_of(train: TrainConfig) -> str:
    """Precision of a recipe's matrix products on a GPU: bf16, TF32 or fp32."""
    return "bf16" if train.in_bf16(on_gpu=True) else "TF32" if train.tf32 else "fp32"


def peak_tflops(device_name: str, train: TrainConfig) -> float | None:
    """Peak TFLOP/s of a GPU by its driver name, in the precision of a recipe; None where the GPU is not known."""
    devices = known_devices()
    names: Sequence[str] = sorted(devices, key=len, reverse=True)
    words = f" {device_name.replace('-', ' ')} "
    return next((devices[name].peak(precision_of(train)) for name in names if f" {name} " in words), None)
