"""How often each language of a stream is drawn.

Formulas, and how the papers were read: docs/explanation/methods.md, Sampling of languages.
"""

from __future__ import annotations

from collections.abc import Mapping


def language_shares(sizes: Mapping[str, float], exponent: float) -> dict[str, float]:
    """q_l = p_l^exponent / sum of all, with p_l = size_l / sum of sizes. Exponent 1 is by size, 0 is uniform."""
    total = sum(sizes.values())
    raised = {name: (size / total) ** exponent for name, size in sizes.items()}
    whole = sum(raised.values())
    return {name: value / whole for name, value in raised.items()}
