"""Belebele and XCOPA: files as they are published, rows that are refused, and inputs, loss and choice of the head."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from datasets import Dataset
from transformers import AutoModelForMultipleChoice

from xalign_ray.errors import DataError
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import MODEL, tune_task
from xalign_ray.models.open import open_encoder
from xalign_ray.models.open_folder import open_model
from xalign_ray.models.tokenized import Inputs
from xalign_ray.tasks.multiple_choice import Choices
from xalign_ray.tasks.registry import TUNED_TASKS

BELEBELE, XCOPA = (TUNED_TASKS[name] for name in ("belebele", "xcopa"))

WORDS = [
    "cats",
    "dogs",
    "see",
    "hear",
    "old",
    "rome",
    "what",
    "was",
    "the",
    "cause",
    "?",
    "happened",
    "as",
    "a",
    "result",
]
PASSAGE: dict[str, Any] = {
    "link": "https://x", "question_number": 2, "flores_passage": "Cats see dogs.", "question": "Who?",
    "mc_answer1": "cats", "mc_answer2": "dogs", "mc_answer3": "rome", "mc_answer4": "old", "correct_answer_num": "3",
    "dialect": "eng_Latn", "ds": "2023-05-03",
}  # fmt: skip
PREMISE: dict[str, Any] = {
    "premise": "Cats see.", "choice1": "dogs hear", "choice2": "cats", "question": "cause", "label": 1, "idx": 7,
    "changed": False,
}  # fmt: skip


def put(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_a_copy_of_belebele_from_the_hub_is_read(tmp_path: Path) -> None:
    path = put(tmp_path / "data" / "eng_Latn.jsonl", PASSAGE)
    configs = "configs:\n- config_name: eng_Latn\n  data_files:\n  - split: test\n    path: data/eng_Latn.jsonl\n"
    (tmp_path / "README.md").write_text(f"---\n{configs}---\n")
    assert BELEBELE.find([tmp_path]) == {"train": {}, "dev": {}, "test": {"en": path}}


def test_a_passage_and_its_answers(tmp_path: Path) -> None:
    behind = ("Who? cats", "Who? dogs", "Who? rome", "Who? old")
    expected = Choices("https://x#2", "Cats see dogs.", behind, 2, ("en", "en"))
    assert BELEBELE.read(put(tmp_path / "eng_Latn.jsonl", PASSAGE), "en") == [expected]
    assert expected.gold == "3"


def test_rows_of_the_published_training_set_have_other_names(tmp_path: Path) -> None:
    row = {"passage": "Cats.", "question": "Who?", "correct_answer_num": 1} | {
        f"answer{n}": str(n) for n in range(1, 5)
    }
    first, second = BELEBELE.read(put(tmp_path / "train.eng_Latn.jsonl", row, row), "en")
    assert (first.key, second.key, first.answers[3], first.gold) == ("0", "1", "Who? 4", "1")


def test_a_premise_and_its_causes(tmp_path: Path) -> None:
    effect = PREMISE | {"question": "effect", "label": 0, "idx": 8}
    first, second = XCOPA.read(put(tmp_path / "val.et.jsonl", PREMISE, effect), "et")
    behind = ("What was the cause? dogs hear", "What was the cause? cats")
    assert first == Choices("7", "Cats see.", behind, 1, ("et", "et"))
    assert second.answers[0] == "What happened as a result? dogs hear"
    assert (first.gold, second.gold) == ("2", "1")


def test_a_table_of_the_hub(tmp_path: Path) -> None:
    Dataset.from_list([PREMISE]).to_parquet(tmp_path / "test.parquet")
    assert XCOPA.read(tmp_path / "test.parquet", "et")[0].gold == "2"


@pytest.mark.parametrize(
    ("task", "row", "said"),
    [
        (
            BELEBELE,
            {**PASSAGE, "correct_answer_num": "5"},
            "row 1: correct_answer_num is none of 1, 2, 3, 4: '5'.",
        ),
        (BELEBELE, {**PASSAGE, "mc_answer2": " "}, "row 1: a text or an answer is empty."),
        (XCOPA, {**PREMISE, "question": "why"}, "row 1: question is none of cause, effect: 'why'."),
        (XCOPA, {**PREMISE, "label": 2}, "row 1: label is none of 0, 1, choice1, choice2: '2'."),
    ],
)
def test_a_row_that_cannot_be_scored_is_refused(tmp_path: Path, task: Any, row: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        task.read(path := put(tmp_path / "test.et.jsonl", row), "et")
    assert str(caught.value) == f"{path}, {said}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", " holds no example."),
        ("{\n", ", line 1 is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))."),
        ("[1]\n", ", line 1 is no object with the columns of the first row."),
        ('{"premise": "a", "question": "b"}\n', ": there is no column label, only premise, question."),
        (f"{json.dumps(PREMISE)}\n" * 2, ": two rows have the id 7."),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "test.et.jsonl"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        XCOPA.read(path, "et")
    assert str(caught.value) == f"{path}{said}"


def test_scores_and_loss_are_those_of_each_answer_read_alone(make_bert: Callable[..., Path]) -> None:
    model, tokenizer = open_model(open_encoder(make_bert(WORDS)), AutoModelForMultipleChoice)
    inputs = Inputs.of_model(tokenizer, model.eval(), "m")
    examples = [
        Choices("1", "cats see dogs", ("old", "the cause of rome"), 1, ("en", "en")),
        Choices("2", "dogs", ("cats hear the cats", "rome"), 0, ("en", "en")),
    ]
    batch = inputs.collate([one for (one,) in XCOPA.features(inputs, examples, ())])
    assert batch["input_ids"].shape[:2] == (2, 2)
    with torch.no_grad():
        found = model(**batch)
    by_hand = []
    for example in examples:
        for answer in example.answers:
            text, behind = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in (example.text, answer))
            ids = [tokenizer.cls_token_id, *text, tokenizer.sep_token_id, *behind, tokenizer.sep_token_id]
            types = [0] * (len(text) + 2) + [1] * (len(behind) + 1)
            with torch.no_grad():
                by_hand.append(model(torch.tensor([[ids]]), token_type_ids=torch.tensor([[types]])).logits[0, 0])
    scores = torch.stack(by_hand).view(2, 2)
    torch.testing.assert_close(found.logits, scores)
    torch.testing.assert_close(found.loss, F.cross_entropy(scores, torch.tensor([1, 0])))


def test_the_passage_is_cut_and_the_answers_stay(make_bert: Callable[..., Path]) -> None:
    model, tokenizer = open_model(open_encoder(make_bert(WORDS, positions=16)), AutoModelForMultipleChoice)
    inputs = Inputs.of_model(tokenizer, model, "m")
    example = Choices("1", " ".join(["cats"] * 40), ("the old rome", "dogs"), 1, ("en", "en"))
    ((row,),) = BELEBELE.features(inputs, [example], ())
    assert [len(ids) for ids in row["input_ids"]] == [16, 16]
    assert tokenizer.decode(row["input_ids"][0]).endswith("[SEP] the old rome [SEP]")


def test_the_head_learns_which_answer_is_right(tmp_path: Path, make_bert: Callable[..., Path]) -> None:
    for split, count in (("train", 24), ("dev", 8), ("test", 8)):
        rows = [
            PREMISE | {"choice1": ("dogs", "cats")[n % 2], "choice2": ("cats", "dogs")[n % 2], "label": n % 2, "idx": n}
            for n in range(count)
        ]
        put(tmp_path / "data" / f"{split}.en.jsonl", *rows)
    settings = FineTuning(learning_rate=1e-2, num_train_epochs=3, train_batch_size=4)
    out, encoder = tmp_path / "out", str(make_bert(WORDS))
    scores = tune_task(XCOPA, encoder, [tmp_path / "data"], out, settings=settings, keep_model=True)
    assert [(one.language, one.metric, one.value, one.chance) for one in scores] == [
        ("en", "xcopa_accuracy", 1.0, 0.5), ("all", "xcopa_accuracy", 1.0, 0.5)
    ]  # fmt: skip
    assert XCOPA.evaluate(str(out / MODEL), tmp_path / "data") == scores
    lines = [json.loads(line) for line in (out / "predictions" / "en.jsonl").read_text().splitlines()]
    assert lines[1] == {"key": "1", "prediction": "2", "gold": "2"}


def test_answers_are_switched_with_those_of_the_translation() -> None:
    english = Choices("1", "cats", ("see", "hear"), 0, ("en", "en"))
    other = Choices("1", "kassid", ("näevad", "kuulevad"), 0, ("et", "et"))
    assert XCOPA.switch(english, other) == [
        Choices("1", "cats", ("näevad", "kuulevad"), 0, ("en", "et")),
        Choices("1", "kassid", ("see", "hear"), 0, ("et", "en")),
    ]
    said = "answer 1 of example 1 is right in en, and answer 2 in et; the training files are not translations"
    with pytest.raises(DataError, match=said):
        XCOPA.switch(english, Choices("1", "kassid", ("a", "b"), 1, ("et", "et")))
