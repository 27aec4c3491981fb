"""The temperature that `continue` gives a contrast, by released encoders and plain torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from xalign_ray.config.schema import ParallelCorpus
from xalign_ray.continuing.temperature import contrastive_loss, own_temperature
from xalign_ray.models.open import open_encoder

PAIRS = """I have a dog.\tIch habe einen Hund.
The house is old.\tDas Haus ist alt.
We go to school.\tWir gehen zur Schule.
It rains today.\tEs regnet heute.
She reads a book.\tSie liest ein Buch.
The train is late.\tDer Zug hat Verspätung.
"""


@pytest.mark.models
@pytest.mark.parametrize(("name", "temperature"), [("e5-small", 0.01), ("minilm", 0.05)])
def test_an_encoder_keeps_the_temperature_that_it_was_trained_at(
    released_models: Path, tmp_path: Path, name: str, temperature: float
) -> None:
    """E5's report names 0.01, and all-MiniLM's model card a scale of 20."""
    (tmp_path / "en-de.tsv").write_text(PAIRS, encoding="utf-8")
    corpus = ParallelCorpus.model_validate(
        {"format": "tsv", "languages": ["en", "de"], "columns": ["1", "2"], "paths": [str(tmp_path / "en-de.tsv")]}
    )
    assert own_temperature(open_encoder(str(released_models / name)), [corpus]) == temperature


def test_the_loss_is_that_of_both_directions() -> None:
    logits = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = (cross_entropy(logits, torch.arange(5)) + cross_entropy(logits.T, torch.arange(5))) / 2
    assert contrastive_loss(np.asarray(logits)) == pytest.approx(float(expected))
