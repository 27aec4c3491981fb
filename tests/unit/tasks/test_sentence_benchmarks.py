"""FLORES and BUCC against slow references: margins a pair at a time, thresholds over all cuts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from xalign_ray.errors import DataError
from xalign_ray.models.nearest import best_threshold, mine_pairs, nearest_both_ways, unit_rows
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.tasks.sentence_benchmarks import (
    BUCC,
    FLORES,
    NTREX,
    MiningSet,
    measure_mined,
    right_by_margin,
)
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


def write_bucc(folder: Path, split: str, seed: int) -> MiningSet:
    """150 and 170 sentences, 40 of which translate each other, some twice."""
    rng = random.Random(seed)
    sides = {"de": sentences(150, seed), "en": sentences(170, seed + 1)}
    sides["en"][7], sides["de"][3] = sides["en"][11], sides["de"][90]
    gold = sorted(zip(rng.sample(range(150), 40), rng.sample(range(170), 40), strict=True))
    folder.mkdir(exist_ok=True)
    for code, lines in sides.items():
        rows = [f"{code}-{number:06}\t{line}" for number, line in enumerate(lines)]
        (folder / f"de-en.{split}.{code}").write_text("\n".join(rows) + "\n")
    (folder / f"de-en.{split}.gold").write_text("".join(f"de-{a:06}\ten-{b:06}\n" for a, b in gold))
    files = folder / f"de-en.{split}.de", folder / f"de-en.{split}.en"
    return MiningSet(("de", "en"), split, files, folder / f"de-en.{split}.gold")


def vectors_of(pairs: MiningSet, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of the distinct sentences, near each other in two of three gold pairs."""
    rng = np.random.default_rng(seed)
    texts = pairs.texts
    first, second = (rng.normal(size=(len(side), 16)).astype(np.float32) for side in texts)
    for number, (one, other) in enumerate(sorted(pairs.gold_places())):
        if number % 3 and one >= 0 and other >= 0:
            second[other] = first[one] + rng.normal(size=16) * 0.8
    return unit_rows(first), unit_rows(second)


def slow_bucc(
    pairs: MiningSet, first: np.ndarray, second: np.ndarray, threshold: float | None = None
) -> tuple[float, float]:
    """Threshold and F1 over pairs of ids, every cut tried."""
    ids: list[dict[str, list[str]]] = []
    for path in pairs.files:
        by_text: dict[str, list[str]] = {}
        for line in path.read_text().splitlines():
            name, text = line.split("\t")
            by_text.setdefault(text, []).append(name)
        ids.append(by_text)
    forth, back = slow_margins(first, second, 4), slow_margins(second, first, 4)
    candidates = [(forth[row].max(), row, int(forth[row].argmax())) for row in range(len(first))]
    candidates += [(back[row].max(), int(back[row].argmax()), row) for row in range(len(second))]
    texts, mined, seen = pairs.texts, {}, set()
    for score, one, other in sorted(candidates, reverse=True):
        if ("first", one) not in seen and ("second", other) not in seen:
            seen |= {("first", one), ("second", other)}
            names = ids[0][texts[0][one]], ids[1][texts[1][other]]
            if score > 0 and len(names[0]) == len(names[1]) == 1:
                mined[names[0][0], names[1][0]] = score
    gold = {tuple(line.split("\t")) for line in pairs.gold.read_text().splitlines()}

    def f1(cut: float) -> float:
        kept = {pair for pair, score in mined.items() if score >= cut}
        right = len(kept & gold)
        return 2 * right / (len(kept) + len(gold)) if right else 0.0

    if threshold is None:
        scores = sorted(mined.values(), reverse=True)
        cuts = [(one + other) / 2 for one, other in itertools.pairwise(scores)]
        threshold = max(cuts, key=f1)
    return threshold, f1(threshold)


def test_bucc_tries_every_cut_of_dev_and_keeps_it_for_test(tmp_path: Path) -> None:
    dev, test = write_bucc(tmp_path, "dev", 5), write_bucc(tmp_path, "test", 8)
    mined = [one.keep_single(mine_pairs(*nearest_both_ways(*vectors_of(one, 1)))) for one in (dev, test)]
    found = best_threshold(mined[0], dev.gold_places(), gold_is_whole=True)
    assert found is not None
    threshold, f1 = slow_bucc(dev, *vectors_of(dev, 1))
    assert (found.score, found.f1) == (pytest.approx(threshold, abs=1e-6), pytest.approx(f1, abs=1e-9))
    measured = measure_mined(mined[1], test.gold_places(), found.score)
    assert measured["bucc_f1"].value == pytest.approx(slow_bucc(test, *vectors_of(test, 1), threshold)[1], abs=1e-9)
    assert 0.3 < measured["bucc_f1"].value < 0.9
    assert any(place < 0 for pair in dev.gold_places() | test.gold_places() for place in pair)


def test_bucc_of_an_encoder(tmp_path: Path, make_bert: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder, data = make_bert(WORDS), tmp_path / "bucc"
    write_bucc(data, "sample", 5)
    (data / "de-en.sample.en").write_text((data / "de-en.sample.de").read_text().replace("de-", "en-"))
    (data / "de-en.sample.gold").write_text("".join(f"de-{number:06}\ten-{number:06}\n" for number in range(150)))
    scores = BUCC.evaluate(str(folder), data)
    found = by_metric(scores, "de")
    assert (found["bucc_precision"], found["bucc_recall"]) == (1, 148 / 150)  # two are one sentence
    assert {score.split for score in scores} == {"sample"}
    assert "has no gold pairs of a test set in de: dev is scored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("de-000001\tno\n", r"de-en.dev.gold, line 1: not two ids of"),
        ("de-000001 en-000002\n", r"de-en.dev.gold, line 1: not two ids of"),
        ("", r"de-en.dev.gold holds no pair"),
    ],
)
def test_gold_pairs_that_cannot_be_read(tmp_path: Path, gold: str, message: str) -> None:
    pairs = write_bucc(tmp_path, "dev", 5)
    pairs.gold.write_text(gold)
    with pytest.raises(DataError, match=message):
        pairs.gold_places()
    pairs.gold.unlink()
    with pytest.raises(DataError, match=r"holds no BUCC set with gold pairs; files are called de-en.dev.de"):
        BUCC.check_data(tmp_path)


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


@pytest.mark.parametrize(
    ("seed", "of_dev", "of_test"),
    [
        (0, 50.0, (52.87356321839081, 48.93617021276596, 57.49999999999999)),
        (1, 41.66666666666667, (55.26315789473685, 58.333333333333336, 52.5)),
        (3, 50.0, (53.333333333333336, 80.0, 40.0)),
    ],
)
def test_bucc_is_what_xtremes_scripts_print(
    tmp_path: Path, seed: int, of_dev: float, of_test: tuple[float, float, float]
) -> None:
    """On these vectors, by mine_bitext, bucc_eval and bucc_f1 of google-research/xtreme 838c13b with faiss."""
    dev, test = (write_bucc(tmp_path, split, 5 + 11 * seed + number) for number, split in enumerate(("dev", "test")))
    mined = [one.keep_single(mine_pairs(*nearest_both_ways(*vectors_of(one, seed)))) for one in (dev, test)]
    found = best_threshold(mined[0], dev.gold_places(), gold_is_whole=True)
    assert found is not None
    assert 100 * found.f1 == pytest.approx(of_dev, abs=1e-9)
    measured = measure_mined(mined[1], test.gold_places(), found.score)
    names = ("bucc_f1", "bucc_precision", "bucc_recall")
    assert [100 * measured[name].value for name in names] == pytest.approx(of_test, abs=1e-9)
