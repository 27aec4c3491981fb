"""Refusals before a study or a tuning starts: languages, contents of files, options; and the names of cells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.studies.test_study_files import POS, SENTENCE, planned
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.studies.plan import check_contents, check_task_files
from xalign_ray.verbs.scores import tune


def test_a_language_without_an_embedding_is_refused_by_names_alone(tmp_path: Path):
    """By the config.json of a model, and by the recipe of one that is yet to be pretrained."""
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text(json.dumps({"xalign_languages": ["en", "de"]}))
    (tmp_path / "tatoeba").mkdir()
    for end in ("fra", "eng"):
        (tmp_path / "tatoeba" / f"tatoeba.fra-eng.{end}").write_text("one\n")
    model, recipe = {"model": str(tmp_path / "encoder")}, {"recipe": "tiny/xlm"}
    for encoder, known in ((model, "en, de"), (recipe, "en, qgr, qdv, qge, qhy")):
        said = rf"{encoder.get('model') or encoder['recipe']} has language embeddings for {known}, none for fr; name"
        plan = planned(tmp_path, encoders=[encoder], evaluations=[{"task": "tatoeba", "data": "tatoeba"}])
        with pytest.raises(DataError, match=said):
            check_task_files(plan)
        (tmp_path / "pos" / "fr.test.conllu").write_text(SENTENCE)
        with pytest.raises(DataError, match=said):
            check_task_files(planned(tmp_path, encoders=[encoder]))
        assert check_task_files(planned(tmp_path, encoders=[encoder], finetunings=[POS | {"languages": ["en"]}])) == []
        (tmp_path / "pos" / "fr.test.conllu").unlink()


@pytest.mark.parametrize(
    ("most", "said"),
    [
        (None, "; 2 of those in de translate none of them and are left out."),
        (2, "."),
    ],
)
def test_training_examples_without_their_other_half_are_counted(tmp_path: Path, most: int | None, said: str):
    rows = {"eng_Latn": "123", "deu_Latn": "1345", "fra_Latn": "123"}
    for code, keys in rows.items():
        (tmp_path / "sib" / code).mkdir(parents=True)
        table = "index_id\tcategory\ttext\n" + "".join(f"{key}\ttravel\tText.\n" for key in keys)
        for split in ("train", "dev", "test"):
            (tmp_path / "sib" / code / f"{split}.tsv").write_text(table)
    one = {"task": "sib", "data": "sib", "training": [{"kind": "translate_train"}]}
    plan = planned(tmp_path, finetunings=[one | {"settings": {"max_train_samples": most}}])
    assert check_contents(plan) == [f"sib: 1 of the examples in en have no translation in de{said}"]


def test_what_cannot_be_scored_is_refused_before_anything_is_trained(tmp_path: Path):
    """A kind of name that is not in the training file, a file without names, and questions without an answer."""
    rows = {"train": "Bonn\tB-LOC\nis\tO\n", "dev": "Bonn\tB-LOC\n", "test": "Bonn\tB-LOC\n"}
    (tmp_path / "ner").mkdir()
    (tmp_path / "mlqa").mkdir()
    for split, text in rows.items():
        (tmp_path / "ner" / f"{split}-en.tsv").write_text(text)
    asked = {"train-v1.1.json": ["Bonn", ""], "dev-v1.1.json": ["Bonn"], "test-context-en-question-en.json": ["Bonn"]}
    for name, answers in asked.items():
        write_questions(tmp_path / "mlqa" / name, answers)
    plan = planned(tmp_path, finetunings=[{"task": task, "data": task} for task in ("ner", "mlqa")])
    assert check_contents(plan) == ["mlqa: 1 of 2 training examples have no answer and are left out."]
    for name, text, said in (
        ("dev-en.tsv", "is\tO\n", "dev-en.tsv has no name at all"),
        ("test-de.tsv", "monday\tB-DATE\n", "test-de.tsv has the tag B-DATE, which the head does not know"),
        ("test-de.tsv", "monday\tB-LOC\nsun\n", "test-de.tsv, line 2: not a word, a tab and its tag"),
    ):
        (tmp_path / "ner" / name).write_text(text)
        with pytest.raises(DataError, match=said):
            check_contents(planned(tmp_path, finetunings=[{"task": "ner", "data": "ner"}]))
        (tmp_path / "ner" / name).write_text(rows["dev"])
    for name in ("dev-v1.1.json", "test-context-en-question-en.json"):
        write_questions(tmp_path / "mlqa" / name, ["Bonn", ""])
        with pytest.raises(DataError, match=rf"{name}: 1 of 2 questions have no answer, such as 1"):
            check_contents(plan)
        write_questions(tmp_path / "mlqa" / name, ["Bonn"])


def write_questions(path: Path, answers: list[str]) -> None:
    """A file of SQuAD's form; an empty answer is a question without one, as SQuAD 2.0 has them."""
    asked = [
        {"id": str(number), "question": "where?", "answers": [{"text": text, "answer_start": 0}] if text else []}
        for number, text in enumerate(answers)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "Bonn is", "qas": asked}]}]}))


def test_no_two_cells_of_a_plan_have_one_name(tmp_path: Path):
    pairs = [
        {"recipe": "tiny/mlm", "label": "mlm", "languages": ["en", code], "settings": [f"data.max_seq_length={length}"]}
        for code, length in (("qgr", 64), ("qge", 32))
    ]
    searched = POS | {"settings": {"weight_decay": [0.0, 0.1], "learning_rate": [1e-3, 1e-4]}}
    plan = planned(tmp_path, encoders=pairs, finetunings=[searched])
    names = [str(job) for job in plan.cells]
    assert len(set(names)) == len(names) == 2 + 2 * 4
    assert names[0] == "mlm [qgr] (seed 0)"
    assert "mlm [qge] (seed 0): pos, lr 0.0001, 10 epochs, batch 32, weight_decay 0.1, seed 0" in names


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seed": "x"}, "--set: 'seed' is 'x'; it must be a whole number"),
        ({"seed": None}, "--set: 'seed' is None; it must be a whole number"),
        ({"num_train_epochs": "abc"}, "--set: 'num_train_epochs.0' is 'abc'; it must be a whole number"),
        ({"learning_rat": 1}, "--set: unknown key 'learning_rat'. Did you mean 'learning_rate'?"),
        ({"": 3}, "--set: unknown key ''."),
        ({"from": "nope"}, "--set: settings are from 'nope', which is no paper."),
        ({"metric_for_best_model": "x"}, "--set: metric_for_best_model 'x' is none of pos."),
    ],
)
def test_options_of_tune_are_refused_under_their_own_names(tmp_path: Path, options: dict[str, Any], said: str):
    """No key of the study that `tune` makes of them, which nobody wrote, is named."""
    with pytest.raises(ConfigError) as told:
        tune("no-model", "pos", [tmp_path], tmp_path / "out", options)
    assert str(told.value).startswith(said)
    assert "finetunings" not in str(told.value)
