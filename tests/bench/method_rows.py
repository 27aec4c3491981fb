"""What each method's rows have besides those of masked text, made up: aligned words, sentence pairs, a dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

SENTENCE, WORDS = 32, 20_000  # tokens of a sentence of a pair, translations of the dictionary
FIELDS = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")
MASKED = {"kind": "masked_lm"}
METHODS: dict[str, dict[str, Any]] = {  # settings of the recipe
    "mlm": {"objectives": [MASKED], "streams": [{"kind": "masked_text"}]},
    "dict-mlm": {
        "objectives": [MASKED],
        "streams": [{"kind": "code_switched_labels"}],
        "model": {"language_embeddings": True, "conditioned_head": True},
    },
    "align-mlm": {
        "objectives": [MASKED, {"kind": "dictionary_alignment"}],
        "streams": [{"kind": "masked_text"}],
    },
    "weam": {
        "objectives": [MASKED, {"kind": "word_exchange"}],
        "streams": [{"kind": "aligned_pairs"}],
    },
    "ppa": {
        "objectives": [MASKED, {"kind": "momentum_contrast", "queue_size": 4096}],
        "streams": [{"kind": "contrasted_pairs"}],
    },
}


def columns(method: str, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The further columns of a batch of full rows."""
    if method == "weam":
        return {"aligned": _aligned(*batch["input_ids"].shape)}
    return _pairs(batch) if method == "ppa" else {}


def _aligned(rows: int, length: int) -> np.ndarray:
    """Each word of the first half of a row and its partner in the second."""
    bits = np.zeros((rows, length, length), np.uint8)
    left = np.arange(length // 2)
    bits[:, left, left + length // 2] = bits[:, left + length // 2, left] = 1
    return np.packbits(bits, axis=-1, bitorder="little")


def _pairs(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As many sentences a row as fit, each the translation of the one at its place on the other side."""
    rows, length = batch["input_ids"].shape
    at = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
    own = {"position_ids": at % SENTENCE, "example_ids": at // SENTENCE + 1}
    sides = {f"{side}_{name}": own.get(name, batch[name]) for side in ("query", "key") for name in FIELDS}
    hashes = np.arange(1, rows * length + 1, dtype=np.int64).reshape(rows, length)
    return sides | {"pair_hash": np.where(at % SENTENCE == 0, hashes, 0)}


def dictionary(vocab: int) -> SimpleNamespace:
    """Translations between two languages, of two pieces each."""
    random = np.random.default_rng(1)
    left, right = (random.integers(5, vocab, (WORDS, 2)).astype(np.int32) for _ in range(2))
    language = np.zeros(WORDS, np.int32)
    return SimpleNamespace(left=left, right=right, left_language=language, right_language=language + 1)
