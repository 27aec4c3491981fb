"""FLORES and NTREX against a slow reference, margins a pair at a time; tables of commas."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from xalign_ray.errors import DataError
from xalign_ray.models.nearest import unit_rows
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.tasks.sentence_benchmarks import FLORES, NTREX, right_by_margin
from xalign_ray.tasks.task_files import read_table
from xalign_ray.verbs.scores import evaluate

WORDS = [f"{letter}{vowel}" for letter in "bcdfghjklm" for vowel in "aeiou"]


def sentences(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.sample(WORDS, rng.randrange(2, 8))) for _ in range(count)]


@torch.no_grad()
def slow_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    """Mean of the last layer's tokens, a sentence at a time, of length 1."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    pooled = [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0) for text in texts]
    return torch.nn.functional.normalize(torch.stack(pooled), dim=-1).double().numpy()


def slow_margins(first: np.ndarray, second: np.ndarray, k: int) -> np.ndarray:
    """The ratio margin of every pair, `[N, M]`; those that are no neighbour of the first are -inf."""
    cosines = first @ second.T
    means = [np.sort(rows, axis=1)[:, -k:].mean(axis=1) for rows in (cosines, cosines.T)]
    margins = np.full_like(cosines, -np.inf)
    for row in range(len(first)):
        for column in np.argsort(-cosines[row], kind="stable")[:k]:
            margins[row, column] = cosines[row, column] / ((means[0][row] + means[1][column]) / 2)
    return margins


def by_metric(scores: list[Score], language: str) -> dict[str, float]:
    return {score.metric: score.value for score in scores if score.language == language}


