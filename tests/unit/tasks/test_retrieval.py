"""The task retrieval: any pairs of languages, both directions, the encoder's own pooling and prompt, duplicates."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.nearest import are_pairs
from xalign_ray.models.sentence_modules import check_modules, own_pooling, own_prompt
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


@pytest.mark.parametrize(
    ("config", "prompt"),
    [
        ({"prompts": {"query": "q: ", "passage": "p: "}}, "q: "),
        ({"prompts": {"query": "q: ", "sts": "s: "}, "default_prompt_name": "sts"}, "s: "),
        ({"prompts": {"query": "", "document": ""}, "default_prompt_name": None}, ""),
        ({"prompts": {"clustering": "c: "}}, ""),
        ({}, ""),
    ],
)
def test_the_default_prompt_else_that_of_queries_is_the_encoders(tmp_path: Path, config: dict, prompt: str) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(config))
    assert own_prompt(str(tmp_path)) == prompt


@pytest.mark.parametrize(
    ("module", "pooling", "said"),
    [
        ("Normalize", {}, ""),
        ("WordWeights", {}, "whose module WordWeights changes them"),
        ("Normalize", {"include_prompt": False}, "whose pooling leaves out the tokens of a prompt"),
    ],
)
def test_modules_that_nothing_here_applies_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], module: str, pooling: dict, said: str
) -> None:
    write_sentence_files(tmp_path, "mean_tokens", {})
    modules = [*json.loads((tmp_path / "modules.json").read_text()), {"path": "2", "type": f"x.{module}"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True, **pooling}))
    assert own_pooling(str(tmp_path)) == "mean"
    shown = capsys.readouterr().err
    assert said in shown if said else not shown


@pytest.mark.parametrize(
    ("pooling", "found"),
    [
        ({}, "mean"),  # the package's own default
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "mean + max"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "mean_sqrt_len"),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, "lasttoken"),
        ({"pooling_mode": "max"}, "max"),
        ({"pooling_mode_cls_token": False}, "neither mean nor cls"),
    ],
)
def test_another_pooling_is_named_and_cannot_be_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pooling: dict, found: str
) -> None:
    write_sentence_files(tmp_path, "mean_tokens", {})
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **pooling}))
    if found == "mean":
        assert own_pooling(str(tmp_path)) == "mean"
        check_modules(str(tmp_path))
        return
    assert own_pooling(str(tmp_path)) is None
    assert f"its own pooling ({found}) is unknown and not used" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"; mean or cls alone can be trained\. Continue a copy of the folder without"):
        check_modules(str(tmp_path))


def test_a_module_with_code_of_its_own_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_sentence_files(tmp_path, "mean_tokens", {})
    text = (tmp_path / "modules.json").read_text()
    (tmp_path / "modules.json").write_text(text.replace("x.Transformer", "custom_st.Transformer"))
    own_pooling(str(tmp_path))
    assert "whose module custom_st.Transformer changes them" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"has a module custom_st\.Transformer"):
        check_modules(str(tmp_path))


def test_a_default_prompt_that_is_not_there_is_refused(tmp_path: Path) -> None:
    config = {"prompts": {"query": "q: "}, "default_prompt_name": "retrieval"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(config))
    with pytest.raises(DataError, match=r"names 'retrieval' as its default prompt, and has query\. Correct default_pr"):
        own_prompt(str(tmp_path))


@pytest.mark.parametrize("text", ["[]", '{"prompts": [1]}', '{"prompts": {"query": 3}}'])
def test_damaged_prompts_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text(text)
    with pytest.raises(DataError, match=r"its prompts are not texts by name. Fetch it again"):
        own_prompt(str(tmp_path))


def test_a_pair_without_english_is_named_by_both(tmp_path: Path, make_bert: Callable[..., Path]) -> None:
    data = write_csv(tmp_path / "test.csv", ("de", "fr"), [*zip(GERMAN, ENGLISH, strict=True)])
    scores = RETRIEVAL.evaluate(str(make_bert(WORDS)), data)
    assert {score.language for score in scores} == {"de-fr", "all"}
    assert {(score.split, score.n, score.chance) for score in scores} == {("test.csv", 9, 1 / 9)}


def test_english_is_the_second_language_whatever_the_file_says(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "test.csv", ("en", "de"), [("one", "eins"), ("two", "zwei")])
    found = read_translations(data)
    assert [*found] == ["de"]
    assert (found["de"].languages, [*found["de"].first]) == (("de", "en"), ["eins", "zwei"])


def test_a_copy_of_the_right_sentence_is_right() -> None:
    """Query 0 finds candidate 1, which has the text of candidate 0; query 2 has the text of query 0."""
    queries, candidates = np.array([0, 1, 0, 2]), np.array([7, 7, 8, 9])
    assert are_pairs(queries, candidates, np.array([1, 2, 0, 0])).tolist() == [True, False, True, False]


def test_duplicates_are_counted_and_said(
    tmp_path: Path, make_bert: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*zip(GERMAN, ENGLISH, strict=True)] * 2
    data = write_csv(tmp_path / "test.csv", ("de", "en"), rows)
    folder = make_bert(WORDS)
    found = headlines(RETRIEVAL.evaluate(str(folder), data))
    once = slow(folder, "", "mean")
    assert {metric: found[metric] for metric in once} == pytest.approx(once)
    assert "test.csv (de): 18 of 36 sentences stand in it more than once; to find a copy" in capsys.readouterr().err


def test_pairs_of_two_languages_are_joined_in_either_order() -> None:
    one = TranslatedSentences(("de", "fr"), ["a"], ["b"], "x")
    other = TranslatedSentences(("fr", "de"), ["d"], ["c"], "y")
    assert one.joined(other) == TranslatedSentences(("de", "fr"), ["a", "c"], ["b", "d"], "x, y")
