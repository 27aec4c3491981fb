"""A plain `evaluate` is a run of MLflow below that of its encoder; its scores are metrics and are in the model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from tests.unit.results.run_folders import score, write_run
from xalign_ray.errors import ConfigError
from xalign_ray.tasks.registry import TASKS
from xalign_ray.tasks.task import Task
from xalign_ray.track.follower import replay
from xalign_ray.verbs.scores import evaluate, tune
from xalign_ray.work.artifacts import read_json
from xalign_ray.work.run_folder import RunFolder

CONFIG = {"model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2, "architectures": ["BertForMaskedLM"]}


class Counted:
    """A task that gives a better score each time, without opening the encoder."""

    needs_data, takes_prompt = False, False
    times = 0

    def evaluate(self, *_: object) -> list[Any]:
        self.times += 1
        if self.times == 3:
            raise ConfigError("The third time it fails.")
        return [score(value=self.times / 4)]


def test_an_evaluation_is_a_child_run_whose_newest_score_counts(
    uri: str, experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [f"track.mlflow={uri}", f"track.experiment={experiment}"]
    run = write_run(tmp_path / "runs" / "one", settings=settings)
    (run / "export").mkdir()
    (run / "export" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    replay(run, uri, experiment)
    task: Task | Any = Counted()
    monkeypatch.setitem(TASKS, "tatoeba", task)
    client = MlflowClient(uri)

    def children() -> list[Any]:
        known = client.get_experiment_by_name(experiment)
        assert known
        found = client.search_runs([known.experiment_id])
        (parent,) = [one for one in found if one.info.run_name == "one"]
        return [one for one in found if one.data.tags.get("mlflow.parentRunId") == parent.info.run_id]

    for value in (0.25, 0.5):
        evaluate(run, "tatoeba", None)
        (child,) = children()
        assert (child.info.run_name, child.info.status) == ("one: tatoeba", "FINISHED")
        assert child.data.metrics["tatoeba_accuracy"] == value
        assert child.data.params["task"] == "tatoeba"
    target = RunFolder(run).evaluation("tatoeba")
    manifest = read_json(target / "manifest.json", "")
    assert (manifest["kind"], list(manifest["files"])) == ("evaluation", ["scores.json"])
    assert "50.0" in (run / "export" / "README.md").read_text()

    with pytest.raises(ConfigError, match="The third time it fails"):
        evaluate(run, "tatoeba", None)
    (child,) = children()
    assert child.info.status == "FAILED"
    assert not (target / "manifest.json").exists(), "it has not finished"


def test_scores_do_not_replace_the_files_of_a_run_or_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "runs" / "one", settings=['track.mlflow="off"'])
    (run / "export").mkdir()
    (run / "export" / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (run / "export" / "manifest.json").write_text('{"files": {}}', encoding="utf-8")
    task: Task | Any = Counted()
    monkeypatch.setitem(TASKS, "tatoeba", task)
    for out in (run, run / "export"):
        with pytest.raises(ConfigError, match=r"is the folder of a run, a model or a study\. Name another\.$"):
            evaluate(run, "tatoeba", None, out)
        with pytest.raises(ConfigError, match=r"is the folder of a run, a model or a study\. Name another\.$"):
            tune(run, "pos", tmp_path, out)
    assert task.times == 0