def write_flores(folder: Path, split: str = "devtest", **sides: list[str]) -> Path:
    (folder / split).mkdir(parents=True)
    for code, lines in sides.items():
        (folder / split / f"{code}.{split}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_flores_is_the_margin_of_every_pair(tmp_path: Path, make_bert: Callable[..., Path]) -> None:
    folder, rng = make_bert(WORDS), random.Random(3)
    english = sentences(60, 1)
    german = [" ".join([*rng.sample(line.split(), len(line.split())), *rng.sample(WORDS, 2)]) for line in english]
    data = write_flores(tmp_path / "flores", eng_Latn=english, deu_Latn=german, swh_Latn=english)
    evaluate(str(folder), "flores", data, tmp_path / "out")
    scores = read_scores(tmp_path / "out" / "scores.json")
    left, right = slow_vectors(folder, german), slow_vectors(folder, english)
    to_english = float((slow_margins(left, right, 4).argmax(axis=1) == np.arange(60)).mean())
    from_english = float((slow_margins(right, left, 4).argmax(axis=1) == np.arange(60)).mean())
    found = by_metric(scores, "de")
    assert found["flores_accuracy_to_english"] == pytest.approx(to_english)
    assert found["flores_accuracy_from_english"] == pytest.approx(from_english)
    assert found["flores_accuracy"] == pytest.approx((to_english + from_english) / 2)
    assert 0.05 < to_english < 1 and to_english != from_english  # noqa: PT018
    assert by_metric(scores, "sw")["flores_accuracy"] == 1
    assert {(score.split, score.layer, score.language) for score in scores} == {
        ("devtest", "last", language) for language in ("de", "sw", "all")
    }


def test_ntrex_is_scored_by_margin_and_among_synthetic_negatives(
    tmp_path: Path, make_bert: Callable[..., Path]
) -> None:
    """Of negatives that are copies of the German sides most are found in place of the English ones."""
    folder, rng = make_bert(WORDS), random.Random(5)
    english = sentences(40, 7)
    german = [" ".join([*rng.sample(line.split(), len(line.split())), rng.choice(WORDS)]) for line in english]
    negatives = [*german[:25], *sentences(60, 8)]
    for name, lines in (("src.eng", english), ("ref.deu", german), ("ref.spa-2", german), ("src_augmented.eng", [])):
        path = tmp_path / f"newstest2019-{name}.txt"
        path.write_text("\n".join(lines or negatives) + "\n", encoding="utf-8")
    found = by_metric(NTREX.evaluate(str(folder), tmp_path), "de")
    left, right = slow_vectors(folder, german), slow_vectors(folder, [*english, *negatives])
    plain = slow_margins(left, right[:40], 4).argmax(axis=1)
    hard = slow_margins(left, right, 4).argmax(axis=1)
    assert found["ntrex_accuracy_to_english"] == pytest.approx((plain == np.arange(40)).mean())
    texts = [*english, *negatives]
    assert found["ntrex_accuracy_to_english_hard"] == pytest.approx(
        np.mean([texts[place] == text for place, text in zip(hard, english, strict=True)])
    )
    assert found["ntrex_accuracy_to_english_hard"] < found["ntrex_accuracy_to_english"] - 0.3


def test_margin_takes_from_hubs_what_cosine_gives_them() -> None:
    rng = np.random.default_rng(0)
    first, second = (unit_rows(rng.normal(size=(200, 6)).astype(np.float32)) for _ in range(2))
    second = unit_rows(second + first)
    numbers = np.arange(200)
    forth, back = right_by_margin(first, second, numbers, numbers)
    assert forth == pytest.approx((slow_margins(first, second, 4).argmax(axis=1) == numbers).mean())
    assert back == pytest.approx((slow_margins(second, first, 4).argmax(axis=1) == numbers).mean())
    assert forth > ((first @ second.T).argmax(axis=1) == numbers).mean()


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        ({}, r"holds no FLORES files; they are called devtest/deu_Latn.devtest"),
        ({"deu_Latn": ["a"]}, r"holds no devtest file of English"),
        ({"eng_Latn": ["a"]}, r"holds FLORES in English alone"),
        ({"eng_Latn": ["a", "b"], "deu": ["a"], "fra": ["a", "b"]}, r"deu.devtest has 1 sentences, and others 2"),
        ({"eng_Latn": ["a", "", "c"], "deu_Latn": ["a", "b", "c"]}, r"eng_Latn.devtest, line 2 is empty"),
        ({"eng_Latn": ["a"], "deu_Latn": ["a"], "deu": ["a"]}, r"are both devtest of de; keep one"),
    ],
)  # fmt: skip
def test_files_of_flores_that_cannot_be_scored(tmp_path: Path, sides: dict[str, list[str]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        FLORES.check_data(write_flores(tmp_path, **sides))


def test_files_of_flores_101_whose_codes_are_other_words_are_scored(tmp_path: Path) -> None:
    data = write_flores(tmp_path, eng=["a"], cat=["b"], min=["c"], bak=["d"])
    assert {*FLORES.check_data(data)} == {"en", "ca", "min", "ba"}


@pytest.mark.parametrize(
    "text",
    [
        'sentence1,sentence2,similarity_score\n"a\nx",b,3.0\nc,"d, ""e""",4\n',
        'Score,year,Sentence1,Sentence2\n3.0,1,"a\nx",b\n4,2,c,"d, ""e"""\n',
        '"a\nx",b,3.0\nc,"d, ""e""",4\n\n',
    ],
)
def test_columns_of_a_csv_by_name_or_place(tmp_path: Path, text: str) -> None:
    path, columns = tmp_path / "pairs.csv", ("sentence1", "sentence2", "score|similarity_score")
    path.write_text(text)
    assert [[*row.values()] for _, row in read_table(path, columns)] in (
        [["a\nx", "b", "3.0"], ["c", 'd, "e"', "4"]],
        [["a\nx", "b", "3.0"], ["c", 'd, "e"', "4.0"]],
    )
    path.write_text('a,b,1\n"c,d,2\n"e",f,3\n')
    with pytest.raises(DataError, match=r"pairs.csv, line 2: a quoted field is malformed"):
        list(read_table(path, columns))
