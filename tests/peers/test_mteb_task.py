"""Tasks of mteb: its own runner on the same folder gives the same scores; what is missing is said."""

from __future__ import annotations

import json
import random
from pathlib import Path

import mteb
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer

from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.tasks.scores import read_scores
from xalign_ray.verbs.scores import evaluate

WORDS = [f"{letter}{vowel}" for letter in "bcdfghjklm" for vowel in "aeiou"]


def sentences(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.sample(WORDS, rng.randrange(2, 8))) for _ in range(count)]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Sentence Transformers folder whose default prompt matters."""
    folder = tmp_path_factory.mktemp("mteb")
    model = Transformer(str(make_bert_in(folder / "bert", WORDS)))
    modules = [model, Pooling(model.get_embedding_dimension(), pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=modules, prompts={"query": "ba "}, default_prompt_name="query").save(str(folder / "st"))
    return folder / "st"


def write_tatoeba(folder: Path) -> Path:
    """Two languages, in the form of the hub's data set of mteb's task."""
    folder.mkdir()
    rows = []
    for seed, name in enumerate(("deu-eng", "cmn-eng")):
        rng = random.Random(seed)
        for text in sentences(40, seed):
            other = " ".join([*rng.sample(text.split(), len(text.split())), rng.choice(WORDS)])
            rows.append({"sentence1": text, "sentence2": other, "lang": name})
    (folder / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def write_sts(folder: Path) -> Path:
    folder.mkdir()
    rng = random.Random(4)
    rows = [
        {"sentence1": one, "sentence2": other, "score": rng.random() * 5}
        for one, other in zip(sentences(30, 5), sentences(30, 6), strict=True)
    ]
    (folder / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def theirs(name: str, data: Path, encoder: Path, parts: list[str]) -> dict[str, float]:
    """What mteb's own runner says, by its name of a part."""
    task = mteb.get_task(name)
    task.metadata = task.metadata.model_copy(update={"dataset": {**task.metadata.dataset, "path": str(data)}})
    task.hf_subsets = parts
    model = SentenceTransformer(str(encoder), device="cpu")
    (result,) = mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results
    return {row["hf_subset"]: row["main_score"] for row in result.scores["test"]}


def test_bitext_retrieval_is_what_mtebs_runner_gives(tmp_path: Path, encoder: Path) -> None:
    data = write_tatoeba(tmp_path / "data")
    evaluate(str(encoder), "mteb:Tatoeba", data, tmp_path / "out")
    scores = read_scores(tmp_path / "out" / "scores.json")
    found = {score.language: score.value for score in scores}
    peer = theirs("Tatoeba", data, encoder, ["deu-eng", "cmn-eng"])
    assert {"de": found["de"], "zh": found["zh"]} == pytest.approx(
        dict(zip(("de", "zh"), peer.values(), strict=True)), abs=1e-9
    )
    assert found["all"] == pytest.approx(sum(peer.values()) / 2)
    assert {(score.metric, score.split, score.task) for score in scores} == {("mteb:Tatoeba", "test", "mteb:Tatoeba")}
    assert {score.n for score in scores if score.language != "all"} == {40}
    asked = evaluate(str(encoder), "mteb:Tatoeba", data, tmp_path / "zh", languages="zh", prompt="")
    assert {*asked.language} == {"zh", "all"}
    assert found["zh"] not in (0, 1, *asked.value)  # without the folder's prompt


def test_similarity_is_what_mtebs_runner_gives(tmp_path: Path, encoder: Path) -> None:
    data = write_sts(tmp_path / "data")
    scores = evaluate(str(encoder), "mteb:STSBenchmark", data, tmp_path / "out")
    found = dict(zip(scores.language, scores.value, strict=True))
    assert found["en"] == pytest.approx(theirs("STSBenchmark", data, encoder, ["default"])["default"], abs=1e-9)


def test_tasks_of_a_benchmark_that_can_run_are_scored_and_the_others_named(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / "BUCC.v2").mkdir(parents=True)  # without a table
    write_tatoeba(tmp_path / "data" / "Tatoeba")
    scores = evaluate(str(encoder), "mteb:bitext", tmp_path / "data", tmp_path / "out")
    alone = evaluate(str(encoder), "mteb:Tatoeba", tmp_path / "data" / "Tatoeba", tmp_path / "alone")
    assert [*zip(scores.metric, scores.language, scores.value, strict=True)] == [
        *zip(alone.metric, alone.language, alone.value, strict=True)
    ]
    said = capsys.readouterr().err
    assert "12 of 13 tasks of mteb:bitext could not run: BornholmBitextMining (" in said
    assert "BUCC.v2 holds no table" in said
    assert "FloresBitextMining" in said
    with pytest.raises(DataError, match=r"None of the 19 tasks of mteb:MTEB\(deu, v1\) could run"):
        evaluate(str(encoder), "mteb:MTEB(deu, v1)", tmp_path / "data" / "Tatoeba", tmp_path / "none")


def test_what_cannot_be_scored_is_said(tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"STSBenchmrk: mteb has no such task or benchmark\. .*STSBenchmark"):
        evaluate(str(encoder), "mteb:STSBenchmrk", out=tmp_path / "a")
    with pytest.raises(DataError, match=r"empty holds no table, so it is not a copy of the data of mteb:STSBenchmark"):
        evaluate(str(encoder), "mteb:STSBenchmark", tmp_path / "empty", tmp_path / "b")
    for name, table in (("damaged", "{"), ("other", '{"en": "a", "de": "b"}\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "test.jsonl").write_text(table)
        with pytest.raises(DataError, match=rf"mteb:STSBenchmark cannot be read .*{name} is not a copy of it"):
            evaluate(str(encoder), "mteb:STSBenchmark", tmp_path / name, tmp_path / "b")
    (tmp_path / "empty" / "test.jsonl").touch()
    with pytest.raises(ConfigError, match=r"--languages: STSBenchmark has nothing in de, yo\."):
        evaluate(str(encoder), "mteb:STSBenchmark", tmp_path / "empty", tmp_path / "c", languages="yo,en,de")
