"""The package's studies of the papers: their tiny grids, cut to two encoders and a few steps, and their labels."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.parity.cells_here import pretrain_here, run_cells_here
from tests.ray.small import batches, write_world
from xalign_ray.config.load import apply_setting
from xalign_ray.config.schema import RunConfig
from xalign_ray.derive.corpus import write_demo_derived
from xalign_ray.errors import TrainingError
from xalign_ray.results.bundle import verify_bundle
from xalign_ray.results.printed import read_claims
from xalign_ray.results.report import report
from xalign_ray.studies.declared import load_study
from xalign_ray.studies.study import run_study
from xalign_ray.tasks.scores import SCORES, read_scores
from xalign_ray.track.events import EVENT_LOG

SHORT = {"num_train_epochs": 1, "max_train_samples": 16, "max_seq_length": 64}
SIZES = ("model.hidden_size=32", "model.intermediate_size=64")
VOCABULARY = "data.tokenizer.vocab_size=1000"
BASE = "mlm.yaml"  # tiny/mlm, cut
CONTINUED = f"model.init_from=run:{BASE}"
# Two arms of each with settings of their own, and metrics that claims about them ask for.
CUTS: Mapping[str, tuple[Mapping[str, list[str]], set[str]]] = {
    "align-mlm": (
        {"mlm": [], "align-mlm": []},
        {"pos_f1_seqeval1", "ner_f1_supervised", "xnli_accuracy", "alignment_all"},
    ),
    "dict-mlm": (
        {"mlm": [], "dict-mlm-50-unconditioned": [VOCABULARY]},
        {"pos_accuracy", "pawsx_accuracy", "tatoeba_accuracy_from_english"},
    ),
    "weam": ({"mlm": ["train.optimizer.learning_rate=1e-4"], "weam-tlm": [CONTINUED]}, {"mlqa_f1", "xnli_accuracy"}),
}  # the arms of `ppa` and `all-objectives` are of these kinds, and on the same tasks


def cut(name: str) -> list[str]:
    """Settings of a study that leave of its encoders these two arms, on one language, and little to fine-tune on."""
    (arms, metrics), tree = CUTS[name], load_study(f"{name}/tiny").model_dump(mode="json", exclude_defaults=True)
    encoders = [
        one
        | {"settings": [*one.get("settings", []), *arms[one["label"]]]}
        | {"recipe": BASE if one["recipe"] == "tiny/mlm" else one["recipe"]}
        for one in tree["encoders"]
        if one["label"] in arms and one.get("languages", ["en-x-inv"])[-1] == "en-x-inv"
    ]
    tunings = [
        _cut_tuning(one)
        for one in tree["finetunings"]
        if any(metric.startswith(one["task"]) for metric in metrics)
        and one.get("train_language", "en-x-inv") == "en-x-inv"
    ]
    if name != "align-mlm":
        tunings = [one | {"languages": ["en", "qgr"]} for one in tunings]
    return [f"encoders={json.dumps(encoders)}", f"finetunings={json.dumps(tunings)}", "seeds=[0]", "mlflow=off"]


def _cut_tuning(one: Mapping[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {**one, "settings": {**one["settings"], **SHORT}}
    for training in own.get("training", []):
        training |= {"languages": ["qgr"]} if "per_language" in training else {}
    return own


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Settings of every recipe; the world, and a folder of runs that the studies share."""
    folder = tmp_path_factory.mktemp("studies")
    write_world(folder / "runs", sentences=300, parallel=260)  # where `data.root: demo` looks for it
    write_demo_derived(folder / "runs" / "demo", folder / "derived")
    cuts = [*batches(rows=8, micro=8, steps=2, saved_every=2), *SIZES, "parallel.workers=1"]
    tree: dict[str, Any] = {"extends": "tiny/mlm"}
    for one in (*cuts, VOCABULARY):
        apply_setting(tree, {}, one, RunConfig)
    (folder / BASE).write_text(yaml.safe_dump(tree))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_cells_here(patch, [], [])
        pretrain_here(patch)
        yield cuts


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_of_each_tiny_study_runs_to_its_report(name: str, settings: list[str]) -> None:
    page = run_study(f"{name}/tiny", Path("runs"), [*settings, *cut(name)])
    study = json.loads((page.parents[1] / "study.json").read_text())
    assert {cell["state"] for cell in study["cells"]} == {"finished"}
    folders = {str(cell["folder"]): page.parents[1] / str(cell["folder"]) for cell in study["cells"]}
    assert [name for name, folder in folders.items() if not (folder / EVENT_LOG).is_file()] == []
    assert "Not finished yet" not in page.read_text(encoding="utf-8")
    assert (study["name"], study["scale"]) == (f"{name}-tiny", "tiny")
    arms, metrics = CUTS[name]
    found = {
        (cell["label"].removesuffix(" translated_per_language"), score.metric)
        for cell in study["cells"]
        if cell["kind"] != "pretraining"
        for score in read_scores(page.parents[1] / cell["folder"] / SCORES)
    }
    assert {(arm, metric) for arm in arms for metric in metrics} <= found
    bundle = Path(f"{name}.zip").absolute()
    report([str(page.parents[1])], bundle=bundle)
    verified = verify_bundle(bundle)
    assert verified.problems == []
    again, total = map(int, re.findall(r"\d+", verified.facts[0])[:2])
    kinds = {page.parents[1] / cell["folder"]: cell["kind"] for cell in study["cells"] if cell["kind"] != "pretraining"}
    scores = [(kind, score) for folder, kind in kinds.items() for score in read_scores(folder / SCORES)]
    kept = [one for kind, one in scores if kind == "finetuning" or one.metric.startswith(("tatoeba", "alignment"))]
    # Equal scores of two cells of a run, such as two kinds of training that are both at chance, count once.
    assert again == len({replace(one, encoder=one.run or one.encoder) for one in kept})
    assert again < total


@pytest.mark.parametrize(("name", "claim"), read_claims().items(), ids=list(read_claims()))
def test_every_arm_of_a_claim_is_a_label_of_its_papers_study(name: str, claim: Any) -> None:
    labels = load_study(f"{claim.paper}/paper").labels
    assert [arm for arm in claim.arms if arm not in labels] == [], name


def test_a_checkpoint_that_was_not_kept_fails_its_cell_alone(settings: list[str]) -> None:
    tree = {"name": "early", "encoders": [{"recipe": BASE, "label": "mlm"}], "evaluations": [{"task": "alignment"}]}
    Path("late.yaml").write_text(yaml.safe_dump(tree | {"mlflow": "off"}))
    early = {"recipe": BASE, "label": "early", "step": 1}
    Path("early.yaml").write_text(yaml.safe_dump(tree | {"encoders": [early, *tree["encoders"]], "mlflow": "off"}))
    run_study("late.yaml", Path("runs"), settings)  # finishes the run, with its last checkpoint
    with pytest.raises(TrainingError, match="step"):
        run_study("early.yaml", Path("runs"), [*settings, "checkpoint.save_steps=1", "checkpoint.save_total_limit=2"])
    study = json.loads(Path("runs/studies/early/study.json").read_text())
    found = {(cell["kind"], cell["label"]): (cell["state"], cell["reason"]) for cell in study["cells"]}
    assert found["evaluation", "mlm"] == ("finished", None)
    state, reason = found["evaluation", "early"]
    assert state == "failed"
    assert "step 1" in reason
