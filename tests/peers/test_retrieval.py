"""Sentence retrieval against mteb's bitext mining, on vectors that sentence-transformers makes."""

from __future__ import annotations

import random
from pathlib import Path

import datasets
import mteb
import numpy as np
import pytest
from mteb.abstasks import AbsTaskBitextMining
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.continuing.sentence_scores import SentenceScores
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors
from xalign_ray.tasks.retrieval import RETRIEVAL, TATOEBA

WORDS = [f"{letter}{vowel}" for letter in "bcdfghjklm" for vowel in "aeiou"]
LAYERS = 2


def bitext_task(name: str, queries: list[str], candidates: list[str]) -> AbsTaskBitextMining:
    """mteb's task on sentences of ours, line i of which translate each other."""

    class Bitext(AbsTaskBitextMining):
        metadata = TaskMetadata(
            name=name, description="translations", type="BitextMining", category="t2t", modalities=["text"],
            eval_splits=["test"], eval_langs=["eng-Latn"], main_score="accuracy",
            dataset={"path": "here", "revision": "1"},
        )  # fmt: skip

        def load_data(self, **_: object) -> None:
            columns = {"sentence1": queries, "sentence2": candidates}
            self.dataset = datasets.DatasetDict(test=datasets.Dataset.from_dict(columns))
            self.data_loaded = True

    return Bitext()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert_in(tmp_path_factory.mktemp("peers") / "encoder", WORDS, layers=LAYERS)


@pytest.fixture(scope="module")
def sides() -> tuple[list[str], list[str]]:
    """Sentences of up to 8 words, and as English most of their words in another order, so that some are found."""
    rng = random.Random(1)
    other = [rng.sample(WORDS, rng.randrange(2, 9)) for _ in range(150)]
    english = [rng.sample(words, len(words) // 2) + rng.sample(WORDS, 2) for words in other]
    return [" ".join(words) for words in other], [" ".join(words) for words in english]


@pytest.fixture(scope="module")
def peer(encoder: Path) -> SentenceTransformer:
    model = Transformer(str(encoder))
    return SentenceTransformer(modules=[model, Pooling(model.get_embedding_dimension(), pooling_mode="mean")])


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooled_vectors_equal_sentence_transformers(
    encoder: Path, sides: tuple[list[str], list[str]], pooling: str
) -> None:
    model = Transformer(str(encoder))
    theirs = SentenceTransformer(modules=[model, Pooling(model.get_embedding_dimension(), pooling_mode=pooling)])
    ours = SentenceVectors(open_encoder(encoder), "cpu").layers(sides[0], "de", pooling)[1][pooling][LAYERS]
    np.testing.assert_allclose(ours, theirs.encode(sides[0]), atol=1e-6)


def test_saved_prompt_and_pooling_give_the_vectors_of_sentence_transformers(
    tmp_path: Path, encoder: Path, sides: tuple[list[str], list[str]]
) -> None:
    model = Transformer(str(encoder))
    pooling = Pooling(model.get_embedding_dimension(), pooling_mode="mean")
    prompts = {"query": f"{sides[0][0]} ", "document": ""}
    theirs = SentenceTransformer(modules=[model, pooling], prompts=prompts, default_prompt_name="query")
    theirs.save(str(tmp_path / "saved"))
    folder = str(tmp_path / "saved")
    ours = SentenceVectors(open_encoder(folder), "cpu")
    assert (ours.rule.prompt, ours.rule.pooling) == (prompts["query"], "mean")
    np.testing.assert_allclose(ours.encode(sides[0]), theirs.encode(sides[0]), atol=1e-6)


def test_retrieval_in_both_directions_equals_mteb(
    tmp_path: Path, encoder: Path, sides: tuple[list[str], list[str]], peer: SentenceTransformer
) -> None:
    for end, lines in zip(("deu", "eng"), sides, strict=True):
        (tmp_path / f"tatoeba.deu-eng.{end}").write_text("\n".join(lines))
    scores = TATOEBA.evaluate(str(encoder), tmp_path)
    ours = {score.metric: score.value for score in scores if score.language == "de" and score.layer == LAYERS}
    theirs = {}
    for metric, (queries, candidates) in {
        "tatoeba_accuracy": sides, "tatoeba_accuracy_from_english": sides[::-1]
    }.items():  # fmt: skip
        task = bitext_task(metric.replace("_", ""), queries, candidates)
        (result,) = mteb.evaluate(peer, task, cache=None, show_progress_bar=False).task_results
        theirs[metric] = result.scores["test"][0]["accuracy"]
    assert {metric: ours[metric] for metric in theirs} == pytest.approx(theirs)
    assert theirs["tatoeba_accuracy"] != theirs["tatoeba_accuracy_from_english"]


def test_a_dense_module_is_applied_as_sentence_transformers_does(
    tmp_path: Path, encoder: Path, sides: tuple[list[str], list[str]]
) -> None:
    model = Transformer(str(encoder))
    width = model.get_embedding_dimension()
    modules = [model, Pooling(width, pooling_mode="mean"), Dense(width, 5), Normalize()]
    theirs = SentenceTransformer(modules=modules, prompts={"query": "ba "})
    theirs.save(str(tmp_path / "saved"))
    ours = SentenceVectors(open_encoder(tmp_path / "saved"), "cpu").encode(sides[0], "de")
    np.testing.assert_allclose(ours, theirs.encode(sides[0], prompt_name="query"), atol=1e-6)
    compared = SentenceScores(str(tmp_path / "saved"), device="cpu").vectors([(text, "de") for text in sides[0]])
    np.testing.assert_allclose(compared, ours, atol=1e-6)
    assert ours.shape == (len(sides[0]), 5)

    data = tmp_path / "test.csv"
    data.write_text("de,en\n" + "".join(f"{one},{other}\n" for one, other in zip(*sides, strict=True)))
    scores = RETRIEVAL.evaluate(str(tmp_path / "saved"), data, device="cpu")
    found = {score.layer: score.value for score in scores if score.metric == "retrieval_accuracy_to_second"}
    similar = theirs.encode(sides[0], prompt_name="query") @ theirs.encode(sides[1], prompt_name="query").T
    assert found["last"] == pytest.approx((similar.argmax(axis=1) == np.arange(len(sides[0]))).mean())
    assert found["last"] != found[LAYERS]
