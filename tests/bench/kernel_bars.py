"""What `tests/unit/train/test_kernels.py` asserts of the counts of kernels.py: graphs and bytes."""

from __future__ import annotations

from typing import Any

# Model, the layer whose states are asked for, and graphs at most.
GRAPHS: dict[str, tuple[dict[str, Any], int | None, int]] = {
    **{family: ({"family": family}, None, 1) for family in ("bert", "xlm-r", "roberta", "eurobert")},
    "bert, languages": ({"family": "bert", "language_embeddings": True}, None, 1),
    "bert, after a layer": ({"family": "bert"}, 2, 1),
    "modernbert": ({"family": "modernbert"}, None, 1),
    "modernbert, after a layer": ({"family": "modernbert"}, 2, 1),
}
# Method, pieces, length of a row, and KB a token that a pass holds at most beside weights.
BYTES: dict[str, tuple[str, int, int, int]] = {
    "mlm": ("mlm", 119_547, 512, 465),
    "mlm of short rows": ("mlm", 119_547, 128, 465),
    "mlm, V 30,522": ("mlm", 30_522, 512, 380),
    "mlm, V 250,002": ("mlm", 250_002, 512, 590),
    "dict-mlm": ("dict-mlm", 119_547, 128, 465),
    "align-mlm": ("align-mlm", 119_547, 128, 470),
    "weam": ("weam", 119_547, 128, 550),
    "ppa": ("ppa", 119_547, 128, 800),
}
