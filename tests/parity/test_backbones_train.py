"""tiny/mlm on each family: the loss falls alike at two ZeRO stages on two workers, and a stranger opens the export."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity.train.live import batch_of_step, compute, train_here
from tests.parity.train.pool import Pool
from tests.ray.small import batches, write_world
from tests.unit.conftest import prepare_here
from tests.unit.models.test_generic import contrast_on_mpnet
from xalign_ray import exports
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.shards.prepared import Prepared
from xalign_ray.track.events import read_events
from xalign_ray.train.distributed import Workers

STAGES = {"bert": (0, 3), "xlm-r": (1, 2), "modernbert": (1, 3), "eurobert": (2, 3)}
CASES = [(family, stage) for family, stages in STAGES.items() for stage in stages]
STEPS = 20
FACTS = {"recipe": "tiny/mlm", "fingerprint": "ab" * 32}
SETTINGS = [*batches(32, 16, STEPS, saved_every=STEPS), "parallel.workers=2"]
SETTINGS += ["train.optimizer.learning_rate=0.01", "train.schedule.warmup_steps=2"]

# Single sentences, as a user has them: ids and padding, the rest is the stock model's own.
STRANGER = """
import sys
import numpy as np, torch
from transformers import AutoModelForMaskedLM
for folder in sys.argv[1:]:
    given = {key: torch.from_numpy(value) for key, value in np.load(folder + "/given.npz").items()}
    with torch.no_grad():
        logits = AutoModelForMaskedLM.from_pretrained(folder + "/export").eval()(**given).logits
    np.save(folder + "/theirs.npy", logits.numpy())
assert "xalign_ray" not in sys.modules
"""


def train_and_show(workers: Workers, config: RunConfig, prepared_folder: Path, folder: Path) -> None:
    """Trains, then keeps what the live model predicts for the first example of some rows; ZeRO 3 needs all ranks."""
    prepared = Prepared.open(prepared_folder)
    encoder = train_here(workers, config, prepared, folder, FACTS)
    batch = batch_of_step(workers, config, prepared, 1)
    _, logits = compute(encoder, batch)
    first = batch["example_ids"] == 1
    ids = torch.where(first, batch["input_ids"], prepared.special.pad).long()
    if workers.rank == 0:
        np.savez(folder / "given.npz", input_ids=ids.numpy(), attention_mask=first.long().numpy())
        np.savez(folder / "ours.npz", logits=logits.numpy(), real=first.numpy())


@pytest.fixture(scope="module")
def runs(two: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case trained over the same shards, exported, and opened by a stranger."""
    base = tmp_path_factory.mktemp("backbones")
    world = write_world(base)
    names = [f"{family}-{stage}" for family, stage in CASES]
    for name, (family, stage) in zip(names, CASES, strict=True):
        own = [f"model.family={family}", f"parallel.zero_stage={stage}"]
        config = load_recipe("tiny/mlm", [*world, *SETTINGS, *own]).config
        prepared = prepare_here(config)
        (base / name).mkdir()
        two.call(train_and_show, config, prepared.folder, base / name)
        exports.export_run(Recipe("tiny/mlm", config, {}), prepared, base / name, dict(FACTS))
    subprocess.run([sys.executable, "-c", STRANGER, *names], cwd=base, check=True, timeout=300)
    return base


def losses(folder: Path) -> Any:
    events = [event for event in read_events(folder / "events.jsonl") if event["event"] == "step"]
    return np.array([event["metrics"]["train/loss"] for event in events])


@pytest.mark.parametrize("family", STAGES)
def test_the_loss_falls_alike_at_both_stages(runs: Path, family: str) -> None:
    first, other = (losses(runs / f"{family}-{stage}") for stage in STAGES[family])
    assert len(first) == STEPS
    assert first[-5:].mean() < first[:5].mean() - 0.5
    np.testing.assert_allclose(other, first, rtol=1e-4)


@pytest.mark.parametrize(("family", "stage"), CASES)
def test_a_stranger_computes_the_logits_of_the_trained_model(runs: Path, family: str, stage: int) -> None:
    folder = runs / f"{family}-{stage}"
    ours, theirs = np.load(folder / "ours.npz"), np.load(folder / "theirs.npy")
    assert ours["real"].sum() > 100
    np.testing.assert_allclose(theirs[ours["real"]], ours["logits"][ours["real"]], rtol=0, atol=1e-5)


def test_contrast_trains_an_encoder_that_no_family_file_names_alike_at_zero_0_and_3(one: Pool, tmp_path: Path) -> None:
    config = contrast_on_mpnet(tmp_path, *batches(8, 8, 6, saved_every=6), "train.optimizer.learning_rate=0.01")
    prepared, steps = prepare_here(config), []
    for stage in (0, 3):
        folder = tmp_path / f"zero-{stage}"
        folder.mkdir()
        parallel = config.parallel.model_copy(update={"zero_stage": stage, "workers": 1})
        one.call(train_one, config.model_copy(update={"parallel": parallel}), prepared.folder, folder)
        steps.append(losses(folder))
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-4)
    assert len(steps[0]) == 6
    assert steps[0][-1] < steps[0][0]


def train_one(workers: Workers, config: RunConfig, prepared_folder: Path, folder: Path) -> None:
    train_here(workers, config, Prepared.open(prepared_folder), folder, FACTS)
