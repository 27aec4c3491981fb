"""Sentences of tagged words as rows of pieces that a token-classification model trains on and is scored on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xalign_ray.tasks.inputs import Inputs
from xalign_ray.tasks.tagged import Sentence

LONGEST_ROW = 128
IGNORED = -100  # the label that torch's cross-entropy leaves out


@dataclass(frozen=True, slots=True)
class TaggedRow:
    """A sentence, or a part of one that is too long.

    Attributes:
        ids: piece ids with prefix and suffix.
        first: where the first piece of each word stands in `ids`; the label is there.
        labels: the class of each word.
        language: of the text.
    """

    ids: tuple[int, ...]
    first: tuple[int, ...]
    labels: tuple[int, ...]
    language: str


def make_rows(inputs: Inputs, sentences: Sequence[Sentence], label_ids: Mapping[str, int]) -> list[list[TaggedRow]]:
    """Rows of at most 128 pieces that hold every word once: a longer sentence becomes several rows, nothing is cut off.

    A word that the tokenizer makes nothing of becomes the unknown piece, so that it is scored; a single word longer
    than a row keeps its first pieces.
    """
    room = min(LONGEST_ROW, inputs.max_length) - len(inputs.prefix) - len(inputs.suffix)
    words = [word for sentence in sentences for word in sentence.words]
    pieces = iter(inputs.piece_words(words))
    rows = []
    for sentence in sentences:
        parts = [(next(pieces) or [inputs.tokenizer.unk_token_id])[:room] for _ in sentence.words]
        labels = [label_ids[tag] for tag in sentence.tags]
        rows.append([_make_row(inputs, parts[at], labels[at], sentence.language) for at in _spans(parts, room)])
    return rows


def batch_rows(inputs: Inputs, rows: Sequence[TaggedRow]) -> dict[str, Tensor]:
    """A model's inputs, with `labels` `[B, L]`: the word's class at its first piece, ignored elsewhere."""
    batch = inputs.batch([inputs.single(row.ids, row.language) for row in rows])
    labels = torch.full_like(batch["input_ids"], IGNORED)
    for index, row in enumerate(rows):
        labels[index, list(row.first)] = torch.tensor(row.labels)
    return batch | {"labels": labels}


@torch.inference_mode()
def predict_labels(model: Any, inputs: Inputs, rows: Sequence[TaggedRow], batch_size: int) -> NDArray[np.int64]:
    """The predicted class of every word, in the order of the rows. `model` must be in evaluation mode."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].ids))
    found: dict[int, NDArray[np.int64]] = {}
    for start in range(0, len(rows), batch_size):
        part = order[start : start + batch_size]
        batch = batch_rows(inputs, [rows[index] for index in part])
        logits = model(**{key: value.to(model.device) for key, value in batch.items()}).logits
        best = logits.argmax(dim=-1).cpu().numpy()
        found |= {index: best[place, list(rows[index].first)] for place, index in enumerate(part)}
    return np.concatenate([found[index] for index in range(len(rows))])


def _spans(parts: Sequence[Sequence[int]], room: int) -> Iterator[slice]:
    """Cuts between words, as late as room allows."""
    start, used = 0, 0
    for index, part in enumerate(parts):
        if used + len(part) > room:
            yield slice(start, index)
            start, used = index, 0
        used += len(part)
    yield slice(start, len(parts))


def _make_row(inputs: Inputs, parts: Sequence[Sequence[int]], labels: Sequence[int], language: str) -> TaggedRow:
    ids = [piece for part in parts for piece in part]
    starts = np.cumsum([len(inputs.prefix), *(len(part) for part in parts[:-1])])
    return TaggedRow(tuple(inputs.wrap(ids)), tuple(starts.tolist()), tuple(labels), language)
