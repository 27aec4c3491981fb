"""Base against yours on the same sentences: rows against a slow reference, the cache, and what is said without rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.stats import spearmanr
from torch.nn.functional import cosine_similarity, cross_entropy
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertModel

from tests.unit.continuing.comparison_file import write_comparison_file
from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.continuing import compared_run, comparison
from xalign_ray.continuing.compared_run import write_comparison
from xalign_ray.continuing.comparison import compare_with_base, verdict_of
from xalign_ray.continuing.five_lines import read_five_lines
from xalign_ray.continuing.sentence_scores import SentenceScores, masked_places
from xalign_ray.continuing.sentence_sets import KeptText, PairSet, QuerySet, ScoredPairs, spearman
from xalign_ray.models.sentence_files import NO_FILES, SentenceRule
from xalign_ray.tasks.retrieval import TranslatedSentences
from xalign_ray.work.artifacts import read_json
from xalign_ray.work.run_folder import COMPARISON

BOUND = {"lose_at_most": 0.5, "share": 1.0, "holds": True, "mixtures": []}  # the export is whole, with no share
ENGLISH = ["one", "two", "three", "four", "five"]
VECTORS = f"Sentence vectors: mean of the last layer, no prompt ({NO_FILES})."
GERMAN = ["eins", "zwei", "drei", "vier", "fünf"]


def sentences(words: list[str], count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, rng.integers(2, 9))) for _ in range(count)]


def pairs_of(count: int = 30, split: str = "own", languages: tuple[str, str] = ("de", "en")) -> TranslatedSentences:
    return TranslatedSentences(languages, sentences(GERMAN, count, 1), sentences(ENGLISH, count, 2), split)


@pytest.fixture
def encoders(tmp_path: Path) -> tuple[Path, Path]:
    """A tiny BERT, and another with the same vocabulary."""
    base = make_bert_in(tmp_path / "base", ENGLISH + GERMAN)
    trained = make_bert_in(tmp_path / "trained", ENGLISH + GERMAN)
    model = AutoModelForMaskedLM.from_pretrained(trained)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.03 * torch.randn_like(parameter)
    model.save_pretrained(trained)
    return base, trained


@torch.no_grad()
def slow_vectors(folder: Path, texts: list[str]) -> torch.Tensor:
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval().bert, AutoTokenizer.from_pretrained(folder)
    return torch.stack(
        [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0) for text in texts]
    )


def slow_accuracy(folder: Path, pairs: TranslatedSentences) -> float:
    right = []
    for queries, candidates in (pairs.texts, pairs.texts[::-1]):
        known = {*zip(queries, candidates, strict=True)}
        vectors, others = slow_vectors(folder, [*queries]), slow_vectors(folder, [*candidates])
        for text, vector in zip(queries, vectors, strict=True):
            right.append((text, candidates[int(cosine_similarity(vector[None], others).argmax())]) in known)
    return float(np.mean(right))


@torch.no_grad()
def slow_loss(folder: Path, texts: list[str]) -> float:
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    losses = []
    for text in texts:
        batch = tokenizer(text, return_tensors="pt")
        gold = batch["input_ids"].clone()
        at = [1 + place for place in masked_places(gold[0, 1:-1].tolist())]
        batch["input_ids"][0, at] = tokenizer.mask_token_id
        losses += [float(cross_entropy(model(**batch).logits[0, place], gold[0, place])) for place in at]
    return float(np.mean(losses))


def rows_by_measure(found: comparison.BaseComparison, trained: bool) -> dict[str, Any]:
    return {row.measure: row for row in found.rows if row.trained == trained}


def test_rows_equal_a_slow_reference(encoders: tuple[Path, Path]) -> None:
    base, trained = encoders
    tests, kept = pairs_of(40), pairs_of(25, "kept")
    found = compare_with_base(
        str(base), str(trained), [PairSet.of(tests, is_kept=False)], [PairSet.of(kept)], device="cpu"
    )
    of_tests, of_kept = (rows_by_measure(found, trained) for trained in (True, False))
    assert [*of_tests] == ["retrieval", "retrieval_csls"]
    assert [*of_kept] == ["retrieval", "retrieval_csls", "mlm_loss", "drift"]
    assert found.notes == [VECTORS]
    for row, pairs in ((of_tests["retrieval"], tests), (of_kept["retrieval"], kept)):
        assert (row.base, row.yours) == pytest.approx([slow_accuracy(folder, pairs) for folder in encoders])
        assert (row.language, row.count, row.split) == ("de", len(pairs), pairs.split)
    old, new = (slow_vectors(folder, [*kept.first]) for folder in encoders)
    assert of_kept["drift"].yours == pytest.approx(1 - float(cosine_similarity(old, new).mean()), abs=1e-5)
    assert of_kept["drift"].verdict is None
    loss = of_kept["mlm_loss"]
    assert (loss.base, loss.yours) == pytest.approx([slow_loss(folder, [*kept.first]) for folder in encoders], abs=1e-4)
    assert loss.low < loss.difference < loss.high


def test_kept_text_has_drift_and_a_loss(encoders: tuple[Path, Path]) -> None:
    texts = [
        KeptText.of("de", sentences(GERMAN, 12, 5), "mine.txt"),
        KeptText.of("en", sentences(ENGLISH, 9, 6), "own.txt"),
    ]
    found = compare_with_base(*map(str, encoders), [], texts, trained_languages=["en", "fr"], device="cpu")
    assert [(row.measure, row.language, row.split, row.count, row.trained) for row in found.rows] == [
        ("mlm_loss", "de", "mine.txt", 12, False),
        ("mlm_loss", "en", "own.txt", 9, True),
        ("drift", "de", "mine.txt", 12, False),
        ("drift", "en", "own.txt", 9, True),
    ]


def test_scored_pairs_are_ranked_as_scipy_does_and_their_interval_is_the_bootstraps() -> None:
    rng, count = np.random.default_rng(3), 600
    gold = np.round(rng.uniform(0, 5, count))
    cosines = [gold + rng.normal(0, 1.2, count)]
    cosines.append(cosines[0] + rng.normal(0, 0.4, count))
    (before, influence), (after, other) = (spearman(one, gold) for one in cosines)
    assert [before, after] == pytest.approx([spearmanr(one, gold).statistic for one in cosines])
    assert [influence.mean(), other.mean()] == pytest.approx([0, 0], abs=1e-9)
    drawn = [rng.integers(0, count, count) for _ in range(1_000)]
    gaps = [spearman(cosines[1][one], gold[one])[0] - spearman(cosines[0][one], gold[one])[0] for one in drawn]
    assert np.sqrt(((other - influence) ** 2).sum()) / count == pytest.approx(np.std(gaps), rel=0.1)
    assert spearman(np.ones(4), np.arange(4.0))[0] == 0  # equal cosines rank nothing


@pytest.mark.parametrize("judged", ["p1", "q"])  # ids counted from 0 in both files are equal, and judged
def test_a_query_that_is_a_passage_too_is_not_its_own_answer_unless_it_is_judged(judged: str) -> None:
    vectors = {"a": [1.0, 0.0], "b": [0.9, 0.1], "c": [0.0, 1.0]}
    scores: Any = SimpleNamespace(
        search_prompts=("", ""),
        device="cpu",
        vectors=lambda texts, _: np.array([vectors[text] for text, _ in texts], np.float32),
    )
    passages = {"q": "a", "p1": "b", "p2": "c"}
    found = QuerySet("en", {"q": "a"}, passages, {"q": {judged: 1.0}}, "beir")
    (change,) = found.changes(scores, scores)
    assert (change.base, change.yours) == (1, 1)


def test_scored_pairs_and_queries_are_measured_by_both_encoders(encoders: tuple[Path, Path]) -> None:
    """Prompts are the base's: of scored pairs that of queries on both sides, of passages their own."""
    prompts = {"prompts": {"query": "two ", "passage": "vier "}}
    (encoders[0] / "modules.json").write_text(json.dumps([{"path": "", "type": "x.Transformer"}]))
    (encoders[0] / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    texts = sentences(ENGLISH, 40, 3)
    scored = ScoredPairs("en", [(n, texts[n], texts[-n - 1], n % 6) for n in range(40)], "sts.csv")
    queries = {f"q{n}": text for n, text in enumerate(texts[:10])}
    passages = {f"p{n}": text for n, text in enumerate(sentences(ENGLISH, 30, 4))}
    judged = {query: {f"p{n}": 1.0, f"p{n + 1}": 2.0} for n, query in enumerate(queries)}
    found = compare_with_base(
        *map(str, encoders), [], [scored, QuerySet("en", queries, passages, judged, "beir")], device="cpu"
    )
    spearman_row, ndcg_row = found.rows
    assert [row.measure for row in found.rows] == ["cosine_spearman", "ndcg_at_10"]
    assert [(row.count, row.split, row.trained) for row in found.rows] == [(40, "sts.csv", False), (10, "beir", False)]
    for folder, value, ndcg in zip(
        encoders, (spearman_row.base, spearman_row.yours), (ndcg_row.base, ndcg_row.yours), strict=True
    ):
        left, right = (slow_vectors(folder, [f"two {row[side]}" for row in scored.rows]) for side in (1, 2))
        gold = [score for *_, score in scored.rows]
        assert value == pytest.approx(spearmanr(cosine_similarity(left, right), gold).statistic, abs=1e-6)
        vectors = slow_vectors(folder, [f"vier {text}" for text in passages.values()])
        scores = []
        for query, vector in zip(
            queries, slow_vectors(folder, [f"two {text}" for text in queries.values()]), strict=True
        ):
            order = cosine_similarity(vector[None], vectors).argsort(descending=True, stable=True).tolist()
            gains = [judged[query].get([*passages][place], 0) for place in order[:10]]
            best = 2 / np.log2(2) + 1 / np.log2(3)
            scores.append(sum(gain / np.log2(rank + 2) for rank, gain in enumerate(gains)) / best)
        assert ndcg == pytest.approx(np.mean(scores), abs=1e-6)


def test_a_base_in_pickled_weights_has_the_head_that_its_config_names(encoders: tuple[Path, Path]) -> None:
    base, _ = encoders
    weights = load_file(base / "model.safetensors")
    torch.save(weights, base / "pytorch_model.bin")
    (base / "model.safetensors").unlink()
    found = compare_with_base(*map(str, encoders), [], [KeptText.of("de", sentences(GERMAN, 12, 5), "x")], device="cpu")
    assert [row.measure for row in found.rows] == ["mlm_loss", "drift"]


def test_an_encoder_without_a_head_has_no_loss_and_says_so(encoders: tuple[Path, Path]) -> None:
    base, _ = encoders
    BertModel.from_pretrained(base, add_pooling_layer=False).save_pretrained(base)
    found = compare_with_base(*map(str, encoders), [], [PairSet.of(pairs_of())], device="cpu")
    assert [row.measure for row in found.rows] == ["retrieval", "retrieval_csls", "drift"]
    assert found.notes == [VECTORS, f"There is no masked-LM loss of what was kept: {base} has no masked-LM head."]


def test_other_vocabularies_have_no_loss_in_common(encoders: tuple[Path, Path], tmp_path: Path) -> None:
    other = make_bert_in(tmp_path / "other", [*ENGLISH, *GERMAN, "sechs"])
    found = compare_with_base(str(encoders[0]), str(other), [], [PairSet.of(pairs_of())], device="cpu")
    assert "mlm_loss" not in {row.measure for row in found.rows}
    assert "the vocabularies differ" in found.notes[1]


def test_both_encoders_are_pooled_and_prompted_as_the_bases_files_say(encoders: tuple[Path, Path]) -> None:
    base, trained = encoders
    modules = [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    (base / "modules.json").write_text(json.dumps(modules))
    (base / "1_Pooling").mkdir()
    (base / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (base / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "two "}}))
    found = compare_with_base(str(base), str(trained), [], [PairSet.of(pairs_of())], device="cpu")
    drift = rows_by_measure(found, trained=False)["drift"].yours
    texts = [(text, "de") for text in pairs_of().first]
    old, new = (
        SentenceScores(str(one), SentenceRule("cls", "two ", True, ""), device="cpu").vectors(texts) for one in encoders
    )
    assert drift == pytest.approx(1 - float(cosine_similarity(torch.tensor(old), torch.tensor(new)).mean()), abs=1e-6)


