"""Released kinds of 2024 to 2026 with random weights: continued, exported, opened by Sentence Transformers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Normalize, Pooling, Transformer
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from tests.parity.train.live import train_here
from tests.parity.train.pool import Pool
from tests.parity.train.synthetic import Interrupted, losses
from tests.ray.small import batches
from tests.unit.conftest import prepare_here
from tests.unit.models.test_generic import write_stock
from xalign_ray import exports
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import open_local
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors
from xalign_ray.objectives.sentences import COLUMNS, sentence_rows
from xalign_ray.planning.memory import state_of
from xalign_ray.planning.subject import Subject, subject_of
from xalign_ray.shards.prepared import Prepared
from xalign_ray.train.distributed import Workers
from xalign_ray.train.loop import build_model, train
from xalign_ray.train.step import tensors
from xalign_ray.work.job import Job

FACTS = {"recipe": "tiny/mlm", "fingerprint": "ab" * 32}
LENGTH = 40
TEXTS = ["en1 en2 en3", "de7", "en11 de12 en13 en14 en15 en16 en17", "en5 en6 " * 40]


@dataclass(frozen=True)
class Shape:
    """A released encoder: stock class, pooling, tokenizer (a released one, or whole words), prompt of queries."""

    stock: str
    pooling: str
    tokenizer: str = ""
    prompt: str = ""
    behind: list[Any] = field(default_factory=list)
    stages: tuple[int, ...] = (3,)

    def write(self, folder: Path, name: str, models: Path | None = None, seed: int = 3) -> None:
        write_stock(folder / "stock", self.stock, seed, *([self._vocabulary(models)] if models else []))
        if self.pooling == "lasttoken" or models:
            self._tokenizer(folder / "stock", models).save_pretrained(folder / "stock")
        transformer = Transformer(str(folder / "stock"), max_seq_length=LENGTH)
        modules = [transformer, Pooling(16, pooling_mode=self.pooling), *self.behind, Normalize()]
        named = {"query": self.prompt, "document": ""} if self.prompt else {}
        SentenceTransformer(modules=modules, prompts=named, device="cpu").save(str(folder / name))
        shutil.rmtree(folder / "stock")

    def _vocabulary(self, models: Path) -> int:
        return Tokenizer.from_file(str(models / self.tokenizer / "tokenizer.json")).get_vocab_size()

    def _tokenizer(self, words: Path, models: Path | None) -> Any:
        """Behind a text one token and none before it, as Qwen3-Embedding's, where the last token is pooled."""
        backend = Tokenizer.from_file(str((models / self.tokenizer if models else words) / "tokenizer.json"))
        begin, end, other, pad = {
            "": ("", "[SEP]", "[CLS]", "[PAD]"),
            "llama3": ("", "<|end_of_text|>", "<|eot_id|>", "<|end_of_text|>"),
            "gemma": ("<bos>", "<eos>", "<eos>", "<pad>"),
        }[self.tokenizer if models else ""]
        named = [(token, backend.token_to_id(token)) for token in (begin, end) if token]
        template = processors.TemplateProcessing(single=f"{begin} $A {end}".strip(), special_tokens=named)
        is_bytes = self.tokenizer == "llama3" and models
        before = [processors.ByteLevel(trim_offsets=False)] if is_bytes else []
        backend.post_processor = processors.Sequence([*before, template])  # type: ignore[list-item]
        special = {"eos_token": other, "pad_token": pad} | ({"bos_token": begin} if begin else {})
        side = "left" if self.pooling == "lasttoken" else "right"
        return PreTrainedTokenizerFast(tokenizer_object=backend, padding_side=side, **special)


def dense() -> list[Any]:
    """As EmbeddingGemma's: wider and back, without bias or activation."""
    torch.manual_seed(5)
    identity = torch.nn.Identity()
    return [
        Dense(16, 40, bias=False, activation_function=identity),
        Dense(40, 12, bias=False, activation_function=identity),
    ]


QWEN3, GEMMA = "Instruct: Find the translation.\nQuery:", "task: search result | query: "
SHAPES = {
    "qwen3-embedding": Shape("Qwen3", "lasttoken", "llama3", QWEN3, stages=(1, 2, 3)),
    "embeddinggemma": Shape("Gemma3Text", "mean", "gemma", GEMMA, dense(), (1, 2, 3)),
    "gte": Shape("Gte", "cls"),
    "jina-v3": Shape("JinaEmbeddingsV3", "mean"),
    "nomic": Shape("NomicBert", "mean", prompt="search_query: "),
    "labse": Shape("Gte", "cls", behind=[Dense(16, 16), LayerNorm(16)]),
}
DISTILLED = ("qwen3-embedding", "embeddinggemma", "gte")  # each way to pool
CASES = [pytest.param((name, "words"), id=f"{name}-words") for name in SHAPES]
CASES += [
    pytest.param((name, "released"), id=f"{name}-released", marks=pytest.mark.models)
    for name, shape in SHAPES.items()
    if shape.tokenizer
]


