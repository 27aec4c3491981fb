"""Tatoeba retrieval: both file naming schemes, damaged files, and accuracies worked by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from xalign_ray.errors import DataError
from xalign_ray.studies.cells import EVALUATION, Cell, Encoder
from xalign_ray.studies.declared import Resources
from xalign_ray.studies.workers import run_cell
from xalign_ray.tasks.retrieval import TATOEBA, find_pairs, layer_accuracies, layer_cosines, mean_of_last, read_pair
from xalign_ray.work.artifacts import read_json

WORDS = ["one", "two", "three", "eins", "zwei", "drei"]


def write(folder: Path, stem: str, ends: tuple[str, str], sides: tuple[str, str]) -> None:
    for end, text in zip(ends, sides, strict=True):
        (folder / f"{stem}.{end}").write_text(text, encoding="utf-8", newline="")


def test_both_naming_schemes_are_found_under_canonical_codes(tmp_path: Path):
    write(tmp_path, "tatoeba.deu-eng", ("deu", "eng"), ("eins\n", "one\n"))
    write(tmp_path, "tatoeba.cmn-eng", ("cmn", "eng"), ("x\n", "one\n"))
    write(tmp_path, "tatoeba.qgr-en", ("qgr", "en"), ("y\n", "one\n"))
    pairs = find_pairs(tmp_path)
    assert set(pairs) == {"de", "zh", "qgr"}
    assert tuple(path.name for path in pairs["de"]) == ("tatoeba.deu-eng.deu", "tatoeba.deu-eng.eng")
    assert pairs["qgr"][1].name == "tatoeba.qgr-en.en"


# The 112 pairs of LASER's folder, data/tatoeba/v1.
LASER = """
afr amh ang ara arq arz ast awa aze bel ben ber bos bre bul cat cbk ceb ces cha cmn cor csb cym dan deu dsb dtp
ell epo est eus fao fin fra fry gla gle glg gsw heb hin hrv hsb hun hye ido ile ina ind isl ita jav jpn kab kat
kaz khm kor kur kzj lat lfn lit lvs mal mar max mhr mkd mon nds nld nno nob nov oci orv pam pes pms pol por ron
rus slk slv spa sqi srp swe swg swh tam tat tel tgl tha tuk tur tzl uig ukr urd uzb vie war wuu xho yid yue zsm
""".split()  # noqa: SIM905


def test_the_published_folder_is_read_as_it_is(tmp_path: Path):
    for code in LASER:
        write(tmp_path, f"tatoeba.{code}-eng", (code, "eng"), ("x\n", "one\n"))
    assert len(TATOEBA.check_data(tmp_path)) == len(LASER) + 1 == 113
    assert TATOEBA.check_data(tmp_path, ["deu", "dtp"]) == ["en", "de", "dtp"]
    write(tmp_path, "tatoeba.deu-eng", ("deu", "eng"), ("x\ny\n", "one\n"))
    with pytest.raises(DataError, match=r"has 2 lines and .* has 1"):
        TATOEBA.check_data(tmp_path)


def test_copies_of_xtreme_are_refused_because_their_english_is_sorted(tmp_path: Path):
    write(tmp_path, "de-en", ("de", "en"), ("eins\n", "one\n"))
    with pytest.raises(DataError, match=r"XTREME's copies, de-en.de and de-en.en, have their English lines sorted"):
        find_pairs(tmp_path)


def test_a_folder_without_tatoeba_files_says_what_they_are_called(tmp_path: Path):
    with pytest.raises(DataError, match=r"holds no Tatoeba files; they are called tatoeba.deu-eng.deu and"):
        find_pairs(tmp_path)


def test_one_language_in_both_schemes_is_ambiguous(tmp_path: Path):
    write(tmp_path, "tatoeba.deu-eng", ("deu", "eng"), ("eins\n", "one\n"))
    write(tmp_path, "tatoeba.de-en", ("de", "en"), ("eins\n", "one\n"))
    with pytest.raises(DataError, match=r"holds de twice, also as tatoeba.deu-eng; keep one"):
        find_pairs(tmp_path)


def test_retired_code_beside_its_successor_is_a_language_of_its_own(tmp_path: Path):
    for code in ("dtp", "kzj"):  # both are in LASER's folder; ISO 639 has merged kzj into dtp
        write(tmp_path, f"tatoeba.{code}-eng", (code, "eng"), ("x\n", "one\n"))
    assert {code: paths[0].name for code, paths in find_pairs(tmp_path).items()} == {
        "dtp": "tatoeba.dtp-eng.dtp", "kzj": "tatoeba.kzj-eng.kzj"
    }  # fmt: skip
    assert list(find_pairs(tmp_path, ["kzj"])) == ["kzj"]
    (tmp_path / "tatoeba.dtp-eng.dtp").unlink()
    (tmp_path / "tatoeba.dtp-eng.eng").unlink()
    assert list(find_pairs(tmp_path)) == ["dtp"]


def test_crlf_and_a_byte_order_mark_are_read_away(tmp_path: Path):
    write(tmp_path, "tatoeba.de-en", ("de", "en"), ("\ufeffeins\r\nzwei\r\n", "one\ntwo"))
    assert read_pair(find_pairs(tmp_path)["de"]) == (["eins", "zwei"], ["one", "two"])


@pytest.mark.parametrize(
    ("sides", "message"),
    [
        (("eins\nzwei\n", "one\n"), r"tatoeba.de-en.de has 2 lines and .*tatoeba.de-en.en has 1; line i of one must"),
        (("", ""), r"has 0 lines and .* has 0"),
        (("eins\nzwei\n", "one\n \n"), r"tatoeba.de-en.en, line 2 is empty; remove that line from both sides"),
    ],
)
def test_sides_that_do_not_match_are_named(tmp_path: Path, sides: tuple[str, str], message: str):
    write(tmp_path, "tatoeba.de-en", ("de", "en"), sides)
    with pytest.raises(DataError, match=message):
        read_pair(find_pairs(tmp_path)["de"])


def test_a_missing_side_is_named(tmp_path: Path):
    (tmp_path / "tatoeba.de-en.en").write_text("one\n")
    with pytest.raises(DataError, match=r"tatoeba.de-en.de is missing"):
        read_pair(find_pairs(tmp_path)["de"])


def test_csls_takes_off_what_a_candidate_has_in_common_with_all():
    # Cosines with the two candidates: .91 and .10, .69 and .65. Twice that less the candidates' means, .80 and .38: the
    # second query is nearer to the second.
    english = np.eye(3, dtype=np.float32)[None, :2]
    other = np.array([[[0.9, 0.1, 0.4], [0.9, 0.85, 0.4]]], dtype=np.float32)
    assert layer_accuracies(other, english) == [0.5]
    assert layer_accuracies(other, english, csls=True) == [1.0]


def test_a_pair_cosine_is_the_mean_over_sentences_layer_by_layer():
    english = np.array([[[1, 0], [0, 2]], [[1, 1], [1, 0]]], dtype=np.float32)
    other = np.array([[[3, 0], [1, 0]], [[1, 0], [1, 0]]], dtype=np.float32)
    assert layer_cosines(other, english, shift=0) == pytest.approx([0.5, (0.5**0.5 + 1) / 2])
    assert layer_cosines(other, english, shift=1) == pytest.approx([0.5, (1 + 0.5**0.5) / 2])
    three, turned = np.eye(3, dtype=np.float32)[None], np.eye(3, dtype=np.float32)[None, [2, 0, 1]]
    assert layer_cosines(three, turned, shift=1) == [1.0], "each sentence with the translation of the next one"


def test_last4_is_the_mean_of_the_last_four_layers_without_the_embedding_layer():
    assert mean_of_last([1.0, 0.9, 0.1, 0.2, 0.3, 0.4]) == pytest.approx(0.25)
    assert mean_of_last([1.0, 0.2, 0.4]) == pytest.approx(0.3)


def test_every_language_and_layer_is_scored_with_chance_and_number(tmp_path: Path, make_bert: Callable[..., Path]):
    # Each German word has its English word's row, so that every layer retrieves all; French is English moved by one.
    rows = np.eye(3).tolist()
    vectors = dict(zip(["one", "two", "three"], rows, strict=True)) | dict(
        zip(["eins", "zwei", "drei"], rows, strict=True)
    )
    folder = make_bert(WORDS, vectors=vectors, xalign_objective="mlm", xalign_seed=5)
    write(tmp_path, "tatoeba.deu-eng", ("deu", "eng"), ("eins\nzwei\ndrei\n", "one\ntwo\nthree\n"))
    write(tmp_path, "tatoeba.fra-eng", ("fra", "eng"), ("one\ntwo\n", "two\none\n"))
    scores = TATOEBA.evaluate(str(folder), tmp_path)
    retrieval = [score for score in scores if score.metric == "tatoeba_accuracy"]
    found = {(score.language, score.layer): (score.value, score.chance, score.n) for score in retrieval}
    assert [found["de", layer] for layer in ("last", "last4", 0, 1, 2)] == [(1.0, 1 / 3, 3)] * 5
    assert [found["fr", layer] for layer in ("last", "last4", 0, 1, 2)] == [(0.0, 0.5, 2)] * 5
    assert found["all", "last4"] == (0.5, pytest.approx(5 / 12), 5)
    kinds = {(score.metric, score.pooling, type(score.layer)) for score in scores if score.chance is not None}
    assert kinds == {
        ("tatoeba_accuracy", "mean", str), ("tatoeba_accuracy", "mean", int), ("tatoeba_accuracy_csls", "mean", str),
        ("tatoeba_accuracy_csls", "mean", int), ("tatoeba_accuracy_cls", "cls", int),
        ("tatoeba_accuracy_from_english", "mean", str), ("tatoeba_accuracy_from_english", "mean", int),
    }  # fmt: skip
    assert len(retrieval) == 15
    assert {(s.task, s.split, s.pooling, s.metric, s.objective, s.seed) for s in retrieval} == {
        ("tatoeba", tmp_path.name, "mean", "tatoeba_accuracy", "mlm", 5)
    }
    assert TATOEBA.evaluate(str(folder), tmp_path, languages=["deu"])[:4] == scores[:4]
    cosines = {(s.metric, s.language): s.value for s in scores if s.metric.startswith("pair_cosine")}
    assert cosines["pair_cosine", "de"] == pytest.approx(1.0)
    assert cosines["pair_cosine_random", "fr"] == pytest.approx(1.0), "English moved by one, moved back"
    assert cosines["pair_cosine", "fr"] == pytest.approx(cosines["pair_cosine_random", "de"], abs=0.2)


def test_the_premium_is_the_pieces_of_sentences_for_each_of_their_translations(
    tmp_path: Path, make_bert: Callable[..., Path]
):
    """Ends of the tokenizer's own, which every sentence has, are no pieces of it."""
    write(tmp_path, "tatoeba.de-en", ("de", "en"), ("eins zwei drei\nzwei drei\n", "one two\nthree two\n"))
    write(tmp_path, "tatoeba.fr-en", ("fr", "en"), ("eins\n", "one two three two\n"))
    scores = TATOEBA.evaluate(str(make_bert(WORDS)), tmp_path)
    found = {s.language: (s.value, s.chance, s.n) for s in scores if s.metric == "tokenization_premium"}
    assert found == {"de": (5 / 4, None, 2), "fr": (1 / 4, None, 1), "all": (0.75, None, 3)}


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "own"])
def test_predictions_give_the_headline_again(tmp_path: Path, make_bert: Callable[..., Path], pooled: bool):
    """Exactly, in each language, and what counts in each single layer; cosines are no counts."""
    folder, data = make_bert(WORDS), tmp_path / "data"
    if pooled:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
        modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
        told = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
        (folder / "modules.json").write_text(json.dumps(told))
    german = [f"{first} {second}" for first in WORDS[3:] for second in WORDS[3:]]
    english = [f"{first} {second} {first}" for second in WORDS[:3] for first in WORDS[:3]]
    data.mkdir()
    for language, lines in (("de", german), ("fr", german[::-1])):
        write(data, f"tatoeba.{language}-en", (language, "en"), ("\n".join(lines), "\n".join(english)))
    scores = TATOEBA.evaluate(str(folder), data, predictions=tmp_path / "predictions")
    again = 0
    for language in ("de", "fr"):
        lines = (tmp_path / "predictions" / f"{language}.jsonl").read_text().splitlines()
        said = {row["key"]: row["prediction"] for row in map(json.loads, lines)}
        for one in (score for score in scores if score.language == language):
            if (measure := TATOEBA.measure_again(one, said)) is None:
                assert "cosine" in one.metric or one.metric == "tokenization_premium"
                continue
            assert (measure.value, measure.chance, measure.n) == (one.value, one.chance, one.n)
            again += 1
    assert again == 2 * (3 + 3 + 3 * 3 + 2)  # headlines, last4, three layers of each, two with first tokens that differ


