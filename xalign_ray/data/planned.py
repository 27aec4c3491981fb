"""What is known of a run's data before it starts: the share of tokens planned for each language, and the bad rows."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.choices import PAIRS, TEXT
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.prepared import Prepared
from xalign_ray.text.collate import specials
from xalign_ray.text.order import Order
from xalign_ray.work.mirror import url_of


def facts_of(prepared: Prepared, config: RunConfig) -> dict[str, Any]:
    """What the start event of a run says of its data."""
    return {
        "data": url_of(prepared.folder) or str(prepared.folder.absolute()),
        "data_fingerprint": prepared.fingerprint,
        "planned_shares": planned_shares(prepared, config),
        "bad_rows": bad_rows_facts(prepared, config),
    }


def expected_rows(order: Order, steps: int, sources: int) -> NDArray[np.float64]:
    """[sources] rows that each source is to give in `steps` steps, by the shares of each chunk of steps."""
    expected = np.zeros(sources)
    for first in range(0, steps, order.chunk_steps):
        expected += order.shares(first) * order.global_rows * min(order.chunk_steps, steps - first)
    return expected


def planned_shares(prepared: Prepared, config: RunConfig) -> dict[str, float]:
    """Of each language among the tokens of the whole run, which sum to 1: a pair's tokens are halved between its two.

    Words that a stream puts in place of others are not known before; they are counted when they are trained on.
    """
    sources = prepared.sources(config)
    rows = expected_rows(prepared.order(config), config.train.max_steps, len(sources))
    shares = dict.fromkeys(prepared.languages, 0.0)
    languages = _languages_of_pools(prepared.languages)
    for expected, (_, pool) in zip(rows.tolist(), sources, strict=True):
        facts = prepared.manifest["pools"][pool]
        tokens = facts["tokens"] + specials(2 if pool.startswith(PAIRS) else 1) * facts["examples"]
        for language in languages[pool]:
            shares[language] += expected * tokens / facts["rows"] / len(languages[pool])
    total = sum(shares.values())
    return {language: tokens / total for language, tokens in shares.items()}


def _languages_of_pools(languages: list[str]) -> dict[str, tuple[str, ...]]:
    """A code may have hyphens, as the name of a pair's pool has between codes: every name that there can be."""
    pairs = {f"{PAIRS}{'-'.join(both)}": both for both in combinations(sorted(languages), 2)}
    return {f"{TEXT}{language}": (language,) for language in languages} | pairs


def bad_rows_facts(prepared: Prepared, config: RunConfig) -> dict[str, Any]:
    """How many rows of the sources `prepare` set aside, by reason and as a share, and the share that is allowed."""
    reasons, counts = prepared.manifest["bad_rows"], prepared.manifest["counts"]
    bad = sum(reasons.values())
    rows = counts.get("lines", 0) + counts.get("pairs", 0) + bad
    return {"count": bad, "share": bad / max(rows, 1), "limit": config.data.max_bad_fraction, "reasons": reasons}
