"""A model for each language as one row of the comparison: translate-train of PPA, and WEAM's one encoder a pair."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from tests.parity.cells_here import run_cells_here
from tests.unit.results.run_folders import score, write_run
from tests.unit.results.run_folders import write_study as write_finished
from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.results.compare import compare_runs, score_frame
from xalign_ray.results.sources import find_runs
from xalign_ray.studies.cells import Cell
from xalign_ray.studies.declared import load_study
from xalign_ray.studies.plan import check_task_files, plan_study
from xalign_ray.studies.study import run_study
from xalign_ray.tasks.scores import SCORES, read_scores

LABELS = ("entailment", "neutral", "contradiction")
LANGUAGES = ("en", "de", "sw")
WORDS = {code: [f"{code}{number}" for number in range(6)] for code in LANGUAGES}
SWITCHED = {"kind": "sentence_switch", "per_language": True}
METRIC = "xnli_accuracy"


def write_xnli(folder: Path) -> None:
    """Row-parallel training and test files in three languages; the label is in the first word."""
    folder.mkdir(parents=True)
    for split, count in (("train", 18), ("dev", 6), ("test", 9)):
        for code in LANGUAGES if split != "dev" else ("en",):
            rows = (
                f"{WORDS[code][number % 6]}\t{WORDS[code][number % 5]}\t{LABELS[number % 3]}" for number in range(count)
            )
            (folder / f"{split}-{code}.tsv").write_text("".join(f"{row}\n" for row in rows))


def write_study(folder: Path, encoders: list[dict[str, Any]], **changes: Any) -> str:
    write_xnli(folder / "data" / "xnli")
    settings = {"learning_rate": 1e-2, "num_train_epochs": 12, "train_batch_size": 6, "load_best_model_at_end": False}
    one = {"task": "xnli", "data": "xnli", "settings": settings} | changes
    tree = {"root": str(folder / "data"), "encoders": encoders, "finetunings": [one], "mlflow": "off"}
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree))
    return str(folder / "mine.yaml")


def trials(file: str) -> list[Cell]:
    plan = plan_study(load_study(file), Path(file).parent / "runs", str)
    check_task_files(plan)
    return plan.finetunings


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[Path, list[dict[str, Any]]]]:
    """`run(file)`: the study's folder and its cells."""

    def run_it(file: str) -> tuple[Path, list[dict[str, Any]]]:
        run_cells_here(monkeypatch, [], [])
        folder = run_study(file, tmp_path / "runs").parents[1]
        return folder, json.loads((folder / "study.json").read_text())["cells"]

    return run_it


def table_of(folder: Path) -> dict[str, dict[str, float]]:
    """Scores by label and language, and their mean as the report compares it, under `all`."""
    runs = find_runs([str(folder)])
    labels = list(dict.fromkeys(run.label for run in runs))
    frame = compare_runs(runs, score_frame(runs)).frame
    frame: pd.DataFrame = frame.loc[frame.metric == METRIC]
    table = {label: {} for label in labels}
    for by, group, label, mean in zip(frame.by, frame.group, frame.label, frame["mean"], strict=True):
        if by in ("task", "language"):
            table[label]["all" if by == "task" else group] = mean
    return table


def test_a_model_a_language_is_trained_on_it_and_tested_on_it_alone(tmp_path: Path):
    file = write_study(tmp_path, [{"model": "a"}], training=[{"kind": "english"}, SWITCHED])
    zero_shot, *others = trials(file)
    assert (zero_shot.training.name, zero_shot.languages, zero_shot.search["target"]) == ("english", None, "")
    assert [(one.training.languages, one.languages, one.search["target"]) for one in others] == [
        (("de",), ("de",), "de"), (("sw",), ("sw",), "sw")
    ]  # fmt: skip
    assert {one.label for one in others} == {"a sentence_switch_per_language"}
    assert (
        len({str(one.search) for one in others}) == len({one.name for one in others}) == 2
    )  # each chooses its own setting
    assert "xnli in de, lr" in str(others[0])


def test_the_languages_of_models_are_those_that_are_named_and_tested(tmp_path: Path):
    file = write_study(tmp_path, [{"model": "a"}], training=[SWITCHED], languages=["en", "sw"])
    assert [one.languages for one in trials(file)] == [("sw",)]
    for languages, said in ((["de", "fr"], "xnli: no model for fr: it needs a training and a test file"), ([], "")):
        changed = [SWITCHED | {"languages": languages}]
        again = tmp_path / str(len(languages))
        again.mkdir()
        file = write_study(again, [{"model": "a"}], training=changed)
        if said:
            with pytest.raises(DataError, match=said):
                trials(file)
        else:
            assert len(trials(file)) == 2


