"""Figures that a plan is made with and that no recipe says: `figures.yaml` has each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from xalign_ray.config.schema import RunConfig
from xalign_ray.config.yaml_text import parse_yaml

_FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Figures:
    """As the file has them.

    Attributes:
        assumed_mfu: share of a GPU's peak that a worker is taken to reach.
        host_s_per_layer: the least time of a layer in a forward and backward pass on a GPU.
        feed_tokens_per_core_s: of a kind of stream, by number of languages.
        disk_bytes_per_token: of prepared data, by the pools that a stream draws from.
        process_bytes_on_cpu: of a training process beside its tensors.
    """

    assumed_mfu: float
    host_s_per_layer: float
    feed_tokens_per_core_s: Mapping[str, Mapping[int, float]]
    feed_share_under_ray: float
    disk_bytes_per_token: Mapping[str, float]
    process_bytes_on_cpu: float


@cache
def read_figures() -> Figures:
    """The file."""
    return Figures(**parse_yaml(_FILE.read_text(encoding="utf-8")))


def feed_rate(config: RunConfig) -> float:
    """Tokens that a core makes rows of in a second under Ray, of the recipe's streams in their shares.

    Of a number of languages that was not measured, what was measured of the next larger one, else of the largest; of a
    plug-in's stream, the slowest of ours.
    """
    figures, languages = read_figures(), len(config.languages)
    slowest = min(figures.feed_tokens_per_core_s.values(), key=lambda measured: min(measured.values()))
    seconds = 0.0
    for stream, share in zip(config.streams, shares(config), strict=True):
        measured = figures.feed_tokens_per_core_s.get(stream.kind) or slowest
        seconds += share / measured[min((n for n in measured if n >= languages), default=max(measured))]
    return figures.feed_share_under_ray / seconds


def shares(config: RunConfig) -> list[float]:
    """The part of the rows that is of each stream."""
    whole = sum(stream.weight for stream in config.streams)
    return [stream.weight / whole for stream in config.streams]
