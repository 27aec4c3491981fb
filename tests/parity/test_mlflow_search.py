"""What a run is found and opened by in MLflow (a real one, on SQLite): parameters, tags, data set, export."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest
import torch
import yaml
from mlflow import MlflowClient

from tests.ray.small import batches, write_world
from tests.unit.conftest import prepare_here
from xalign_ray import pretraining
from xalign_ray.config.load import load_recipe
from xalign_ray.tasks.scores import SCORES, Score, write_scores
from xalign_ray.track.follower import replay
from xalign_ray.work.run_folder import RunFolder

SEARCHED = "found"


@pytest.fixture(scope="module")
def run(uri: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run of ALIGN-MLM with a score, and its id in MLflow."""
    folder = tmp_path_factory.mktemp("run")
    settings = [*write_world(folder, 300, 50), *batches(8, 8, 2, saved_every=2), "notes=a try", f"track.mlflow={uri}"]
    settings += [f"track.experiment={SEARCHED}"]
    recipe = load_recipe("tiny/align-mlm", settings)
    prepare_here(recipe.config)
    made = pretraining.pretrain(recipe, local=True)
    target = RunFolder(made).evaluation("tatoeba")
    target.mkdir(parents=True)
    common = {"encoder": "export", "objective": "align-mlm", "task": "tatoeba", "split": "test", "chance": 0.01, "n": 9}
    one = Score(run=made.name, language="all", metric="tatoeba_accuracy", value=0.25, seed=0, step=2, **common)
    write_scores(target / SCORES, [one])
    (run_id,) = replay(made, uri, SEARCHED)
    return made, run_id


def found(uri: str, query: str) -> list[str]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(SEARCHED)
    return [one.info.run_id for one in client.search_runs([experiment.experiment_id], query)]


@pytest.mark.parametrize(
    "query",
    [
        "params.method = 'align-mlm' and metrics.tatoeba_accuracy > 0.1",
        "params.scale = 'tiny' and params.objectives LIKE '%dictionary_alignment%'",
        "params.languages LIKE '%qhy%'",
        "metrics.`run/worker_hours` > 0",
    ],
)
def test_a_pretraining_is_found_by_what_it_is(uri: str, run: tuple[Path, str], query: str) -> None:
    assert found(uri, query) == [run[1]]
    assert found(uri, query.replace(" > ", " < ").replace("align-mlm", "mlm").replace("LIKE '%", "LIKE '%no")) == []


def test_it_says_who_ran_what_where(uri: str, run: tuple[Path, str]) -> None:
    data = MlflowClient(uri).get_run(run[1]).data
    tags = data.tags
    assert tags["mlflow.source.name"] == "tiny/align-mlm"
    assert not {"fingerprint", "notes"} & data.params.keys(), "a comparison begins with the first that differ"
    assert tags["mlflow.note.content"] == "a try"
    assert tags["mlflow.user"] == getpass.getuser()
    assert tags["xalign.version.torch"] == torch.__version__
    assert {"xalign.host", "xalign.version.python", "xalign.version.xalign-ray"} <= tags.keys()


def test_its_data_set_has_a_name_that_says_what_it_is(uri: str, run: tuple[Path, str]) -> None:
    (given,) = MlflowClient(uri).get_run(run[1]).inputs.dataset_inputs
    manifest = json.loads((Path(yaml_start(run[0])["data"]) / "manifest.json").read_text())
    assert given.dataset.name == "-".join(manifest["languages"])
    profile = json.loads(given.dataset.profile)
    assert profile["tokens"] == manifest["counts"]["tokens"]
    assert profile["rows"] == sum(pool["rows"] for pool in manifest["pools"].values())


def yaml_start(folder: Path) -> dict[str, str]:
    return yaml.safe_load((folder / "events.jsonl").read_text().splitlines()[0])


def test_it_names_its_export(uri: str, run: tuple[Path, str]) -> None:
    folder, run_id = run
    assert MlflowClient(uri).get_run(run_id).data.tags["xalign.export"] == str((folder / "export").resolve())
