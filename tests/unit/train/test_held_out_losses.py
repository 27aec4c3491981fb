"""Held-out losses by language: each label counts for the language of its row alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from xalign_ray.train.scoring import held_out_losses


class Scored:
    """Stands for the engine: the loss of a label is the label itself."""

    @contextmanager
    def scoring(self) -> Iterator[Callable[..., Any]]:
        yield self.forward

    def forward(self, batch: dict[str, torch.Tensor], part: tuple[int, int], step: int, kind: str) -> Any:  # noqa: ARG002
        labels = batch["labels"].flatten()
        return {kind: labels[labels != -100].double()}


class Alone:
    """One worker."""

    rank, size, device = 0, 1, torch.device("cpu")

    def sum(self, values: list[float]) -> list[float]:
        return list(values)


def rows(labels: list[list[int]]) -> dict[str, np.ndarray]:
    found = np.array(labels)
    ones = np.ones_like(found, np.int32)
    names = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")
    return {"labels": found, **dict.fromkeys(names, ones)}


def test_each_label_counts_for_the_language_of_its_row() -> None:
    none = -100
    batches = [
        (np.array([2, 0, 2]), rows([[1, none, 3], [10, none, none], [none, 5, none]])),
        (np.array([0, 3]), rows([[20, 30, none], [none, none, none]])),
    ]
    found = held_out_losses(Scored(), batches, ["en", "de", "tr", "hi"], Alone())  # type: ignore[arg-type]
    assert found == pytest.approx({"en": (10 + 20 + 30) / 3, "tr": (1 + 3 + 5) / 3})
    assert list(found) == ["en", "tr"], "de has no row, hi has no label"
