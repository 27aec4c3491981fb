"""Shapes of clusters as a user writes them, `8xH100`: a training process on each of so many GPUs, or CPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from xalign_ray.config.explain import suggest
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ConfigError
from xalign_ray.train.devices import Device, known_devices

CPU = "CPU"  # nothing is known of it beforehand: neither speed nor memory
_WRITTEN = re.compile(r"(\d+) ?x ?(.+)", re.IGNORECASE)


@dataclass(frozen=True)
class Shape:
    """So many training processes, each with a device of that name."""

    workers: int
    name: str

    def __str__(self) -> str:
        return f"{self.workers} x {self.name}"

    @property
    def device(self) -> Device | None:
        """What is known of it; None of a CPU."""
        return known_devices().get(self.name)

    def applied(self, config: RunConfig) -> RunConfig:
        """The recipe on it."""
        parallel = {"workers": self.workers, "gpus_per_worker": int(self.name != CPU)}
        return config.model_copy(update={"parallel": config.parallel.model_copy(update=parallel)})


def read_shape(written: str) -> Shape:
    """A shape, as in `--on 8xH100`.

    Raises:
        ConfigError: it is none, or of a device that is not known.
    """
    parts = _WRITTEN.fullmatch(written.strip())
    if not parts or int(parts[1]) < 1:
        raise ConfigError(f"--on {written}: a number of devices and their name is expected, as in --on 8xH100.")
    return Shape(int(parts[1]), _known(parts[2], f"--on {written}"))


def read_prices(given: Sequence[str]) -> dict[str, float]:
    """Prices of an hour of a device: each `H100=2.5`, or a YAML file of such names and numbers; the last one wins.

    Raises:
        ConfigError: one is not a number, or of a device that is not known.
    """
    prices: dict[str, float] = {}
    for one in given:
        name, is_pair, price = one.partition("=")
        found = {name: parse_yaml(price)} if is_pair else _table(Path(one))
        for device, value in found.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise ConfigError(f"--price {one}: the price of {device} is {value!r}; give a number, as in H100=2.5.")
            prices[_known(str(device), f"--price {one}")] = float(value)
    return prices


def _table(file: Path) -> dict[str, object]:
    try:
        table = parse_yaml(file.read_text(encoding="utf-8"))
    except OSError:
        raise ConfigError(f"--price {file}: neither a price such as H100=2.5 nor a YAML file of such.") from None
    if not isinstance(table, dict):
        raise ConfigError(f"--price {file}: it must be a table of devices and prices, such as `H100: 2.5`.")
    return table


def _known(name: str, where: str) -> str:
    names = {one.lower(): one for one in (*known_devices(), CPU)}
    plain = name.strip().replace("-", " ").lower()
    if plain not in names:
        said = suggest(name, names.values())
        raise ConfigError(f"{where}: nothing is known of a {name}.{said} Known: {', '.join(names.values())}.")
    return names[plain]
