"""Four hosts and a network between them: verbs submitted from a fifth, ZeRO 1 to 3 over two trainers, a study."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.parity.train.pool import Pool
from tests.ray.hosts import needs_hosts
from tests.ray.runs import BLOCK_SERVER, DATA_TASK, TRAIN_WORKER, calm, check_rows, curve
from tests.ray.site import PLACED, Site, site
from tests.ray.small import batches, recipe
from tests.ray.tagging_world import write_encoder, write_tags
from xalign_ray.work.run_folder import RunFolder

pytestmark = [pytest.mark.ray, pytest.mark.long, needs_hosts]
STEPS = 12
TRIAL, MAP = "ray::run_cell", "ray::Map("
MLFLOW = "http://127.0.0.1:5000"
FOUND = """
import json, mlflow
runs = mlflow.MlflowClient("http://127.0.0.1:5000").search_runs(
    [one.experiment_id for one in mlflow.MlflowClient("http://127.0.0.1:5000").search_experiments()]
)
print(json.dumps([[run.info.run_name, run.info.status, run.data.params.get("method")] for run in runs]))
"""


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("shared")) as found:
        server = found.start("head", *found.of_page("mlflow server"))
        server.wait_for(lambda: "Application startup complete" in server.said())
        yield found


def where(four: Site, *words: str | Path) -> dict[str, set[str]]:
    """Runs a verb from the desk to a good end; which of the processes that work it had on which host."""
    titles = (TRAIN_WORKER, BLOCK_SERVER, DATA_TASK, MAP, TRIAL)
    seen: dict[str, set[str]] = {}
    job = four.start("desk", *four.submitted(*words))

    def look() -> None:
        for name, host in four.hosts.items():
            seen.setdefault(name, set()).update(title for title in titles if host.pids(title))

    job.wait_to_end(look)
    assert job.end() == 0, job.said()
    return {name: found for name, found in seen.items() if found}


def options(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def test_shards_are_made_on_the_host_for_data(four: Site, world: list[str]) -> None:
    output = f"output={four.shared / 'runs'}"
    placed = where(four, "prepare", "tiny/align-mlm", *options(*world, *batches(24, 12, STEPS, STEPS), *PLACED, output))
    assert set(placed) == {"data"}


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_two_trainers_take_the_steps_of_one_machine_at_each_zero_stage(
    four: Site, world: list[str], two: Pool, tmp_path: Path, stage: int
) -> None:
    settings = [*world, *batches(24, 12, STEPS, STEPS), f"parallel.zero_stage={stage}"]
    expected = calm(two, recipe([*settings, "parallel.workers=2"]), tmp_path / "calm")
    followed = [*settings, *PLACED, f"track.mlflow={MLFLOW}", f"output={four.shared / 'runs'}"]
    placed = where(four, "pretrain", "tiny/align-mlm", *options(*followed), "--out", four.shared / f"zero-{stage}")
    assert placed["train-1"] == placed["train-2"] == {TRAIN_WORKER}
    assert BLOCK_SERVER in placed["data"]
    assert curve(four.shared / f"zero-{stage}", STEPS) == expected
    check_rows(four.shared / f"zero-{stage}", expected)
    assert RunFolder(four.shared / f"zero-{stage}").manifest.is_file()


def test_cells_of_a_study_run_side_by_side_on_several_hosts(four: Site, tmp_path: Path) -> None:
    write_tags(tmp_path / "data" / "pos", "en", "de")
    pos = {
        "task": "pos",
        "data": "pos",
        "settings": {"learning_rate": [1e-2, 1e-3, 1e-4, 1e-5], "num_train_epochs": 20},
    }
    tree = {
        "name": "side",
        "root": str(tmp_path / "data"),
        "encoders": [{"model": write_encoder(tmp_path / "plain"), "label": "mlm"}],
        "finetunings": [pos],
        "resources": {"cpus": 2},
        "mlflow": MLFLOW,
    }
    (tmp_path / "side.yaml").write_text(yaml.safe_dump(tree))
    placed = where(four, "study", tmp_path / "side.yaml", "--out", four.shared / "runs")
    assert len([name for name, found in placed.items() if TRIAL in found]) >= 2
    assert (four.shared / "runs" / "studies" / "side" / "report" / "index.html").is_file()


def test_all_of_it_is_in_mlflow(four: Site) -> None:
    said = four.hosts["head"].run("python", "-c", FOUND, environment=four.environment)
    runs = json.loads(re.findall(r"^\[.*\]$", said, re.M)[-1])
    assert {status for _, status, _ in runs} == {"FINISHED"}
    assert "zero-3" in [name for name, _, method in runs if method == "align-mlm"]
    assert len([name for name, _, _ in runs if name.startswith("mlm: pos")]) == 4
