"""The task retrieval: any pairs of languages, both directions, the encoder's own pooling and prompt, duplicates."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from xalign_ray.config.language_codes import name_of_pair
from xalign_ray.errors import ConfigError
from xalign_ray.models.nearest import are_pairs, unit_rows
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors
from xalign_ray.tasks.retrieval import RETRIEVAL, TranslatedSentences, read_translations
from xalign_ray.tasks.scores import Score, read_scores
from xalign_ray.verbs.scores import evaluate

WORDS = ["one", "two", "three", "eins", "zwei", "drei", "query", ":"]
GERMAN = [f"{first} {second}" for first in WORDS[3:6] for second in WORDS[3:6]]
ENGLISH = [f"{first} {second} {first}" for second in WORDS[:3] for first in WORDS[:3]]


def write_csv(path: Path, columns: tuple[str, str], rows: list[tuple[str, str]]) -> Path:
    path.write_text("\n".join(",".join(row) for row in [columns, *rows]) + "\n", encoding="utf-8")
    return path


def write_tatoeba(folder: Path) -> Path:
    folder.mkdir()
    for end, lines in (("de", GERMAN), ("en", ENGLISH)):
        (folder / f"tatoeba.de-en.{end}").write_text("\n".join(lines), encoding="utf-8")
    return folder


@torch.no_grad()
def slow(folder: Path, prompt: str, pooling: str) -> dict[str, float]:
    """The headlines, a sentence at a time."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    vectors = []
    for texts in (GERMAN, ENGLISH):
        states = [model(**tokenizer(prompt + text, return_tensors="pt")).last_hidden_state[0] for text in texts]
        pooled = torch.stack([one[0] if pooling == "cls" else one.mean(dim=0) for one in states])
        vectors.append(torch.nn.functional.normalize(pooled, dim=-1))
    similar, own = vectors[0] @ vectors[1].T, torch.arange(len(GERMAN))
    to_second, to_first = (float((one.argmax(dim=1) == own).float().mean()) for one in (similar, similar.T))
    return {
        "retrieval_accuracy": (to_second + to_first) / 2,
        "retrieval_accuracy_to_second": to_second,
        "retrieval_accuracy_to_first": to_first,
    }


def headlines(scores: list[Score]) -> dict[str, float]:
    return {score.metric: score.value for score in scores if score.language == "de" and score.layer == "last"}


