"""All methods in one run of 200 steps on two workers, one of them killed: not a bit is different."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from tests.parity.train.pool import Pool
from tests.ray.runs import curve, kill_after, on_ray, without_ray
from xalign_ray.config.load import load_recipe
from xalign_ray.data.prepare import prepare
from xalign_ray.demo.writer import write_demo
from xalign_ray.track.events import read_events
from xalign_ray.train.driver import connect

pytestmark = pytest.mark.ray
STEPS, KILLED_AT = 200, 117


@pytest.fixture(scope="module")
def two() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


def test_a_killed_run_of_six_objectives_ends_as_the_calm_one(two: Pool, tmp_path: Path) -> None:
    write_demo(tmp_path / "demo", sentences=600, parallel_sentences=300, retrieval_pairs=20)
    settings = [f"data.root={tmp_path / 'demo'}", f"output={tmp_path / 'runs'}", "data.tokenizer.vocab_size=1000"]
    settings += [f"train.steps={STEPS}", "train.global_batch_rows=16", "train.micro_batch_rows=8"]
    settings += ["model.width=32", "model.feed_forward=64", "model.dropout=0.1", "checkpoint.every_steps=50"]
    settings += ["train.held_out_every_steps=0", "objectives.3.queue_size=100"]
    config = load_recipe("tiny/all", settings).config
    assert [one.kind for one in config.objectives] == [
        "masked_lm",
        "dictionary_alignment",
        "word_exchange",
        "momentum_contrast",
    ]
    connect(config.parallel)
    try:
        two.call(without_ray, config, tmp_path / "calm", prepare(config).folder)
        killer = kill_after(tmp_path / "killed" / "events.jsonl", [(KILLED_AT, 1)])
        killed = on_ray(config, tmp_path / "killed")
        killer.join(1)
    finally:
        ray.shutdown()
    starts = [
        event["step"]
        for event in read_events(tmp_path / "killed" / "events.jsonl", surviving=False)
        if event["event"] == "start"
    ]
    assert starts == [0, 100]
    assert killed == curve(tmp_path / "calm", STEPS)
