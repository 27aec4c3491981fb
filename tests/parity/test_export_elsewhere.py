"""Exported folders, opened by transformers 4 and 5 without xalign_ray, compute what the trained encoder computed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    EuroBertConfig,
    EuroBertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

from tests.parity.stock import VERSIONS, run_stock
from xalign_ray.config.choices import DictionaryAlignment, MaskedLm
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.export import export, load_conditioned_head
from xalign_ray.objectives.combine import EncoderWithLosses
from xalign_ray.vocabulary.tokenizer import train_bpe
from xalign_ray.vocabulary.tokenizer_folder import save_tokenizer, wrap_tokenizer

LANGUAGES = ["en", "de", "hi"]
LENGTH = 12
SHAPE = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
SENTENCES = ["the cat sees a dog", "die Katze sieht einen Hund", "one two three, four."] * 4
FACTS = {"recipe": "tiny/test", "fingerprint": "ab" * 32, "step": 20}
MODELS = {
    "plain": SHAPE,
    "language_embeddings": SHAPE | {"language_embeddings": True},
    "conditioned_head": SHAPE | {"language_embeddings": True, "conditioned_head": True},
    "continued": {},
    "xlm-r": SHAPE | {"family": "xlm-r"},
    "xlm-r-language_embeddings": SHAPE | {"family": "xlm-r", "language_embeddings": True},
    "xlm-r-conditioned_head": SHAPE | {"family": "xlm-r", "language_embeddings": True, "conditioned_head": True},
    "modernbert": SHAPE | {"family": "modernbert"},
    "continued-modernbert": {},
    "roberta": SHAPE | {"family": "roberta"},
    "eurobert": SHAPE | {"family": "eurobert"},
    "continued-eurobert": {},
}
OF_TWO_SEGMENTS = ("plain", "language_embeddings", "conditioned_head", "continued")
NOT_IN_4 = ("eurobert", "continued-eurobert")
CASES = [(name, version) for name in MODELS for version in VERSIONS if version == "5" or name not in NOT_IN_4]

# What a user writes: a folder and transformers, nothing else; positions are as the stock model makes them.
STRANGER = """
import json
import numpy as np, torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer
batch = {key: torch.from_numpy(value).long() for key, value in np.load("given.npz").items()}
version, *folders = sys.argv[1:]
for folder in folders:
    config = json.load(open(folder + "/export/config.json"))
    types = batch["segment_ids"].clamp(max=config["xalign_segments"] - 1)
    if config["xalign_languages"]:
        types = types + config["xalign_segments"] * batch["language_ids"]
    call = dict(input_ids=batch["input_ids"], attention_mask=batch["example_ids"])
    if "type_vocab_size" in config:
        call["token_type_ids"] = types
    saved = {}
    with torch.no_grad():
        saved["hidden"] = AutoModel.from_pretrained(folder + "/export").eval()(**call).last_hidden_state.numpy()
        if config["architectures"][0].endswith("ForMaskedLM"):
            model = AutoModelForMaskedLM.from_pretrained(folder + "/export").eval()
            saved["logits"] = model(**call).logits.numpy()
    tokenizer = AutoTokenizer.from_pretrained(folder + "/export")
    saved["ids"] = np.array(tokenizer("die cat sees, einen Hund")["input_ids"])
    np.savez(folder + "/theirs-" + version + ".npz", **saved)
"""


class Prepared(SimpleNamespace):
    """The part of shards/prepared.py that export reads."""

    def pair_words(self, split):
        return {"trained": [["en", "cat", "de", "Katze"]], "held_out": [["en", "dog", "de", "Hund"]]}[split]


def run_config(model, dictionaries=()):
    return RunConfig.model_validate(
        {
            "seed": 3,
            "data": {
                "corpora": [{"format": "text", "language": code, "paths": [f"{code}.txt"]} for code in LANGUAGES],
                "dictionaries": dictionaries,
                "max_seq_length": LENGTH,
            },
            "model": {"hidden_dropout_prob": 0.1, **model},
            "train": {"max_steps": 20, "global_batch_size": 4},
        }
    )


def random_batch(vocab):
    """Two rows of one example each, the second one padded."""
    random = np.random.default_rng(0)
    shape = (2, LENGTH)
    examples = np.ones(shape, np.int32)
    examples[1, 8:] = 0
    return {
        "input_ids": random.integers(5, vocab, shape, dtype=np.int32),
        "position_ids": np.tile(np.arange(LENGTH, dtype=np.int32), (2, 1)),
        "segment_ids": random.integers(0, 2, shape, dtype=np.int32),
        "language_ids": random.integers(0, len(LANGUAGES), shape, dtype=np.int32) * examples,
        "example_ids": examples,
    }


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer = wrap_tokenizer(train_bpe(BpeTokenizer(vocab_size=100), lambda: SENTENCES))
    save_tokenizer(tokenizer, folder)
    return Prepared(
        languages=LANGUAGES,
        vocab_size=len(tokenizer),
        special=SimpleNamespace(pad=tokenizer.pad_token_id),
        tokenizer_folder=folder,
    )


def train_and_export(name, prepared, root):
    """An encoder away from its first weights, its answers to `given.npz`, and its folder `<name>/export`."""
    torch.manual_seed(1)
    model = MODELS[name]
    if name.startswith("continued"):
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
        sizes |= {"vocab_size": prepared.vocab_size + 8}
        rope = {"full_attention": {"rope_theta": 5000.0}, "sliding_attention": {"rope_theta": 77.0}}  # not the defaults
        if name.endswith("modernbert"):
            stock = ModernBertConfig(**sizes, pad_token_id=0, local_attention=4, rope_parameters=rope)
            start = ModernBertForMaskedLM(stock)
        elif name.endswith("eurobert"):
            start = EuroBertForMaskedLM(EuroBertConfig(**sizes, num_key_value_heads=1, pad_token_id=0, rope_theta=77.0))
        else:
            start = BertForMaskedLM(BertConfig(**sizes))
        start.save_pretrained(root / f"start-{name}")
        model = {"init_from": str(root / f"start-{name}")}
    config = run_config(model)
    encoder = build_encoder(config.model, prepared.vocab_size, LANGUAGES, LENGTH, prepared.special.pad)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    objectives = EncoderWithLosses(encoder.eval(), [MaskedLm()], None, seed=0)
    export(objectives.state_dict(), config, prepared, root / name / "export", FACTS)
    batch = dict(np.load(root / "given.npz"))
    real = batch["example_ids"] > 0
    tensors = {key: torch.from_numpy(value) for key, value in batch.items()}
    with torch.no_grad():
        hidden = encoder.encode(tensors)[torch.from_numpy(real)]
        logits = encoder.predict(hidden, tensors["language_ids"][torch.from_numpy(real)])
    return {"batch": batch, "real": real, "hidden": hidden.numpy(), "logits": logits.numpy()}


@pytest.fixture(scope="module")
def everything(prepared, tmp_path_factory):
    """Each model's answers beside what another process a version computed from all exported folders."""
    root = tmp_path_factory.mktemp("export")
    np.savez(root / "given.npz", **random_batch(prepared.vocab_size))
    ours = {name: train_and_export(name, prepared, root) for name in MODELS}
    for version in VERSIONS:
        run_stock(version, STRANGER, version, *(name for name, other in CASES if other == version), cwd=root)
    return {
        (name, version): SimpleNamespace(
            name=name,
            folder=root / name / "export",
            theirs=dict(np.load(root / name / f"theirs-{version}.npz")),
            config=json.loads((root / name / "export" / "config.json").read_text()),
            **answers,
        )
        for name, version in CASES
        for answers in [ours[name]]
    }


