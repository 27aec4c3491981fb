"""Masked words beside their translation: which are asked, in what layout, and against predictions one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForMaskedLM, AutoTokenizer

from xalign_ray.errors import DataError
from xalign_ray.tasks.cloze import CLOZE, Predictor, Question, ask
from xalign_ray.vocabulary.tokenizer import put_frame

WORDS = ["one", "two", "three", "eins", "zwei", "drei", ".", "##s", "##i"]
RESET = {"positions": "reset", "segments": False}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    (tmp_path / "tatoeba.de-en.de").write_text("eins zwei .\nzwei drei\ndreis eins\n. .\n")
    (tmp_path / "tatoeba.de-en.en").write_text("one two .\ntwo three\nthrees one\n. .\n")
    return tmp_path


def lines(pairs: Path, side: str) -> list[str]:
    return (pairs / f"tatoeba.de-en.{side}").read_text().splitlines()


def questions(folder: Path, pairs: Path) -> list[Question]:
    return list(ask(Predictor.open(str(folder), "cpu").encoder.inputs, lines(pairs, "de"), lines(pairs, "en"), "de"))


def test_one_word_of_letters_is_asked_of_each_sentence_and_it_is_whole(make_bert: Callable[..., Path], pairs: Path):
    folder = make_bert(WORDS)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked = questions(folder, pairs)
    words = [tokenizer.decode(question.answer) for question in asked]
    assert len(asked) == 3, "the sentence of full stops has no word"
    assert set(words) <= {"eins", "zwei", "drei", "dreis"}
    assert words == [tokenizer.decode(question.answer) for question in questions(folder, pairs)]


@pytest.mark.parametrize("with_translation", [True, False])
def test_an_answer_is_the_likeliest_piece_of_a_question_asked_alone(
    make_bert: Callable[..., Path], pairs: Path, with_translation: bool
):
    folder = make_bert(WORDS)
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    asked = questions(folder, pairs)
    expected = []
    for question in asked:
        masked = list(question.other)
        masked[question.begin : question.end] = [tokenizer.mask_token_id] * (question.end - question.begin)
        first = [tokenizer.cls_token_id, *question.english, tokenizer.sep_token_id] if with_translation else []
        ids = [*(first or [tokenizer.cls_token_id]), *masked, tokenizer.sep_token_id]
        types = [int(with_translation and at >= len(first)) for at in range(len(ids))]
        logits = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types])).logits[0]
        at = (len(first) or 1) + question.begin
        expected.append(tuple(logits[at : at + len(question.answer)].argmax(dim=-1).tolist()))
    assert Predictor.open(str(folder), "cpu").answers(asked, with_translation) == expected


def test_the_layout_is_the_one_of_training(make_bert: Callable[..., Path]):
    folder = make_bert(WORDS, languages=["en", "de"], xalign_pairs=RESET)
    predictor = Predictor.open(str(folder), "cpu")
    question = Question(english=[5, 6], other=[8, 9, 10], begin=1, end=2, language="de")
    assert predictor._row(question, with_translation=True) == {
        "input_ids": [2, 5, 6, 3, 8, 4, 10, 3],
        "position_ids": [0, 1, 2, 3, 1, 2, 3, 4],
        "token_type_ids": [0, 0, 0, 0, 2, 2, 2, 2],
        "at": 5,
    }
    alone = predictor._row(question, with_translation=False)
    assert (alone["input_ids"], alone["token_type_ids"]) == ([2, 8, 4, 10, 3], [2] * 5)
    assert (alone["position_ids"], alone["at"]) == ([0, 1, 2, 3, 4], 2)


def test_a_pair_has_the_separators_that_the_tokenizer_puts_between_two_texts(make_bert: Callable[..., Path]):
    folder = make_bert(WORDS, languages=["en", "de"], xalign_pairs=RESET)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    put_frame(tokenizer, "[CLS]", "[SEP]", between=2)  # as an export of masked_pairs with double_separator has it
    tokenizer.save(str(folder / "tokenizer.json"))
    predictor = Predictor.open(str(folder), "cpu")
    question = Question(english=[5, 6], other=[8, 9, 10], begin=1, end=2, language="de")
    assert predictor._row(question, with_translation=True) == {
        "input_ids": [2, 5, 6, 3, 3, 8, 4, 10, 3],
        "position_ids": [0, 1, 2, 3, 0, 1, 2, 3, 4],
        "token_type_ids": [0, 0, 0, 0, 2, 2, 2, 2, 2],
        "at": 6,
    }
    assert predictor._row(question, with_translation=False)["input_ids"] == [2, 8, 4, 10, 3]


def test_both_accuracies_stand_beside_the_share_of_the_commonest_answer(make_bert: Callable[..., Path], pairs: Path):
    scores = CLOZE.evaluate(str(make_bert(WORDS)), pairs)
    assert [(s.language, s.metric, s.n) for s in scores] == [
        ("de", "cloze_accuracy", 3),
        ("de", "cloze_accuracy_alone", 3),
        ("all", "cloze_accuracy", 3),
        ("all", "cloze_accuracy_alone", 3),
    ]
    asked = [question.answer for question in questions(make_bert(WORDS, name="same"), pairs)]
    assert scores[0].chance == pytest.approx(max(map(asked.count, asked)) / 3)


def test_sentences_without_words_are_named(make_bert: Callable[..., Path], tmp_path: Path):
    for side in ("de", "en"):
        (tmp_path / f"tatoeba.de-en.{side}").write_text(". .\n")
    with pytest.raises(DataError, match=r"tatoeba.de-en.de has no sentence of which a word can be masked"):
        CLOZE.evaluate(str(make_bert(WORDS)), tmp_path)