def test_translate_train_a_language_is_one_row_with_the_english_of_zero_shot(tmp_path: Path, run: Callable[..., Any]):
    encoder = make_bert_in(tmp_path / "encoder", [word for words in WORDS.values() for word in words])
    kinds = [{"kind": "english"}, {"kind": "translated", "per_language": True}, {"kind": "translate_train"}]
    file = write_study(tmp_path, [{"model": str(encoder), "label": "a"}], training=kinds)
    folder, cells = run(file)
    own = {
        (cell["label"], score.language): score.value
        for cell in cells
        for score in read_scores(folder / cell["folder"] / SCORES)
    }
    assert len(cells) == 1 + 2 + 1
    table = table_of(folder)
    label = "a translated_per_language"
    assert list(table) == ["a", label, "a translate_train"]
    assert {language: table["a"][language] for language in LANGUAGES} == {one: own["a", one] for one in LANGUAGES}
    row = {"en": own["a", "en"], "de": own[label, "de"], "sw": own[label, "sw"]}
    assert table[label] == pytest.approx(row | {"all": sum(row.values()) / 3})
    assert (label, "en") not in own
    assert table["a translate_train"]["en"] == own["a translate_train", "en"]
    assert (own["a", "en"], own[label, "de"]) == (1.0, 1.0)
    assert own["a", "de"] < 0.7  # words of English say nothing of German ones here


def test_encoders_of_a_pair_each_are_one_row_whose_english_is_their_mean(tmp_path: Path, run: Callable[..., Any]):
    pieces = [word for words in WORDS.values() for word in words]
    pairs = {
        code: make_bert_in(tmp_path / code, pieces, vectors={WORDS[code][0]: [0.5, place]})
        for place, code in enumerate(("de", "sw"))
    }
    encoders = [{"model": str(folder), "label": "weam", "languages": ["en", code]} for code, folder in pairs.items()]
    file = write_study(tmp_path, encoders)
    assert load_study(file).labels == ["weam"]
    assert [one.languages for one in trials(file)] == [("en", "de"), ("en", "sw")]
    folder, cells = run(file)
    scores = [
        {score.language: score.value for score in read_scores(folder / cell["folder"] / SCORES)} for cell in cells
    ]
    row = {"en": (scores[0]["en"] + scores[1]["en"]) / 2, "de": scores[0]["de"], "sw": scores[1]["sw"]}
    assert table_of(folder) == {"weam": pytest.approx(row | {"all": sum(row.values()) / 3})}
    assert "fr" not in scores[0]


def test_a_label_is_shared_by_encoders_that_say_their_languages_only(tmp_path: Path):
    encoders = [{"model": "a", "label": "weam", "languages": ["en", "de"]}, {"model": "b", "label": "weam"}]
    with pytest.raises(ConfigError, match="encoders has weam twice; remove one, or give it another name"):
        load_study(write_study(tmp_path, encoders))


def test_recipes_of_a_pair_each_are_one_row_with_as_many_seeds_as_each_has(tmp_path: Path):
    cells: list[dict[str, Any]] = []
    for code, english, step in (("de", 0.8, 4), ("sw", 0.6, 6)):
        for seed in (0, 1):
            run = write_run(tmp_path / f"tiny-weam-{code}-{seed}", "tiny/weam", seed=seed)
            values = {"en": english + 0.1 * seed, code: english / 2}
            scores = [
                score(METRIC, value, run=run.name, task="xnli", language=language, layer=None, pooling=None, step=step)
                for language, value in values.items()
            ]
            cells.append({"kind": "pretraining", "label": "weam", "name": run.name, "folder": str(run)})
            cells.append({"kind": "finetuning", "label": "weam", "training": "english", "scores": scores})
    runs = find_runs([str(write_finished(tmp_path / "study", cells))])
    frame = compare_runs(runs, score_frame(runs)).frame
    found = {group: (mean, seeds) for group, mean, seeds in zip(frame.group, frame["mean"], frame.seeds, strict=True)}
    assert found["en"] == (pytest.approx((0.8 + 0.6 + 0.1) / 2), 2)
    assert (found["de"], found["sw"]) == ((pytest.approx(0.4), 2), (pytest.approx(0.3), 2))
