"""A run whose inputs, shards, checkpoints and export lie in an S3 store, killed twice, goes on on other machines."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tests.ray.runs import PATIENCE_S, check_batches, starts
from tests.ray.small import batches, write_world
from tests.s3_server import S3Server
from tests.unit.data.conftest import prepare_here
from xalign_ray import evaluation, exports, open_run, pipeline
from xalign_ray.config.load import load_recipe
from xalign_ray.data.local import open_local
from xalign_ray.mirror import CACHE, url_of
from xalign_ray.publisher import files_below
from xalign_ray.report.verb import report

STEPS = 200


def pretrain(environment: dict[str, str], settings: list[str]) -> None:
    """In a process of its own, which is forked from one that has imported what training needs."""
    os.environ |= environment
    pipeline.pretrain(load_recipe("tiny/align-mlm", settings), local=True)


def test_a_run_in_a_store_killed_twice_goes_on_on_other_machines(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fsspec.filesystem("s3")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.parity.train.warm"])
    settings = write_world(tmp_path, sentences=300, parallel=50)
    store.put(f"{tmp_path}/demo/", "store/demo/", recursive=True)
    settings += batches(8, 4, STEPS, saved_every=20)
    settings += ["data.root=s3://store/demo", "output=s3://store/runs", "parallel.workers=1"]
    recipe = load_recipe("tiny/align-mlm", settings)

    def on_machine(number: int) -> None:
        monkeypatch.setenv(CACHE, str(tmp_path / f"machine-{number}"))

    on_machine(1)
    prepared = prepare_here(recipe.config)
    rows = open_local(prepared, recipe.config, 0, 0)
    hashes = [int(next(rows)["row_hash"].sum(dtype=np.uint64)) for _ in range(STEPS)]
    run = pipeline.find_run(recipe)
    assert run
    url = url_of(run)
    assert url
    assert url.startswith("s3://store/runs/tiny-align-mlm-")

    def checkpoints() -> list[str]:
        return store.glob(f"{url}/checkpoints/step_*/manifest.json")

    def train_and_kill() -> None:
        before = checkpoints()
        process = context.Process(target=pretrain, args=(dict(os.environ), settings))
        process.start()
        until = time.monotonic() + PATIENCE_S
        while checkpoints() == before or not checkpoints():
            assert process.is_alive()
            assert time.monotonic() < until
            time.sleep(0.05)
        process.kill()
        process.join()

    train_and_kill()
    on_machine(2)
    train_and_kill()
    on_machine(3)
    with s3.fault(failing=20):  # 5 % of the answers
        there = pipeline.pretrain(recipe, local=True)
    assert s3.failed
    began = starts(there)
    assert len(began) == 3
    assert 0 < began[1] < began[2] < STEPS
    check_batches(there, hashes)
    on_machine(4)
    again = pipeline.pretrain(recipe, local=True)  # finished: it is only fetched
    check_batches(again, hashes)
    names = ("export/model.safetensors", "events.jsonl", "config.yaml", "manifest.json")
    assert [(again / name).read_bytes() for name in names] == [(there / name).read_bytes() for name in names]
    assert not store.exists(f"{url}/.lock")
    assert not list((again / "checkpoints").glob("*"))

    # What is made of it on one machine is seen on another; the store holds no credentials.
    (score, *_) = evaluation.evaluate(url, "tatoeba", Path("s3://store/demo/tatoeba"))
    assert report([url]).is_file()
    step = exports.export(url, step=STEPS)
    assert (step / "model.safetensors").read_bytes() == (again / "export" / "model.safetensors").read_bytes()
    on_machine(5)
    seen = open_run(url)
    assert score.value in seen.scores.value.to_list()
    assert {"report/index.html", f"export_step_{STEPS:06d}/model.safetensors"} <= set(files_below(seen.path))
    assert "tatoeba_accuracy" in (seen.path / "export" / "README.md").read_text()
    assert [name for name in store.find("store") if b"not-to-be-shown" in store.cat(name)] == []
