"""Folders of Sentence Transformers: that package and we make the same vectors of those of either."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, LayerNorm, Normalize, Pooling, Transformer

from tests.parity.english_base import SMALL, write_english_base
from tests.unit.conftest import make_config, prepare_here
from tests.unit.tasks.conftest import make_bert_in
from xalign_ray import evaluate, exports
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.export import export
from xalign_ray.models.open import open_encoder
from xalign_ray.models.sentence_files import read_sentence_files
from xalign_ray.models.vectors import SentenceVectors, vector_width
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.loop import build_model

FACTS = {"recipe": "continue/contrast", "fingerprint": "ab" * 32, "step": 0}
CONTRAST = ["streams=[{kind: contrasted_pairs, text: none}]"]
TEXTS = ["wb we wc", "the wd of wb, wj!", "we", "wf wb " * 90]


def own_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    """The vectors that we make as the folder's files say."""
    return SentenceVectors(open_encoder(folder), "cpu").encode(texts)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Prepared]:
    """A recipe that continues a small encoder by contrast, and its data."""
    root = tmp_path_factory.mktemp("sentence")
    write_english_base(root)
    given = [f"model.init_from={root / 'base'}", f"data.tokenizer={{kind: folder, path: {root / 'base'}}}"]
    config = make_config(root, *SMALL, *CONTRAST, "objectives=[{kind: sentence_contrast, pooling: cls}]", *given)
    return config, prepare_here(config)


def written(base: tuple[RunConfig, Prepared], folder: Path, **asked: Any) -> Path:
    config, prepared = base
    form = exports.sentence_form(config, **asked)
    export(build_model(config, prepared).state_dict(), config, prepared, folder, FACTS, form)
    return folder


@pytest.mark.parametrize(
    ("asked", "pooling", "prompt"),
    [
        ({}, "cls", ""),  # as the loss pools
        ({"pooling": "mean"}, "mean", ""),
        ({"prompts": ["query=wb: ", "passage=wc: "]}, "cls", "wb: "),
        ({"pooling": "mean", "prompts": ["passage=wc: ", "query=wb: "]}, "mean", "wc: "),
    ],
)
def test_an_export_gives_sentence_transformers_our_vectors(
    base: tuple[RunConfig, Prepared], tmp_path: Path, asked: dict[str, Any], pooling: str, prompt: str
) -> None:
    folder = written(base, tmp_path / "export", **asked)
    theirs = SentenceTransformer(str(folder), device="cpu")
    files = read_sentence_files(str(folder))
    assert (files.pooling, files.prompt, files.max_length) == (pooling, prompt, theirs.max_seq_length)
    vectors = theirs.encode(TEXTS)
    np.testing.assert_allclose(own_vectors(folder, TEXTS), vectors, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    if prompt:
        assert np.abs(theirs.encode(TEXTS, prompt="") - vectors).max() > 1e-4
    hashed = json.loads((folder / "manifest.json").read_text())["files"]
    assert {"modules.json", "1_Pooling/config.json", "config_sentence_transformers.json"} <= hashed.keys()


def test_what_it_saves_gives_us_its_vectors(tmp_path: Path) -> None:
    bert = make_bert_in(tmp_path / "bert", ["wb", "wc", "wd", "##e"], positions=64)
    transformer = Transformer(str(bert), max_seq_length=20)
    pooling = Pooling(transformer.get_embedding_dimension(), pooling_mode="mean")
    theirs = SentenceTransformer(
        modules=[transformer, pooling, Normalize()], prompts={"query": "wd "}, default_prompt_name="query", device="cpu"
    )
    theirs.save(str(tmp_path / "saved"))
    np.testing.assert_allclose(own_vectors(tmp_path / "saved", TEXTS), theirs.encode(TEXTS), atol=1e-5)


def test_a_text_is_cut_where_the_files_say_also_beyond_512_pieces(tmp_path: Path) -> None:
    bert = make_bert_in(tmp_path / "bert", ["wb", "wc", "wd"], positions=1024)
    texts = ["wd " * count + "wc wb" for count in (600, 690, 720)]
    theirs = SentenceTransformer(modules=[Transformer(str(bert), max_seq_length=700), Pooling(16)], device="cpu")
    theirs.save(str(tmp_path / "saved"))
    np.testing.assert_allclose(own_vectors(tmp_path / "saved", texts), theirs.encode(texts), atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "prompts"),
    [
        ("cls", {"query": "wd we: ", "passage": "we: "}),
        (None, {}),  # an encoder without files of Sentence Transformers, for which both take the mean
    ],
)
def test_evaluate_finds_the_translations_that_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pooling: str | None, prompts: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [f"{letter}{vowel}" for letter in "bdfgklmnpst" for vowel in "aeiou"]
    folder = make_bert_in(tmp_path / "bert", [*words, "wd", "we", ":"], positions=64)
    theirs = SentenceTransformer(str(folder), device="cpu")
    if pooling:
        transformer = Transformer(str(folder), max_seq_length=9)  # of up to 10 words: some sentences are cut
        modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling), Normalize()]
        theirs, folder = SentenceTransformer(modules=modules, prompts=prompts, device="cpu"), tmp_path / "saved"
        theirs.save(str(folder))
    rng, expected = random.Random(5), {}
    for language, kept in (("de", 8), ("sw", 3)):
        english = [rng.sample(words, rng.randrange(3, 11)) for _ in range(100)]
        other = [[*line[:kept], *rng.sample(words, 3)] for line in english]
        sides = [[" ".join(line) for line in side] for side in (other, english)]
        for end, lines in zip((language, "en"), sides, strict=True):
            (tmp_path / f"tatoeba.{language}-en.{end}").write_text("\n".join(lines) + "\n")
        first, second = (theirs.encode(lines, prompt=prompts.get("query")) for lines in sides)
        right = theirs.similarity(first, second).argmax(dim=1).numpy() == np.arange(len(english))
        expected[language] = 100 * right.mean()
    scores = evaluate(folder, "tatoeba", tmp_path)
    ours = scores[(scores.metric == "tatoeba_accuracy") & (scores.layer == "last")].set_index("language").value * 100
    assert {language: ours[language] for language in expected} == pytest.approx(expected, abs=0.1)
    assert 99 > expected["de"] > expected["sw"] > 1  # chance is 1