def test_a_cell_of_a_study_keeps_what_its_sentences_found(tmp_path: Path, make_bert: Callable[..., Path]):
    folder, data = make_bert(WORDS), tmp_path / "data"
    data.mkdir()
    write(data, "tatoeba.de-en", ("de", "en"), ("\n".join(WORDS[3:]), "\n".join(WORDS[:3])))
    encoder = Encoder("mine", tmp_path, model=str(folder))
    what = {"kind": EVALUATION, "label": "mine", "task": "tatoeba", "data": (str(data),)}
    cell = Cell(source=encoder, resources=Resources(), **what)
    with pytest.raises(DataError, match=r"study is not there on .*All nodes must see --out"):
        run_cell(cell, tmp_path / "study", False)
    (tmp_path / "study").mkdir()
    run_cell(cell, tmp_path / "study", False)
    kept = cell.folder(tmp_path / "study")
    assert sorted(read_json(kept / "manifest.json", "")["files"]) == ["predictions/de.jsonl", "scores.json"]
    keys = [json.loads(line)["key"] for line in (kept / "predictions" / "de.jsonl").read_text().splitlines()]
    assert keys[:3] == ["tatoeba_accuracy", "tatoeba_accuracy_from_english", "tatoeba_accuracy_csls"]
    assert keys[3:5] == ["tatoeba_accuracy 0", "tatoeba_accuracy 1"]


