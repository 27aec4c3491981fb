"""How often each stream and language is drawn.

Formulas, and how the papers were read: docs/explanation/methods.md, Sampling of languages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xalign_ray.errors import ConfigError


def language_shares(sizes: Mapping[str, float], exponent: float) -> dict[str, float]:
    """q_l = p_l^exponent / sum of all, with p_l = size_l / sum of sizes. Exponent 1 is by size, 0 is uniform."""
    total = sum(sizes.values())
    raised = {name: (size / total) ** exponent for name, size in sizes.items()}
    return {name: value / sum(raised.values()) for name, value in raised.items()}


def source_shares(streams: Sequence[tuple[str, float, Mapping[str, float]]], exponent: float) -> list[float]:
    """The probability of each (stream, pool), in the order of streams and of their pools; they sum to 1.

    Args:
        streams: for each stream its kind, its weight and the sizes of its pools by name.

    Raises:
        ConfigError: if a stream has nothing to draw from.
    """
    total = sum(weight for _, weight, _ in streams)
    shares: list[float] = []
    for kind, weight, sizes in streams:
        if not sizes:
            raise ConfigError(
                f"stream {kind} has no rows: prepare found no such text; check data.corpora and data.parallel."
            )
        shares += [weight / total * share for share in language_shares(sizes, exponent).values()]
    return shares
