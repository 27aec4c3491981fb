"""A corpus smaller than one step, on real data without Ray: every row in its turn, also when a run is interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.parity.train.pool import Pool
from tests.parity.train.synthetic import Interrupted
from tests.ray.runs import calm, check_rows, curve, facts, starts, without_ray
from tests.ray.small import batches, recipe
from tests.unit.conftest import prepare_here
from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import open_local
from xalign_ray.shards.order import CHUNK_STEPS
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.loop import train
from xalign_ray.work.job import Job

STEPS = 16


def interrupted(workers, config: RunConfig, folder: Path, prepared_folder: Path, until: int) -> None:
    """A run whose feed breaks off."""
    prepared = Prepared.open(prepared_folder)

    def stream(at: int, rank: int, _: int) -> Generator[dict[str, Any], None, None]:
        yield from islice(open_local(prepared, config, at, rank), until - at)
        raise Interrupted

    with pytest.raises(Interrupted):
        train(Job(folder, facts(config, prepared)), config, prepared, stream, workers)


def test_a_corpus_smaller_than_a_step_is_read_in_equal_turns(two: Pool, tmp_path: Path) -> None:
    """Three epochs and more inside each step: over a chunk every row comes as often as any other."""
    for code in ("en", "de"):
        lines = [f"{code}{n} sees {code}{n * 7 % 30} and {code}{n * 11 % 30}" for n in range(30)]
        (tmp_path / f"{code}.txt").write_text("\n".join(lines) + "\n")
    corpora = ", ".join(f"{{format: text, language: {code}, paths: [{code}.txt]}}" for code in ("en", "de"))
    data = [f"data.root={tmp_path}", f"output={tmp_path / 'runs'}", f"data.corpora=[{corpora}]", "data.dictionaries=[]"]
    data += [
        "data.held_out_fraction=0",
        "data.tokenizer.vocab_size=200",
        "model.hidden_size=32",
        "model.intermediate_size=64",
    ]
    data += ["checkpoint.async_save=false"]  # what was due before the feed breaks off is saved
    config = recipe(data, *batches(72, 36, STEPS, saved_every=4), name="tiny/mlm")
    prepared = prepare_here(config)
    rows = [pool["rows"] for pool in prepared.manifest["pools"].values()]
    assert 3 * sum(rows) < 72
    order, turns = prepared.order(config), Counter[tuple[int, int, int]]()
    for request in order.requests(0, CHUNK_STEPS, 0, 72, CHUNK_STEPS):
        places = order.places(request)
        turns.update(zip(places.source.tolist(), places.shard.tolist(), places.row.tolist(), strict=True))
    for source, size in enumerate(rows):
        taken = [count for place, count in turns.items() if place[0] == source]
        assert len(taken) == size
        assert max(taken) - min(taken) <= 1
    expected = calm(two, config, tmp_path / "calm")
    two.call(interrupted, config, tmp_path / "moved", prepared.folder, 7)
    two.call(without_ray, config, tmp_path / "moved", prepared.folder)
    assert starts(tmp_path / "moved") == [0, 4]
    assert curve(tmp_path / "moved", STEPS) == expected
    check_rows(tmp_path / "moved", expected)
