"""Every loss asks every family as it asks BERT: finite sums, and a gradient for every weight that is read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import open_local
from xalign_ray.models.families import FAMILIES
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.loop import build_model
from xalign_ray.train.step import tensors

LOSSES = "{kind: masked_lm, labels_at_once: 16}, {kind: dictionary_alignment, layer: 1}, {kind: word_exchange}, "
LOSSES += "{kind: momentum_contrast, queue_size: 8, projection: 4}, {kind: sentence_contrast, layer: 2}, "
LOSSES += "{kind: denoising_alignment}"
SETTINGS = [
    "streams=[{kind: aligned_pairs}, {kind: masked_pairs}, {kind: contrasted_pairs}, {kind: code_switched_labels}]"
]
SETTINGS += [
    f"objectives=[{LOSSES}]",
    "train={max_steps: 2, global_batch_size: 48, per_device_batch_size: 48}",  # rows of every stream
    "model.num_hidden_layers=2",
    "model.hidden_size=16",
    "model.num_attention_heads=2",
    "model.intermediate_size=24",
]
SETTINGS += ["model.hidden_dropout_prob=0.0"]
LANGUAGES = ["model.language_embeddings=true", "model.conditioned_head=true"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("losses")
    write_inputs(base)
    align = "\n".join("0-0 1-1" for _ in range(250)) + "\n"
    (base / "pairs.align").write_text(align)
    return base


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Prepared:
    return prepare_here(configured(folder, "bert"))


def configured(folder: Path, family: str) -> RunConfig:
    parallel = "data.parallel=[{format: moses, languages: [en, de], paths: [pairs.en, pairs.de, pairs.align]}]"
    languages = LANGUAGES if family not in ("modernbert", "eurobert") else []  # which have no token types
    return make_config(folder, parallel, *SETTINGS, *languages, f"model.family={family}")


@pytest.mark.parametrize("family", FAMILIES)
def test_all_losses_reach_the_whole_encoder(folder: Path, prepared: Prepared, family: str) -> None:
    config = configured(folder, family)
    objectives = build_model(config, prepared)
    batch = tensors(next(open_local(prepared, config, 0, 0)), torch.device("cpu"), objectives.extra_columns)
    sums = objectives(batch, (0, 1), 0)
    assert {kind: bool(torch.isfinite(value)) and value.item() != 0 for kind, value in sums.items()} == dict.fromkeys(
        sums, True
    )
    assert len(sums) == 6
    sum(sums.values()).backward()
    unused = [name for name, weight in objectives.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert unused == []
    before = {name: value.clone() for name, value in objectives.state_dict().items() if ".tower." in name}
    with torch.no_grad():
        for weight in objectives.encoder.parameters():
            weight += 0.1
    objectives.after_step(lambda rows: rows)
    after = objectives.state_dict()
    moved = [name for name, value in before.items() if ".encoder." in name and not torch.equal(value, after[name])]
    assert len(moved) == len([name for name in before if ".encoder." in name and "position_ids" not in name])