def test_nothing_kept_is_said_in_one_line(encoders: tuple[Path, Path]) -> None:
    found = compare_with_base(*map(str, encoders), [PairSet.of(pairs_of(), is_kept=False)], device="cpu")
    assert found.notes == [VECTORS, comparison.NOTHING_KEPT]


def test_languages_of_the_run_decide_what_counts_as_trained(encoders: tuple[Path, Path]) -> None:
    tests = [PairSet.of(pairs_of(languages=both), is_kept=False) for both in (("de", "en"), ("fr", "de"))]
    found = compare_with_base(*map(str, encoders), tests, trained_languages=["en", "de"], device="cpu")
    assert {(row.language, row.trained) for row in found.rows} == {("de", True), ("fr-de", False)}


@pytest.mark.parametrize(
    ("before", "given", "compared"),
    [
        (None, {}, True),
        ({}, {}, False),
        ({}, {"keep": ["fr.txt"]}, True),
        ({"keep": ["fr.txt"]}, {"keep": ["fr.txt"]}, False),
        ({"keep": ["fr.txt"]}, {"keep": ["es.txt"]}, True),
        ({"keep": ["fr.txt"]}, {}, False),
        ({"keep": ["fr.txt"]}, {"keep": ["fr.txt"], "lose_at_most": 0.5}, True),
        ({"keep": ["fr.txt"], "bound": BOUND}, {"keep": ["fr.txt"], "lose_at_most": 0.5}, False),
        ({"keep": ["fr.txt"], "bound": BOUND}, {"keep": ["fr.txt"]}, True),
        ({"keep": ["fr.txt"], "bound": BOUND | {"share": 0.5}}, {"keep": ["fr.txt"], "lose_at_most": 0.5}, True),
    ],
)
def test_finished_run_is_compared_again_with_other_kept_files(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[str, Any] | None,
    given: dict[str, Any],
    compared: bool,
) -> None:
    write_comparison_file(tmp_path)
    file = tmp_path / COMPARISON
    file.write_text(json.dumps(json.loads(file.read_text()) | (before or {})))
    if before is None:
        file.unlink()
    done: list[Path] = []
    monkeypatch.setattr(compared_run, "_compare", lambda _, run, __: done.append(run))
    found: Any = SimpleNamespace(lines=read_five_lines("e5", given))
    compared_run.compare_run(found, tmp_path)
    assert done == [tmp_path] * compared


