"""A run whose inputs, shards, checkpoints and export lie in an S3 store, killed once, goes on on other machines."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tests.ray.runs import PATIENCE_S, check_batches, starts
from tests.ray.small import batches, write_world
from tests.s3_server import S3Server
from tests.unit.conftest import prepare_here
from xalign_ray import exports, open_run, pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.feed import batches as feeding
from xalign_ray.results.report import report
from xalign_ray.shards.prepared import Prepared
from xalign_ray.verbs.scores import evaluate
from xalign_ray.work import mirror
from xalign_ray.work.mirror import files_below, url_of
from xalign_ray.work.storage import CACHE

STEPS, SAVED_EVERY = 40, 20


def pretrain_until_killed(environment: dict[str, str], settings: list[str], checkpoints: str) -> None:
    """In a process of its own, killed between two checkpoints, as soon as the first of them is in the store.

    It waits for that within a step, where a checkpoint that is on its way would stay so.
    """
    os.environ |= environment
    store, mirror.PUBLISH_S = fsspec.filesystem("s3", use_listings_cache=False), 0.1
    before, given = set(store.glob(checkpoints)), pretraining.open_local

    def saved() -> bool:
        try:
            return not before.issuperset(store.glob(checkpoints))
        except FileNotFoundError:  # an older one is removed while it is listed
            return False

    def open_local(prepared: Prepared, config: RunConfig, first: int, rank: int) -> Iterator[dict[str, np.ndarray]]:
        for number, batch in enumerate(given(prepared, config, first, rank)):
            if number == SAVED_EVERY + 5:
                while not saved():
                    time.sleep(0.05)
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    pretraining.open_local = open_local  # pyright: ignore[reportAttributeAccessIssue]
    pretraining.pretrain(load_recipe("tiny/align-mlm", [*settings, "checkpoint.async_save=false"]), local=True)


def test_a_run_in_a_store_that_was_killed_goes_on_on_other_machines(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fsspec.filesystem("s3", use_listings_cache=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.parity.train.warm"])
    settings = write_world(tmp_path, sentences=300, parallel=50)
    store.put(f"{tmp_path}/demo/", "store/demo/", recursive=True)
    settings += batches(8, 4, STEPS, saved_every=SAVED_EVERY)
    settings += ["data.root=s3://store/demo", "output=s3://store/runs", "parallel.workers=1"]
    recipe = load_recipe("tiny/align-mlm", settings)

    def on_machine(number: int) -> None:
        monkeypatch.setenv(CACHE, str(tmp_path / f"machine-{number}"))

    on_machine(1)
    prepared = prepare_here(recipe.config)
    rows = feeding.open_local(prepared, recipe.config, 0, 0)
    hashes = [int(next(rows)["row_hash"].sum(dtype=np.uint64)) for _ in range(STEPS)]
    run = pretraining.find_run(recipe)
    assert run
    url = url_of(run)
    assert url
    assert url.startswith("s3://store/runs/tiny-align-mlm-")

    whole = f"{url}/checkpoints/step_*/manifest.json"
    process = context.Process(target=pretrain_until_killed, args=(dict(os.environ), settings, whole))
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == -signal.SIGKILL
    on_machine(2)
    given = pretraining.open_local

    def open_local(prepared: Prepared, config: RunConfig, first: int, rank: int) -> Iterator[dict[str, np.ndarray]]:
        for step, batch in enumerate(given(prepared, config, first, rank), first):
            s3.expired = step == STEPS - 1
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(pretraining, "open_local", open_local)
        with pytest.raises(DataError, match=r"expired.* the same command publishes it\.$"):
            pretraining.pretrain(recipe, local=True)
    s3.heal()
    store.rm_file(f"{url}/.lock")  # of this very process
    with s3.fault(failing=20):  # 5 % of the answers
        there = pretraining.pretrain(recipe, local=True)
    assert s3.failed
    assert starts(there) == [0, SAVED_EVERY]
    check_batches(there, hashes)
    on_machine(3)
    again = pretraining.pretrain(recipe, local=True)  # finished: it is only fetched
    check_batches(again, hashes)
    names = ("export/model.safetensors", "events.jsonl", "config.yaml", "manifest.json")
    assert [(again / name).read_bytes() for name in names] == [(there / name).read_bytes() for name in names]
    assert not store.exists(f"{url}/.lock")
    assert not list((again / "checkpoints").glob("*"))

    # What is made of it on one machine is seen on another; the store holds no credentials.
    value = evaluate(url, "tatoeba", Path("s3://store/demo/tatoeba")).value[0]
    assert report([url]).is_file()
    step = exports.export(url, step=STEPS)
    assert (step / "model.safetensors").read_bytes() == (again / "export" / "model.safetensors").read_bytes()
    on_machine(4)
    seen = open_run(url)
    assert value in seen.scores.value.to_list()
    assert {"report/index.html", f"export_step_{STEPS:06d}/model.safetensors"} <= set(files_below(seen.path))
    assert "tatoeba_accuracy" in (seen.path / "export" / "README.md").read_text()
    assert [name for name in store.find("store") if b"not-to-be-shown" in store.cat(name)] == []