@pytest.fixture(scope="module", params=CASES)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shape, Path]:
    """A shape, and a folder with an encoder of it, for some another of the same width as a teacher, and pairs."""
    name, tokenizer = request.param
    if tokenizer == "words":
        return SHAPES[name], written(tmp_path_factory.mktemp(name), name)
    # A released tokenizer changes what is exported and opened, not what a stage computes.
    folder = written(tmp_path_factory.mktemp(name), name, request.getfixturevalue("released_models"))
    return replace(SHAPES[name], stages=()), folder


def written(folder: Path, name: str, models: Path | None = None) -> Path:
    SHAPES[name].write(folder, "base", models)
    if name in DISTILLED and not models:
        SHAPES[name].write(folder, "teacher", seed=4)
    rng = np.random.default_rng(1)
    numbers = [rng.choice(120, rng.integers(3, 9)) for _ in range(300)]
    for code in ("en", "de"):
        lines = [" ".join(f"{code}{number}" for number in some) for some in numbers]
        (folder / f"pairs.{code}").write_text("\n".join(lines) + "\n")
    return folder


def continued(folder: Path, method: str, *more: str, steps: int = 4) -> RunConfig:
    """The recipe that `xalign continue` makes of them, in small."""
    rule = open_encoder(folder / "base").sentences.rule
    kind = {"contrast": "sentence_contrast", "distill": "distillation"}[method]
    teacher = ["data.teacher=" + json.dumps({"path": str(folder / "teacher"), "language": "en"})]
    settings = [
        *batches(8, 8, steps, saved_every=steps),
        *(teacher if method == "distill" else []),
        *("train.pairs_per_step=0", "train.optimizer.learning_rate=0.01", "train.schedule.warmup_steps=1"),
        *(f"data.root={folder}", f"output={folder / 'out'}", f"model.init_from={folder / 'base'}"),
        f"data.tokenizer={{kind: folder, path: {folder / 'base'}}}",
        *(f"data.max_seq_length={LENGTH}", "data.reserve_fraction=0.6", "parallel.workers=1"),
        "data.parallel=[{format: moses, languages: [en, de], paths: [pairs.en, pairs.de]}]",
        "streams=" + json.dumps([{"kind": "contrasted_pairs", "text": "none", "prompt": rule.prompt}]),
        "objectives=" + json.dumps([{"kind": kind, "pooling": rule.pooling}]),
        *more,
    ]
    return load_recipe(f"continue/{method}", settings).config


def theirs(folder: Path, prompt: str) -> np.ndarray:
    """The vectors of Sentence Transformers."""
    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS, prompt=prompt, normalize_embeddings=True)


def ours(folder: Path) -> np.ndarray:
    return SentenceVectors(open_encoder(folder), "cpu").encode(TEXTS)


def test_what_is_trained_is_the_vector_of_sentence_transformers(encoder: tuple[Shape, Path]) -> None:
    shape, folder = encoder
    expected = theirs(folder / "base", shape.prompt)
    np.testing.assert_allclose(ours(folder / "base"), expected, atol=1e-5)
    config = continued(folder, "contrast")
    prepared, tokenizer = prepare_here(config), open_encoder(folder / "base").tokenizer
    model = build_model(config, prepared).eval()
    ids = [tokenizer(shape.prompt + text, truncation=True, max_length=LENGTH).input_ids for text in TEXTS]
    given = torch.nn.utils.rnn.pad_sequence([torch.tensor(one) for one in ids], batch_first=True)
    examples = torch.nn.utils.rnn.pad_sequence(
        [torch.ones(len(one), dtype=torch.long) for one in ids], batch_first=True
    )
    batch = {"input_ids": given, "example_ids": examples, "position_ids": examples.cumsum(1) - 1}
    batch |= dict.fromkeys(("segment_ids", "language_ids"), torch.zeros_like(given))
    with torch.no_grad():
        vectors = model(batch, (0, 1), 0, pooling=config.objectives[0].pooling)["vectors"]  # type: ignore[attr-defined]
    np.testing.assert_allclose(torch.nn.functional.normalize(vectors).numpy(), expected, atol=1e-5)
    lines = [line for code in ("en", "de") for line in (folder / f"pairs.{code}").read_text().splitlines()]
    known = {tuple(tokenizer(shape.prompt + line).input_ids) for line in lines}
    batch = tensors(next(open_local(prepared, config, 0, 0)), torch.device("cpu"), also=COLUMNS)
    rows = sentence_rows(batch, "query")
    sentences = rows["input_ids"].flatten()[rows["real_at"]].split(rows["offsets"].diff().tolist())
    framed = [tuple(one.tolist()) for one in sentences]  # the end of some is cut off
    assert all(any(ids[: len(one) - 1] + ids[-1:] == one for ids in known) for one in framed)
    assert len(sentences) >= 8


