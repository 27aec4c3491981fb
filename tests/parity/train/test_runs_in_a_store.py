"""A run whose inputs, shards, checkpoints and export lie in an S3 store, killed twice, goes on on other machines."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import numpy as np
import pytest

from tests.ray.runs import PATIENCE_S, check_batches, starts
from tests.ray.small import batches, write_world
from tests.s3_server import S3Server
from tests.unit.data.conftest import prepare_here
from xalign_ray import pipeline
from xalign_ray.config.load import load_recipe
from xalign_ray.data.local import open_local
from xalign_ray.errors import ConfigError, LockError
from xalign_ray.mirror import CACHE, published, url_of

STEPS = 400


def test_a_run_in_a_store_killed_twice_goes_on_on_other_machines(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fsspec.filesystem("s3")
    settings = write_world(tmp_path, sentences=300, parallel=50)
    store.put(f"{tmp_path}/demo/", "store/demo/", recursive=True)
    settings += batches(8, 4, STEPS, saved_every=40)
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
        words = [word for setting in settings for word in ("--set", setting)]
        command = [sys.executable, "-m", "xalign_ray", "pretrain", "tiny/align-mlm", "--no-ray", *words]
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        until = time.monotonic() + PATIENCE_S
        while checkpoints() == before or not checkpoints():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.05)
        process.kill()
        process.communicate()

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
    assert "not-to-be-shown" not in "".join((again / name).read_text() for name in names[1:])


def test_a_second_writer_of_a_folder_in_a_store_is_refused(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    folder = tmp_path / "s3" / "store" / "run"
    refused = r"^s3://store/run is being written by pretrain on .* Wait for its end, or stop it\.$"
    with published(folder, "pretrain"):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("a")
        with pytest.raises(LockError, match=refused), published(folder, "pretrain"):
            pass
    assert sorted(fsspec.filesystem("s3").find("store/run")) == ["store/run/a.txt"]
    assert s3.requests


def test_an_out_that_is_a_url_is_refused(tmp_path: Path) -> None:
    settings = write_world(tmp_path, sentences=100, parallel=10)
    with pytest.raises(ConfigError, match="--out is a URL; give it as --set output="):
        pipeline.pretrain(load_recipe("tiny/mlm", settings), Path("s3://store/run"))