def test_another_margin_reads_the_verdicts_again_and_loses_no_row(tmp_path: Path) -> None:
    write_comparison_file(tmp_path)
    file = tmp_path / COMPARISON
    before = json.loads(file.read_text()) | {"keep": ["fr.txt"], "command": "as before", "bound": BOUND}
    file.write_text(json.dumps(before))
    found: Any = SimpleNamespace(lines=read_five_lines("e5", {"margin": 0.5}))
    compared_run.compare_run(found, tmp_path)
    after = json.loads(file.read_text())
    assert (after["keep"], after["margin"]) == (["fr.txt"], 0.5)
    assert after["command"] == "xalign continue e5 --keep fr.txt --margin 0.5 --lose-at-most 0.5"
    verdicts = [row.pop("verdict") for row in after["rows"]]
    assert verdicts == ["gained", "unclear", "kept", "lost", "unclear", None]
    assert [row.pop("verdict") for row in before["rows"]] == ["gained", "kept", "kept", "lost", "unclear", None]
    assert after["rows"] == before["rows"]


@pytest.mark.parametrize(
    ("measure", "ends", "verdict"),
    [
        ("retrieval", (0.01, 0.03), "gained"),
        ("retrieval", (-0.03, -0.01), "lost"),
        ("retrieval", (-0.009, 0.02), "kept"),
        ("retrieval", (-0.01, 0.02), "unclear"),
        ("retrieval", (-0.02, 0.009), "unclear"),
        ("mlm_loss", (0.01, 0.03), "lost"),
        ("mlm_loss", (-0.03, -0.01), "gained"),
        ("mlm_loss", (-0.02, 0.009), "kept"),
        ("mlm_loss", (-0.009, 0.02), "unclear"),
        ("cosine_spearman", (-0.009, 0.02), "kept"),
        ("ndcg_at_10", (-0.03, -0.01), "lost"),
        ("retrieval", (None, None), "unclear"),
        ("drift", (0.01, 0.03), None),
    ],
)
def test_a_verdict_is_read_off_the_interval(measure: str, ends: Any, verdict: str | None) -> None:
    assert verdict_of(measure, *ends, 1.0) == verdict