def train_one(workers: Workers, config: RunConfig, prepared_folder: Path, folder: Path) -> None:
    train_here(workers, config, Prepared.open(prepared_folder), folder, FACTS)


CONTINUED = [pytest.param(*case.values, "contrast", marks=case.marks, id=f"{case.id}-contrast") for case in CASES]
CONTINUED += [pytest.param((name, "words"), "distill", id=f"{name}-words-distill") for name in DISTILLED]


@pytest.mark.parametrize(("encoder", "method"), CONTINUED, indirect=["encoder"], scope="module")
def test_continued_alike_at_each_zero_stage_and_exported(
    one: Pool, encoder: tuple[Shape, Path], tmp_path: Path, method: str
) -> None:
    shape, folder = encoder
    config, steps = continued(folder, method), []
    prepared = prepare_here(config)
    for stage in (0, *(shape.stages if method == "contrast" else (3,))):
        run = tmp_path / f"zero-{stage}"
        run.mkdir()
        at_stage = config.model_copy(update={"parallel": config.parallel.model_copy(update={"zero_stage": stage})})
        one.call(train_one, at_stage, prepared.folder, run)
        steps.append(losses(run))
        np.testing.assert_allclose(steps[-1], steps[0], rtol=1e-4)
    assert steps[0][-1] < steps[0][0]
    exported = exports.export_run(Recipe("x", config, {}), prepared, run, dict(FACTS))
    expected = theirs(exported, shape.prompt)
    np.testing.assert_allclose(ours(exported), expected, atol=1e-5)
    assert np.abs(expected - theirs(folder / "base", shape.prompt)).max() > 1e-3
    modules = [[type(module) for module in SentenceTransformer(str(path))] for path in (folder / "base", exported)]
    assert modules[0] == modules[1]
    form = exports.sentence_form(config)
    again = exports.export_run(Recipe("x", config, {}), prepared, run, dict(FACTS), out=tmp_path / "again", form=form)
    np.testing.assert_allclose(theirs(again, shape.prompt), expected, atol=1e-5)


def train_until(workers: Workers, config: RunConfig, prepared: Path, folder: Path, until: int | None = None) -> None:
    """Trains, from the newest checkpoint on, until the feed breaks off at a step."""
    data = Prepared.open(prepared)

    def batches_from(first: int, rank: int, _: int) -> Iterator[Any]:
        for number, batch in enumerate(open_local(data, config, first, rank), first):
            if number == until:
                raise Interrupted
            yield batch

    train(Job(folder, FACTS), config, data, batches_from, workers)


@pytest.mark.parametrize(("stage", "bf16"), [(0, False), (2, True), (3, False)])
def test_lora_is_killed_resumed_and_merged(two: Pool, tmp_path: Path, stage: int, bf16: bool) -> None:
    folder = written(tmp_path / "given", "qwen3-embedding")
    asked = [f"parallel.zero_stage={stage}", f"train.bf16={bf16}".lower(), "parallel.workers=2", "model.lora={rank: 4}"]
    config = continued(folder, "contrast", *asked, "checkpoint.save_steps=2", "checkpoint.async_save=false", steps=6)
    prepared = prepare_here(config)
    for name, until in (("straight", None), ("cut", 5), ("cut", None)):
        (tmp_path / name).mkdir(exist_ok=True)
        with pytest.raises(Interrupted) if until else nullcontext():
            two.call(train_until, config, prepared.folder, tmp_path / name, until)
    recipe = Recipe("x", config, {})
    states = [
        exports._weights(recipe, prepared, tmp_path / name, FACTS["fingerprint"], None, False)[0]
        for name in ("straight", "cut")
    ]
    assert all(torch.equal(weight, states[1][name]) for name, weight in states[0].items())
    exported = exports.export_run(recipe, prepared, tmp_path / "cut", dict(FACTS))
    np.testing.assert_allclose(ours(exported), theirs(exported, QWEN3), atol=1e-5)
    half = exports.export_run(recipe, prepared, tmp_path / "cut", dict(FACTS), out=tmp_path / "half", merge=0.5)
    base, whole, mixed = (load_file(path / "model.safetensors") for path in (folder / "base", exported, half))
    assert base.keys() == whole.keys()
    moved = {name for name, weight in base.items() if not torch.equal(weight, whole[name])}
    assert moved == {name for name in base if "_proj" in name}, "all linear layers, and what is frozen is the base's"
    assert all(torch.allclose(mixed[name], (base[name] + whole[name]) / 2, atol=1e-6) for name in base)
    model, subject = build_model(config, prepared), subject_of(recipe)
    assert isinstance(subject, Subject)
    assert subject.trained == sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert state_of(config, subject.trained, subject.frozen)["optimizer state"] == 8 * subject.trained / (
        2 if stage else 1
    )
    saved = sum(file.stat().st_size for file in (tmp_path / "cut" / "checkpoints" / "step_000006").rglob("*.pt"))
    assert saved < 4 * subject.sizes.total * 3, "no frozen weight is saved"
