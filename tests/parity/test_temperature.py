"""The temperature that `continue` gives a contrast, by released encoders and plain torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.config.schema import ParallelCorpus
from xalign_ray.continuing.temperature import TEMPERATURES, contrastive_loss, own_temperature
from xalign_ray.models.export import export
from xalign_ray.models.open import open_encoder
from xalign_ray.train.loop import build_model

PAIRS = """I have a dog.\tIch habe einen Hund.
The house is old.\tDas Haus ist alt.
We go to school.\tWir gehen zur Schule.
It rains today.\tEs regnet heute.
She reads a book.\tSie liest ein Buch.
The train is late.\tDer Zug hat Verspätung.
"""


def write_pairs(folder: Path) -> ParallelCorpus:
    path = folder / "en-de.tsv"
    path.write_text(PAIRS, encoding="utf-8")
    return ParallelCorpus(format="tsv", languages=("en", "de"), columns=("1", "2"), paths=(str(path),))


@pytest.mark.models
@pytest.mark.parametrize(("name", "temperature"), [("e5-small", 0.01), ("minilm", 0.05)])
def test_an_encoder_keeps_the_temperature_that_it_was_trained_at(
    released_models: Path, tmp_path: Path, name: str, temperature: float
) -> None:
    """E5's report names 0.01, and all-MiniLM's model card a scale of 20."""
    assert own_temperature(open_encoder(str(released_models / name)), [write_pairs(tmp_path)]) == temperature


def test_an_encoder_with_language_embeddings_gets_those_of_each_side(tmp_path: Path) -> None:
    write_inputs(tmp_path)
    config = make_config(tmp_path, "model.language_embeddings=true")
    prepared = prepare_here(config)
    facts = {"recipe": "tiny/test", "fingerprint": "ab" * 32, "step": 0}
    export(build_model(config, prepared).state_dict(), config, prepared, tmp_path / "export", facts)
    assert own_temperature(open_encoder(str(tmp_path / "export")), [write_pairs(tmp_path)]) in TEMPERATURES


def test_the_loss_is_that_of_both_directions() -> None:
    logits = torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = (cross_entropy(logits, torch.arange(5)) + cross_entropy(logits.T, torch.arange(5))) / 2
    assert contrastive_loss(np.asarray(logits)) == pytest.approx(float(expected))