def write_sentence_files(folder: Path, pooling: str, prompts: dict[str, str], default: str | None = None) -> None:
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    config = {"prompts": prompts, "default_prompt_name": default}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("prompt", ["", "query: "])
def test_headline_is_what_a_user_gets(
    tmp_path: Path, make_bert: Callable[..., Path], pooling: str, prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_bert(WORDS)
    name = {"cls": "cls_token", "mean": "mean_tokens"}[pooling]
    write_sentence_files(folder, name, {"query": prompt, "document": "one "})
    scores = RETRIEVAL.evaluate(str(folder), write_tatoeba(tmp_path / "data"))
    found = headlines(scores)
    expected = slow(folder, prompt, pooling)
    assert {metric: found[metric] for metric in expected} == pytest.approx(expected)
    assert {score.layer for score in scores} == {"last", 0, 1, 2}
    assert {score.pooling for score in scores} == {pooling}
    said = capsys.readouterr().err
    shown = {"cls": "first token", "mean": "mean"}[pooling]
    behind = "behind 'query: '" if prompt else "no prompt"
    assert f"Sentence vectors: {shown} of the last layer, {behind} (by its Sentence Transformers files)." in said


def test_prompt_of_the_command_line_replaces_the_encoders(tmp_path: Path, make_bert: Callable[..., Path]) -> None:
    folder, data = make_bert(WORDS), write_tatoeba(tmp_path / "data")
    write_sentence_files(folder, "mean_tokens", {"query": "query: "})
    evaluate(str(folder), "retrieval", data, tmp_path / "out", prompt="one ")
    found = headlines(read_scores(tmp_path / "out" / "scores.json"))
    expected = slow(folder, "one ", "mean")
    assert {metric: found[metric] for metric in expected} == pytest.approx(expected)
    plain = RETRIEVAL.evaluate(str(folder), data, prompt="")
    assert headlines(plain)["retrieval_accuracy"] == pytest.approx(slow(folder, "", "mean")["retrieval_accuracy"])


def test_a_task_without_prompts_refuses_one(tmp_path: Path, make_bert: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match=r"--prompt: the task cloze puts no text before sentences; .* retrieval"):
        evaluate(str(make_bert(WORDS)), "cloze", write_tatoeba(tmp_path / "data"), tmp_path / "out", prompt="x")


def test_a_pair_without_english_is_named_by_both(tmp_path: Path, make_bert: Callable[..., Path]) -> None:
    data = write_csv(tmp_path / "test.csv", ("de", "fr"), [*zip(GERMAN, ENGLISH, strict=True)])
    scores = RETRIEVAL.evaluate(str(make_bert(WORDS)), data)
    assert {score.language for score in scores} == {"de-fr", "all"}
    assert {(score.split, score.n, score.chance) for score in scores} == {("test.csv", 9, 1 / 9)}
    assert name_of_pair("de", "de") == "de-de"  # "de" is translations into English


def test_english_is_the_second_language_whatever_the_file_says(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "test.csv", ("en", "de"), [("one", "eins"), ("two", "zwei")])
    found = read_translations(data)
    assert [*found] == ["de"]
    assert (found["de"].languages, [*found["de"].first]) == (("de", "en"), ["eins", "zwei"])
    asked = write_csv(tmp_path / "en.csv", ("query", "passage"), [("one", "first"), ("two", "second")])
    assert [*read_translations(asked, ["en", "en"])["en"].first] == ["one", "two"]  # passages are the second side


@pytest.mark.parametrize(
    ("languages", "found"),
    [([], ["de", "fr", "wo"]), (["de"], ["de"]), (["en", "wo"], ["wo"]), (["de", "fr"], ["de", "fr"])],
)
def test_languages_choose_among_those_that_the_data_show(
    tmp_path: Path, languages: list[str], found: list[str]
) -> None:
    """Of a folder with a file for each, and of a table with a column for each."""
    (tmp_path / "files").mkdir()
    for code in ("de", "fr", "wo"):
        write_csv(tmp_path / "files" / f"en-{code}.csv", ("en", code), [("one", f"1 {code}"), ("two", f"2 {code}")])
    rows = [(text, *(f"{text} {code}" for code in ("de", "fr", "wo"))) for text in ("one", "two")]
    table = write_csv(tmp_path / "table.csv", ("en", "de", "fr", "wo"), rows)
    for data in (tmp_path / "files", table):
        assert sorted(read_translations(data, languages)) == found


def test_a_copy_of_the_right_sentence_is_right() -> None:
    """Query 0 finds candidate 1, which has the text of candidate 0; query 2 has the text of query 0."""
    queries, candidates = np.array([0, 1, 0, 2]), np.array([7, 7, 8, 9])
    assert are_pairs(queries, candidates, np.array([1, 2, 0, 0])).tolist() == [True, False, True, False]


def test_languages_are_mixed_where_there_are_several(
    tmp_path: Path, make_bert: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a slow search; a sentence may find the translation of its translation."""
    folder = make_bert(WORDS)
    french = [text.replace("eins", "query") for text in GERMAN]
    rows = [f"{a}\t{b}\t{c}" for a, b, c in zip(ENGLISH, GERMAN, french, strict=True)]
    (tmp_path / "test.tsv").write_text("\n".join(["en\tde\tfr", *rows]))
    encoded: list[tuple[str, int]] = []
    layers = SentenceVectors.layers

    def counted(self: SentenceVectors, texts: Sequence[str], language: str) -> Any:
        encoded.append((language, len(texts)))
        return layers(self, texts, language)

    monkeypatch.setattr(SentenceVectors, "layers", counted)
    scores = [score for score in RETRIEVAL.evaluate(str(folder), tmp_path / "test.tsv") if score.layer == "last"]
    assert sorted(encoded) == [("de", 9), ("en", 9), ("fr", 9)], "the English of all languages is encoded once"
    found = {(score.metric, score.language): (score.value, score.chance) for score in scores}
    pool = [(text, number, code) for code, texts in (("en", ENGLISH), ("de", GERMAN), ("fr", french))
            for number, text in enumerate(texts)]  # fmt: skip
    vectors = SentenceVectors(open_encoder(folder)).encode([text for text, *_ in pool])
    cosines = unit_rows(vectors) @ unit_rows(vectors).T
    np.fill_diagonal(cosines, -1)
    first = cosines.argmax(axis=1).tolist()
    for code in ("en", "de", "fr"):
        own = [(row, pool[place]) for row, place in zip(pool, first, strict=True) if row[2] == code]
        right = np.mean([row[1] == hit[1] for row, hit in own])
        assert found["retrieval_accuracy_mixed", code] == pytest.approx((right, 2 / 26))
        assert found["retrieval_other_language", code] == pytest.approx(
            (np.mean([hit[2] != code for _, hit in own]), 18 / 26)
        )
    assert 0 < found["retrieval_other_language", "all"][0] < 1
    alone = RETRIEVAL.evaluate(str(folder), write_tatoeba(tmp_path / "data"))
    assert not {"retrieval_accuracy_mixed", "retrieval_other_language"} & {score.metric for score in alone}


def test_duplicates_are_counted_and_said(
    tmp_path: Path, make_bert: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*zip(GERMAN, ENGLISH, strict=True)] * 2
    data = write_csv(tmp_path / "test.csv", ("de", "en"), rows)
    folder = make_bert(WORDS)
    found = headlines(RETRIEVAL.evaluate(str(folder), data))
    once = slow(folder, "", "mean")
    assert {metric: found[metric] for metric in once} == pytest.approx(once)
    said = capsys.readouterr().err
    assert "test.csv (de): 18 of 36 sentences stand in it more than once; to find a copy" in said
    assert said.count("test.csv: CSV, columns de and en, 18 pairs") == 1, "data are read once"


def test_pairs_of_two_languages_are_joined_in_either_order() -> None:
    one = TranslatedSentences(("de", "fr"), ["a"], ["b"], "x")
    other = TranslatedSentences(("fr", "de"), ["d"], ["c"], "y")
    assert one.joined(other) == TranslatedSentences(("de", "fr"), ["a", "c"], ["b", "d"], "x, y")
