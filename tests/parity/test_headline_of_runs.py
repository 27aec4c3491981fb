"""MLflow's numbers of a run are its report's, for each run of the quickstart cut short."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.parity.cells_here import pretrain_here, run_cells_here
from tests.ray.small import MODEL, batches, write_world
from xalign_ray.results.aggregate import KEY
from xalign_ray.results.compare import compare_runs, score_frame
from xalign_ray.results.run import label_runs
from xalign_ray.results.sources import find_runs
from xalign_ray.studies.study import run_study
from xalign_ray.track.destinations import resolve_uri
from xalign_ray.work.credentials import with_credentials
from xalign_ray.work.run_folder import RunFolder

SHORT = {"num_train_epochs": 1, "max_train_samples": 16, "max_seq_length": 32, "learning_rate": [1e-4, 1e-3]}
TUNED = {"task": "pos", "data": "pos", "languages": ["en", "qgr"], "settings": SHORT, "seeds": [0, 1]}
CUT = {
    "encoders": [{"recipe": f"tiny/{name}", "label": name} for name in ("mlm", "dict-mlm-50")],
    "finetunings": [TUNED],
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    folder = tmp_path_factory.mktemp("headlines")
    write_world(folder / "runs", sentences=300, parallel=50)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_cells_here(patch, [], [])
        pretrain_here(patch)
        yield [*MODEL, *batches(rows=8, micro=8, steps=2, saved_every=2), "parallel.workers=1"]


def mlflow_runs() -> dict[str, Run]:
    """All runs by the name of their folder."""
    client = MlflowClient(with_credentials(resolve_uri("sqlite", Path("runs"))))
    found = client.search_runs([one.experiment_id for one in client.search_experiments()], max_results=1000)
    return {run.data.tags.get("xalign.run") or str(run.info.run_name): run for run in found}


def shown_by_report(folder: Path) -> dict[str, float]:
    """The means of its comparison.csv under MLflow's keys; of a metric with several measurements the first counts."""
    runs = label_runs(find_runs([str(folder)]))
    table = compare_runs(runs, score_frame(runs)).frame
    first = table.loc[table.by == "task"].drop_duplicates("metric")
    of_languages = table.loc[table.by == "language"].merge(first[KEY])
    keys = [*first.metric, *(of_languages.metric + "_" + of_languages.group)]
    return dict(zip(keys, [*first["mean"], *of_languages["mean"]], strict=True))


def test_headline_of_mlflow_is_the_reports_for_every_run(settings: list[str]) -> None:
    own = [f"{key}={json.dumps(value)}" for key, value in CUT.items()]
    page = run_study("quickstart", Path("runs"), [*settings, *own])
    study = json.loads((page.parents[1] / "study.json").read_text())
    assert {cell["state"] for cell in study["cells"]} <= {"finished", "not chosen"}
    logged, seen = mlflow_runs(), 0
    for folder in {(page.parents[1] / cell["folder"]).resolve() for cell in study["cells"]}:
        if not RunFolder(folder).score_files:
            continue
        metrics = {key: value for key, value in logged[folder.name].data.metrics.items() if "/" not in key}
        assert metrics == shown_by_report(folder), folder.name
        seen += 1
    assert seen >= len(study["cells"]) - 1
