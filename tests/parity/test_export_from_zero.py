"""What was trained at ZeRO 0, 2 and 3 is what a process that never imports xalign_ray opens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.parity.train.live import batch_of_step, compute, train_here
from tests.parity.train.pool import Pool
from tests.unit.conftest import make_config, prepare_here, write_inputs
from xalign_ray import exports
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.distributed import Workers

STAGES = (0, 2, 3)
CONDITIONED = "model.conditioned_head=true"
RECIPES = {
    "mlm": ["streams=[{kind: masked_text}]"],
    "xlm": ["streams=[{kind: masked_text}, {kind: masked_pairs}]", "model.language_embeddings=true"],
    "align-mlm": ["streams=[{kind: masked_text}]", "objectives=[{kind: masked_lm}, {kind: dictionary_alignment}]"],
    "dict-mlm": ["streams=[{kind: code_switched_labels}]", "model.language_embeddings=true", CONDITIONED],
}
SHAPE = [
    "model.num_hidden_layers=2",
    "model.hidden_size=32",
    "model.num_attention_heads=4",
    "model.intermediate_size=64",
    "model.hidden_dropout_prob=0.1",
]
TRAIN = ["train.max_steps=3", "train.eval_steps=0", "parallel.workers=2", "train.optimizer.learning_rate=1e-2"]
FACTS = {"recipe": "test", "fingerprint": "ab" * 32}

STRANGER = """
import json, sys
import numpy as np, torch
from transformers import AutoModel, AutoModelForMaskedLM
for folder in sys.argv[1:]:
    batch = {key: torch.from_numpy(value) for key, value in np.load(folder + "/given.npz").items()}
    config = json.load(open(folder + "/export/config.json"))
    types = batch["segment_ids"]
    if config["xalign_languages"]:
        types = types + config["xalign_segments"] * batch["language_ids"]
    apart = batch["example_ids"][:, None, :, None] == batch["example_ids"][:, None, None, :]
    call = dict(input_ids=batch["input_ids"], attention_mask=apart,
                position_ids=batch["position_ids"], token_type_ids=types)
    saved = {}
    with torch.no_grad():
        saved["hidden"] = AutoModel.from_pretrained(folder + "/export").eval()(**call).last_hidden_state.numpy()
        if config["architectures"] == ["BertForMaskedLM"]:
            saved["logits"] = AutoModelForMaskedLM.from_pretrained(folder + "/export").eval()(**call).logits.numpy()
    np.savez(folder + "/theirs.npz", **saved)
assert "xalign_ray" not in sys.modules
"""


def train_and_show(workers: Workers, config: RunConfig, prepared_folder: Path, folder: Path) -> None:
    """Trains, then keeps what the live model computes on one batch; every rank computes, as ZeRO 3 needs."""
    prepared = Prepared.open(prepared_folder)
    encoder = train_here(workers, config, prepared, folder, FACTS)
    batch = batch_of_step(workers, config, prepared, 2)
    hidden, logits = compute(encoder, batch)
    if workers.rank == 0:
        np.savez(folder / "given.npz", **{key: value.numpy() for key, value in batch.items()})
        np.savez(folder / "ours.npz", hidden=hidden.numpy(), logits=logits.numpy())


@pytest.fixture(scope="module")
def folders(two: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every recipe trained by two workers at every stage, exported, and opened by a stranger."""
    base = tmp_path_factory.mktemp("zero")
    write_inputs(base)
    for recipe, settings in RECIPES.items():
        for stage in STAGES:
            config = make_config(base, *settings, *SHAPE, *TRAIN, f"parallel.zero_stage={stage}")
            prepared = prepare_here(config)
            folder = base / f"{recipe}-{stage}"
            folder.mkdir()
            two.call(train_and_show, config, prepared.folder, folder)
            exports.export_run(Recipe("test", config, {}), prepared, folder, dict(FACTS))
    names = [f"{recipe}-{stage}" for recipe in RECIPES for stage in STAGES]
    subprocess.run([sys.executable, "-c", STRANGER, *names], cwd=base, check=True, timeout=300)
    return base


def load(path: Path) -> dict[str, Any]:
    return dict(np.load(path))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_exported_folder_computes_what_the_trained_model_did(folders: Path, recipe: str, stage: int) -> None:
    ours, theirs = (load(folders / f"{recipe}-{stage}" / name) for name in ("ours.npz", "theirs.npz"))
    real = load(folders / f"{recipe}-{stage}" / "given.npz")["example_ids"] > 0
    np.testing.assert_allclose(theirs["hidden"][real], ours["hidden"][real], rtol=0, atol=1e-5)
    assert ("logits" in theirs) == (recipe != "dict-mlm"), "only a conditioned head needs our own class"
    if "logits" in theirs:
        np.testing.assert_allclose(theirs["logits"][real], ours["logits"][real], rtol=0, atol=1e-5)


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_language_is_a_token_type_where_the_recipe_has_language_embeddings(folders: Path, recipe: str) -> None:
    config = json.loads((folders / f"{recipe}-2" / "export" / "config.json").read_text())
    expected = 2 * 2 if recipe in ("xlm", "dict-mlm") else 2
    assert config["type_vocab_size"] == expected
