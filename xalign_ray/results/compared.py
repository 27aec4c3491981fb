"""The comparison of a continued run with its base as metrics of the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xalign_ray.artifacts import read_json

_SHOWN = ("retrieval", "retrieval_csls", "mlm_loss")


def comparison_metrics(path: Path) -> dict[str, float]:
    """MLflow key -> value: means over trained languages, over others (`kept_`), and the difference in each language.

    Args:
        path: of comparison.json.

    Raises:
        DataError: the file is damaged.
    """
    rows = read_json(path, "Delete it and give the same `xalign continue` again.", "rows")["rows"]
    means: dict[str, float] = {}
    languages: dict[str, float] = {}
    for measure in _SHOWN:
        for prefix, trained in (("", True), ("kept_", False)):
            own = [row for row in rows if row["measure"] == measure and row["trained"] == trained]
            if own:
                means |= {
                    f"compare/{prefix}{measure}_{key}": _mean(own, key) for key in ("base", "yours", "difference")
                }
            languages |= {f"compare/{prefix}{measure}_difference_{row['language']}": row["difference"] for row in own}
    return means | languages


def _mean(rows: Sequence[dict[str, Any]], key: str) -> float:
    return sum(row[key] for row in rows) / len(rows)