def test_a_comparison_is_written_with_the_facts_of_its_run(encoders: tuple[Path, Path], tmp_path: Path) -> None:
    found = compare_with_base(*map(str, encoders), [PairSet.of(pairs_of(), is_kept=False)], device="cpu")
    facts = {"base": "x", "run": "r", "steps": 3, "seconds": 1.5, "device_hours": 0.1, "methods": ["contrast"]}
    write_comparison(tmp_path / COMPARISON, found, facts)
    read = read_json(tmp_path / COMPARISON, "")
    assert {key: read[key] for key in facts} == facts
    row = read["rows"][0]
    assert [*row] == sorted(row)
    assert set(row) == {
        *("measure", "language", "trained", "base", "yours", "difference", "low", "high"),
        *("verdict", "detectable", "count", "split"),
    }


@pytest.mark.parametrize(
    ("languages", "is_search", "prompts"),
    [("en de", False, {None}), ("en de", True, {"query: ", "passage: "}), ("en en", False, {"query: ", "passage: "})],
)
def test_queries_and_passages_have_their_own_prompts(languages: str, is_search: bool, prompts: set[Any]) -> None:
    asked = list[Any]()

    def vectors(texts: Sequence[Any], prompt: str | None = None) -> np.ndarray:
        asked.append(prompt)
        return np.eye(len(texts), dtype=np.float32)

    scores: Any = SimpleNamespace(vectors=vectors, device="cpu", search_prompts=("query: ", "passage: "))
    first, second = languages.split()
    pairs = TranslatedSentences((first, second), ["a", "b"], ["c", "d"], "test")
    changes = [*PairSet.of(pairs, is_kept=False, is_search=is_search).changes(scores, scores)]
    assert ({*asked}, [change.base for change in changes]) == (prompts, [1.0, 1.0])
