"""A study in MLflow: all is there when publishing has finished, also what failed before."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from xalign_ray.errors import TrackingError
from xalign_ray.studies import progress
from xalign_ray.studies.progress import StudyPublisher
from xalign_ray.track.events import EVENT_LOG, EventLog, run_identity


def refuse(*_: object) -> None:
    raise TrackingError("MLflow does not answer")


@pytest.mark.parametrize("fails", [False, True])
def test_mlflow_has_the_study_and_its_cells(
    tmp_path: Path, fails: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study, cells = tmp_path / "study", [tmp_path / "study" / "cells" / name for name in ("known", "missed")]
    with EventLog(study / EVENT_LOG, 1) as log:
        log.write("start", 0, recipe="studies/one", fingerprint="one", params={}, labels={})
    for cell in cells:
        with EventLog(cell / EVENT_LOG, 1) as log:
            log.write("start", 0, fingerprint=cell.name, parent=run_identity(study), params={}, title=cell.name)
            log.write("end", 0, state="finished")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    publisher = StudyPublisher(study, uri, "one")
    if fails:
        monkeypatch.setattr(progress, "replay_one", refuse)
    publisher.publish(cells[0])
    publisher._thread.shutdown()
    monkeypatch.undo()
    publisher.finish()
    assert capsys.readouterr().err == ""
    client = MlflowClient(uri)
    found = client.get_experiment_by_name("one")
    assert found
    runs = client.search_runs([found.experiment_id])
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    children = [run for run in runs if run is not parent]
    assert {run.info.run_name for run in children} == {"known", "missed"}
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert publisher.page.startswith(f"/#/experiments/{found.experiment_id}/")