@pytest.mark.parametrize(
    ("pooling", "behind", "width"),
    [
        ("mean", [Dense(16, 6), Normalize()], 6),
        ("cls", [Dense(16, 6), LayerNorm(6)], 6),
        ("max", [], 16),
        ("lasttoken", [Normalize()], 16),
        (("mean", "max"), [], 32),
        ({"pooling_mode": "mean", "include_prompt": False}, [], 16),  # INSTRUCTOR's
    ],
    ids=str,
)
def test_its_poolings_and_modules_make_its_vectors(tmp_path: Path, pooling: Any, behind: list[Any], width: int) -> None:
    bert = make_bert_in(tmp_path / "bert", ["wb", "wc", "wd", "##e"], positions=64)
    pooled = Pooling(16, **(pooling if isinstance(pooling, dict) else {"pooling_mode": pooling}))
    theirs = SentenceTransformer(
        modules=[Transformer(str(bert), max_seq_length=20), pooled, *behind],
        prompts={"query": "wd "}, default_prompt_name="query", device="cpu",
    )  # fmt: skip
    folder = tmp_path / "saved"
    theirs.save(str(folder))
    assert vector_width(open_encoder(folder)) == width
    np.testing.assert_allclose(own_vectors(folder, TEXTS), theirs.encode(TEXTS), atol=1e-5)
    opened = open_encoder(folder)
    if isinstance(pooling, str | dict):  # as `continue` scores an export by its base's rule
        by_rule = SentenceVectors(opened, "cpu", rule=opened.sentences.rule).encode(TEXTS)
        np.testing.assert_array_equal(by_rule, own_vectors(folder, TEXTS))
    layers = SentenceVectors(opened, "cpu").layers(TEXTS, "en", "mean")[1]
    assert {len(vectors) for vectors in layers.values()} == {3}
    modules = (folder / "modules.json").read_text()
    (folder / "modules.json").write_text(modules.replace('"sentence_transformers.', '"custom_st.'))
    with pytest.raises(DataError, match=r"makes its vectors by a module custom_st\.\S+, whose code is not run here"):
        SentenceVectors(open_encoder(folder), "cpu")


def test_an_export_continues_with_the_prompts_and_length_of_its_start(
    base: tuple[RunConfig, Prepared], tmp_path: Path
) -> None:
    config, _ = base
    first = written(base, tmp_path / "first", prompts=["query=wb: "])
    (first / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9}))
    again = config.model_copy(update={"model": config.model.model_copy(update={"init_from": str(first)})})
    form = exports.sentence_form(again, prompts=["passage=wc: "])
    assert (form.pooling, form.max_length, form.default_prompt) == ("cls", 9, "passage")
    assert form.prompts == {"query": "wb: ", "passage": "wc: "}


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"pooling": "max"}, "--pooling max: it is mean, cls or lasttoken."),
        ({"prompts": ["query: "]}, "--prompt 'query: ': give a name and a text, such as 'query=query: '."),
        ({"prompts": ["=x"]}, "--prompt '=x': give a name and a text"),
    ],
)
def test_an_option_that_means_nothing_is_refused(
    base: tuple[RunConfig, Prepared], asked: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        exports.sentence_form(base[0], **asked)
    assert fault in str(refused.value)


def test_an_encoder_with_language_embeddings_is_refused(base: tuple[RunConfig, Prepared]) -> None:
    model = base[0].model.model_copy(update={"language_embeddings": True})
    with pytest.raises(ConfigError, match="Sentence Transformers passes no language on"):
        exports.sentence_form(base[0].model_copy(update={"model": model}))
