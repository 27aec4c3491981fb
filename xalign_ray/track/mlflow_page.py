"""The view that MLflow's page of runs opens with: columns of methods and scores, what differs, charts in our order.

MLflow keeps what users save under `Views` as tags of an experiment, and so do we. Left to itself its table has no
column of numbers, and its first charts are those of checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

PAGE = "runs?workflowType=machine_learning&compareRunsMode=CHART"
SHARE_KEY = "xalign"  # in the link: viewStateShareKey=xalign
SHARE_TAG = f"mlflow.sharedViewState.{SHARE_KEY}"
_SCORES = (  # means over languages
    *(
        "alignment_heldout",
        "tatoeba_accuracy",
        "xnli_accuracy",
        "pawsx_accuracy",
        "mldoc_accuracy",
        "sib_accuracy",
        "masakhanews_accuracy",
        "afrisenti_accuracy",
        "belebele_accuracy",
        "xcopa_accuracy",
        "ner_f1",
    ),
    *("pos_accuracy", "mlqa_f1"),
)
# Of these, MLflow shows those that a run has. Not the loss in training: methods sum different ones.
_COLUMNS = {
    "attributes": ("Duration",),
    "metrics": ("held_out/loss", "retrieval/accuracy", *_SCORES, "run/worker_hours"),
    "params": ("method", "scale", "seed"),
}
_DIFFERENT, _MEANS = "What differs", "Scores"
_REST, _SYSTEM = "Model metrics", "System metrics"  # MLflow's names: of other metrics without a slash, of `system/`
_SECTIONS = (
    _DIFFERENT,
    _MEANS,
    "retrieval",
    "held_out",
    "train",
    "fine_tune",
    "run",
    _REST,
    "data",
    "checkpoint",
    _SYSTEM,
)
_OF_STUDIES = (_MEANS, _DIFFERENT, "fine_tune", _REST, "run", _SYSTEM)
_COMPARED = "compare"
_OF_CONTINUED = (
    *("compare/retrieval_base", "compare/retrieval_yours", "compare/retrieval_difference"),
    *("compare/kept_retrieval_difference", "train/loss", "run/worker_hours"),
)
ExperimentKind = Literal["pretrainings", "study", "continued"]
_SECTIONS_OF: Mapping[ExperimentKind, Sequence[str]] = {
    "pretrainings": _SECTIONS,
    "study": _OF_STUDIES,
    "continued": (_COMPARED, "retrieval", "train", "held_out", "run", _REST, "data", "checkpoint", _SYSTEM),
}
_CELLS = (
    "params.encoder != ''"  # fine-tunings and evaluations; the study's own run, which has no scores, would fold them
)
_BY_NAME = "tags.`mlflow.runName`"
_FOLDED = (_REST, "data", "checkpoint", _SYSTEM)


def experiment_tags(milliseconds: int, kind: ExperimentKind = "pretrainings") -> dict[str, str]:
    """The tags that a new experiment gets; what a user saves afterwards stays.

    Args:
        milliseconds: the time under which the view is listed.
        kind: what it holds: pretrainings, a study's cells, which pretrain nothing, or runs of `xalign continue`.
    """
    name = "xalign: base against yours" if kind == "continued" else "xalign: methods and scores"
    shared = {"name": name, "createdAt": milliseconds, "updatedAt": milliseconds}
    state = json.dumps(_state(kind), separators=(",", ":"))
    return {SHARE_TAG: json.dumps(shared | {"state": state})}


def _state(kind: ExperimentKind) -> dict[str, Any]:
    """As MLflow 3.17 saves what a user has arranged; it adds a chart for each metric that has none."""
    of_study = kind == "study"
    # In the order of creation MLflow folds cells into the study's run; in any other it lists them.
    shown = {"searchFilter": _CELLS, "orderByKey": _BY_NAME, "orderByAsc": True} if of_study else {}
    folded = (*_FOLDED, "fine_tune") if of_study else _FOLDED  # a study may have evaluations alone
    columns = _COLUMNS | ({"metrics": _OF_CONTINUED} if kind == "continued" else {})
    return shown | {
        "selectedColumns": [f"{part}.`{name}`" for part, names in columns.items() for name in names],
        "isAccordionReordered": True,
        "hideEmptyCharts": True,
        "compareRunSections": [_section(name, name in folded) for name in _SECTIONS_OF[kind]],
        "compareRunCharts": _charts(kind),
    }


def _charts(kind: ExperimentKind) -> list[dict[str, Any]]:
    loss = _chart("LINE", "train", metricKey="train/loss", displayName="loss")
    if kind == "continued":
        bars = (key for key in _OF_CONTINUED if key.startswith(f"{_COMPARED}/"))
        return [*(_chart("BAR", _COMPARED, metricKey=key, displayName=key) for key in bars), loss]
    return [
        *([loss] if kind == "pretrainings" else []),
        # MLflow would draw a score as a line of one point, since it has the step of its encoder.
        *(_chart("BAR", _MEANS, metricKey=score, displayName=score) for score in _SCORES),
        _chart(
            *("DIFFERENCE", _DIFFERENT),
            chartName="What differs between the runs",
            compareGroups=["Parameters"],
            showChangeFromBaseline=False,
            showDifferencesOnly=True,
            baselineColumnUuid="",
        ),
    ]


def _section(name: str, folded: bool) -> dict[str, Any]:
    wide = {"columns": 1} if name == _DIFFERENT else {}
    # One that counts as rearranged keeps its first charts first.
    return {"uuid": name, "name": name, "display": not folded, "isReordered": name == "train", **wide}


def _chart(kind: str, section: str, **more: Any) -> dict[str, Any]:
    name = more.get("metricKey", section)
    return {"type": kind, "uuid": name, "metricSectionId": section, "isGenerated": False, "deleted": False} | more
