"""The view of an experiment's page, as MLflow 3.17 keeps it; what it shows was looked at in a browser."""

from __future__ import annotations

import json
from typing import Any

from xalign_ray.track.mlflow_page import SHARE_TAG, ExperimentKind, experiment_tags


def view(of_study: bool = False, kind: ExperimentKind | None = None) -> dict[str, Any]:
    return json.loads(
        json.loads(experiment_tags(1, kind or ("study" if of_study else "pretrainings"))[SHARE_TAG])["state"]
    )


def sections(of_study: bool) -> dict[str, bool]:
    return {section["name"]: section["display"] for section in view(of_study)["compareRunSections"]}


def test_view_of_pretrainings_shows_losses_and_every_run() -> None:
    assert "searchFilter" not in view(of_study=False)
    assert {name for name, is_open in sections(of_study=False).items() if is_open} == {
        *("What differs", "Scores", "retrieval", "held_out", "train", "fine_tune", "run"),
    }
    lines = [one for one in view(of_study=False)["compareRunCharts"] if one["type"] == "LINE"]
    assert [one["metricKey"] for one in lines] == ["train/loss"]


def test_view_of_a_study_lists_its_cells_and_begins_with_scores() -> None:
    # In the order of creation MLflow would fold all cells into the study's run, which has no scores.
    state = view(of_study=True)
    assert (state["searchFilter"], state["orderByKey"]) == ("params.encoder != ''", "tags.`mlflow.runName`")
    assert next(iter(sections(of_study=True))) == "Scores"
    assert {name for name, is_open in sections(of_study=True).items() if is_open} == {"Scores", "What differs", "run"}
    shown = {one.get("metricKey") for one in state["compareRunCharts"] if one["metricSectionId"] == "Scores"}
    assert {"alignment_heldout", "tatoeba_accuracy", "pos_accuracy"} <= shown
    assert {one["metricSectionId"] for one in state["compareRunCharts"]} <= sections(of_study=True).keys()


def test_view_of_continued_runs_begins_with_base_against_yours() -> None:
    state = view(kind="continued")
    assert "metrics.`compare/retrieval_base`" in state["selectedColumns"]
    assert state["compareRunSections"][0]["name"] == "compare"
    assert state["compareRunCharts"][0]["metricKey"] == "compare/retrieval_base"
    names = {section["name"] for section in state["compareRunSections"]}
    assert {one["metricSectionId"] for one in state["compareRunCharts"]} <= names