@torch.no_grad()
def test_the_accuracy_by_the_first_token_is_that_of_its_vectors(tmp_path: Path, make_bert: Callable[..., Path]):
    folder = make_bert(WORDS)
    german = [f"{first} {second}" for first in WORDS[3:] for second in WORDS[3:]]
    english = [f"{first} {second}" for second in WORDS[:3] for first in WORDS[:3]]
    write(tmp_path, "tatoeba.de-en", ("de", "en"), ("\n".join(german), "\n".join(english)))
    scores = TATOEBA.evaluate(str(folder), tmp_path)
    assert {s.pooling for s in scores if s.metric == "tatoeba_accuracy_cls"} == {"cls"}
    found = {(s.metric, s.layer): s.value for s in scores if s.language == "de"}
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    left, right = (
        model(**tokenizer(side, return_tensors="pt"), output_hidden_states=True).hidden_states
        for side in (german, english)
    )
    assert ("tatoeba_accuracy_cls", 0) not in found, "before the first layer all first tokens are equal"
    for layer in (1, 2):
        queries, candidates = (torch.nn.functional.normalize(hidden[layer][:, 0], dim=-1) for hidden in (left, right))
        nearest = (queries @ candidates.T).argmax(dim=1)
        expected = (nearest == torch.arange(len(german))).float().mean().item()
        assert found["tatoeba_accuracy_cls", layer] == pytest.approx(expected)
    assert any(found["tatoeba_accuracy_cls", layer] != found["tatoeba_accuracy", layer] for layer in (1, 2))