@pytest.fixture(params=CASES, ids=" in ".join)
def opened(request, everything):
    return everything[request.param]


def test_hidden_states_are_those_of_the_trained_encoder(opened):
    assert np.abs(opened.theirs["hidden"][opened.real] - opened.hidden).max() < 1e-5


def test_logits_are_those_of_the_trained_encoder(opened):
    if opened.name.endswith("conditioned_head"):
        assert "logits" not in opened.theirs
        theirs = conditioned_logits(opened)
    else:
        theirs = opened.theirs["logits"][opened.real]
    assert np.abs(theirs - opened.logits).max() < 1e-5
    assert np.abs(opened.logits).max() > 0.5


def conditioned_logits(opened):
    head = load_conditioned_head(opened.folder, AutoModel.from_pretrained(opened.folder))
    languages = torch.from_numpy(opened.batch["language_ids"][opened.real]).long()
    with torch.no_grad():
        return head(torch.from_numpy(opened.theirs["hidden"][opened.real]), languages).numpy()


def test_the_config_says_languages_segments_and_where_it_came_from(opened):
    with_languages = opened.name.endswith(("language_embeddings", "conditioned_head"))
    assert opened.config["xalign_languages"] == (LANGUAGES if with_languages else [])
    segments = 2 if opened.name in OF_TWO_SEGMENTS else 1
    assert opened.config["xalign_segments"] == segments
    if not opened.name.endswith(("modernbert", "eurobert")):  # which have no token types
        assert opened.config["type_vocab_size"] == segments * (3 if with_languages else 1)
    expected = {"objective": "mlm", "recipe": "tiny/test", "fingerprint": "ab" * 32, "seed": 3, "step": 20}
    assert {key: opened.config[f"xalign_{key}"] for key in expected} == expected


def test_the_tokenizer_gives_the_ids_of_the_run(opened, prepared):
    ours = AutoTokenizer.from_pretrained(prepared.tokenizer_folder)("die cat sees, einen Hund")["input_ids"]
    assert opened.theirs["ids"].tolist() == ours
    assert len(set(ours)) > 5


def test_language_reaches_the_exported_model_by_token_type(opened):
    if not opened.config["xalign_languages"]:
        assert opened.config.get("type_vocab_size", 1) == opened.config["xalign_segments"]
        return
    model = AutoModel.from_pretrained(opened.folder).eval()
    ids = torch.from_numpy(opened.batch["input_ids"]).long()
    with torch.no_grad():
        first, second = (model(input_ids=ids, token_type_ids=ids * 0 + types).last_hidden_state for types in (0, 2))
    assert (first - second).abs().max() > 1e-2


def test_a_run_with_a_dictionary_exports_the_pairs_that_the_probe_scores(prepared, tmp_path):
    named = [{"languages": ["en", "de"], "paths": ["en-de.txt"]}]
    config = run_config(SHAPE, named)
    config = config.model_copy(update={"objectives": (MaskedLm(), DictionaryAlignment())})
    encoder = build_encoder(config.model, prepared.vocab_size, LANGUAGES, LENGTH, prepared.special.pad)
    state = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    export(state, config, prepared, tmp_path / "export", FACTS)
    assert json.loads((tmp_path / "export" / "dictionary_pairs.json").read_text()) == {
        "trained": [["en", "cat", "de", "Katze"]],
        "held_out": [["en", "dog", "de", "Hund"]],
    }
    assert json.loads((tmp_path / "export" / "config.json").read_text())["xalign_objective"] == "align-mlm"