def test_an_encoder_with_language_embeddings_refuses_the_others_before_it_computes(
    tmp_path: Path, make_bert: Callable[..., Path]
):
    folder = make_bert(WORDS, languages=["en", "de"])
    write(tmp_path, "tatoeba.de-en", ("de", "en"), ("eins\n", "one\n"))
    write(tmp_path, "tatoeba.fr-en", ("fr", "en"), ("un\n", "one\n"))
    with pytest.raises(DataError, match="has language embeddings for en, de, none for fr"):
        TATOEBA.evaluate(str(folder), tmp_path)
    assert {score.language for score in TATOEBA.evaluate(str(folder), tmp_path, languages=["de"])} == {"de", "all"}


@pytest.mark.parametrize(
    ("pooling", "own", "rule"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean", "(by its Sentence Transformers"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, "cls", "first token of the last layer"),
        ({"pooling_mode": "cls"}, "cls", "(by its Sentence Transformers files)"),
        (None, None, "mean of the last layer, no prompt (it has no modules.json; released"),
    ],
)
def test_headline_layer_is_the_one_that_the_encoder_is_made_for(
    tmp_path: Path,
    make_bert: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    pooling: dict[str, bool] | None,
    own: str | None,
    rule: str,
):
    folder = make_bert(WORDS)
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        kinds = {"": "Transformer", "1_Pooling": "Pooling"}
        modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
        (folder / "modules.json").write_text(json.dumps(modules))
    write(tmp_path, "tatoeba.deu-eng", ("deu", "eng"), ("eins zwei\ndrei\nzwei\n", "one two\nthree\ntwo\n"))
    scores = TATOEBA.evaluate(str(folder), tmp_path)
    of_metric = [score for score in scores if score.metric == "tatoeba_accuracy" and score.language == "de"]
    by_layer = {score.layer: score.value for score in of_metric}
    top = of_metric[0]
    by_first_token = {s.layer: s.value for s in scores if s.metric == "tatoeba_accuracy_cls" and s.language == "de"}
    expected = by_first_token[2] if own == "cls" else by_layer[2]
    assert (top.layer, top.pooling, top.value) == ("last", own or "mean", pytest.approx(expected))
    assert by_layer["last4"] == pytest.approx((by_layer[1] + by_layer[2]) / 2)
    papers = next(score.layer for score in scores if score.metric == "tatoeba_accuracy_from_english")
    assert papers == ("last" if own else "last4"), "papers print the mean of encoders that were made for no vector"
    assert top.vectors
    assert f"Sentence vectors: {top.vectors}." in capsys.readouterr().err
    assert rule in top.vectors
