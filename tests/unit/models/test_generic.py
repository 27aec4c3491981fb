"""Encoders that no family file names: as their stock class computes, refused what they cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests.unit.conftest import make_config, prepare_here, write_inputs
from tests.whole_words import write_encoder
from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.backbone import backbone
from xalign_ray.models.encoder import build_encoder, check_opens
from xalign_ray.models.export import export
from xalign_ray.models.families import find_family
from xalign_ray.models.sizes import Operations, count_in
from xalign_ray.train.loop import build_model

FACTS: Any = {"recipe": "continue/contrast", "fingerprint": "ab" * 32, "step": 0}
CONTRAST = ["streams=[{kind: contrasted_pairs, text: none}]", "objectives=[{kind: sentence_contrast}]"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
POSITIONS = {"max_position_embeddings": 40}
STOCK = {  # class, and sizes by its own names
    "MPNet": {**SIZES, "max_position_embeddings": 42},
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, **POSITIONS},
    "Electra": {**SIZES, **POSITIONS, "embedding_size": 8},
    "Albert": {**SIZES, **POSITIONS, "embedding_size": 8},
    "XLM": {"emb_dim": 16, "n_layers": 2, "n_heads": 2, **POSITIONS},
    "NomicBert": {**SIZES, **POSITIONS},
    "Gte": {**SIZES, **POSITIONS},
    "JinaEmbeddingsV3": {**SIZES, **POSITIONS},
    "Qwen3": {**SIZES, **POSITIONS, "num_key_value_heads": 1, "head_dim": 8},  # causal
    "Gemma3Text": {**SIZES, **POSITIONS, "num_key_value_heads": 1, "head_dim": 8, "use_bidirectional_attention": True},
    "T5Encoder": {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32, "d_kv": 8},
}
WORDS = [f"{code}{number}" for code in ("en", "de") for number in range(120)]
VOCABULARY = 5 + len(WORDS)


def write_stock(folder: Path, kind: str, seed: int = 3, vocabulary: int = VOCABULARY) -> None:
    write_encoder(folder, WORDS, **SIZES)
    torch.manual_seed(seed)
    config_class = getattr(transformers, f"{kind.removesuffix('Encoder')}Config")
    config = config_class(**{"vocab_size": vocabulary, "pad_token_id": 0, **STOCK[kind]})
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)


@pytest.fixture(scope="module", params=STOCK)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    write_stock(path, request.param)
    return path


def packed() -> dict[str, torch.Tensor]:
    """Two rows of two examples each and padding; the second row begins with the first one's second example."""
    first, second, third = ([7, 9, 30, 11], [8, 50, 61], [5, 6, 77, 8, 9])
    ids = torch.tensor([[*first, *second, 0, 0], [*second, *third, 0]])
    examples = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0, 0], [1, 1, 1, 2, 2, 2, 2, 2, 0]])
    zeros = torch.zeros_like(ids)
    return {"input_ids": ids, "example_ids": examples} | dict.fromkeys(
        ("position_ids", "segment_ids", "language_ids"), zeros
    )


def test_a_packed_row_is_its_examples_one_by_one_in_the_stock_class(folder: Path) -> None:
    stock = transformers.AutoModelForTextEncoding if "T5" in folder.name else transformers.AutoModel
    model, given = stock.from_pretrained(folder).eval(), packed()
    encoder = build_encoder(
        ModelConfig(init_from=str(folder)), VOCABULARY, ["en"], 16, pad_id=0, with_head=False
    ).eval()
    for layer in (None, 1):
        states = encoder.encode(given, layer)
        for row in (0, 1):
            for example in (1, 2):
                at = given["example_ids"][row] == example
                expected = model(input_ids=given["input_ids"][row, at][None], output_hidden_states=True)
                expected = expected.last_hidden_state if layer is None else expected.hidden_states[layer]
                torch.testing.assert_close(states[row, at], expected[0], atol=1e-5, rtol=0)
    assert encoder.encode({key: value[:0] for key, value in given.items()}).shape == (0, 9, 16)


def test_its_parameters_are_counted(folder: Path) -> None:
    model = ModelConfig(init_from=str(folder))
    encoder = build_encoder(model, VOCABULARY, ["en"], 16, pad_id=0, with_head=False)
    sizes = count_in(*backbone(model, VOCABULARY, 16, 0), model, 1, with_head=False)
    assert sizes.total == sum(weight.numel() for weight in encoder.parameters())
    assert 0 < sizes.layers < sizes.total
    values = encoder.family.complete(encoder.hf.config.to_dict())
    assert Operations(encoder.family, values, False).forward(np.array([5])) > 2 * 5 * sizes.layers


def test_its_longest_row_is_its_own(folder: Path) -> None:
    def check(length: int) -> None:
        build_encoder(ModelConfig(init_from=str(folder)), VOCABULARY, ["en"], length, pad_id=0, with_head=False)

    check(40)  # MPNet's positions begin behind its padding
    if "T5" not in folder.name:
        with pytest.raises(ConfigError, match=r"has 40 positions, data\.max_seq_length is 41"):
            check(41)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["objectives=[{kind: masked_lm}]"],
            r"is of the family mpnet, which is trained as AutoModel opens it, without",
        ),
        (
            [*CONTRAST, "model.language_embeddings=true"],
            r"^model: the family mpnet has no token types to carry model\.language_embeddings",
        ),
        ([*CONTRAST, "train.attention=varlen"], r"has its own attention: set train\.attention to auto or dense\.$"),
        (
            [*CONTRAST, "train.gradient_checkpointing=true"],
            r"recompute: set train\.gradient_checkpointing to false",
        ),
        ([*CONTRAST, "train.torch_compile=true"], r"is not compiled: set train\.torch_compile to false"),
        (
            [CONTRAST[0], "objectives=[{kind: momentum_contrast}]"],
            r"sentence_contrast and distillation train it, not momentum_contrast\. Describe the family in a plug-in",
        ),
    ],
    ids=["masked LM", "languages", "varlen", "checkpointing", "compile", "ppa"],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(tmp_path: Path, settings: list[str], sentence: str) -> None:
    write_stock(tmp_path, "MPNet")
    config = make_config(tmp_path, f"model.init_from={tmp_path}", *settings)
    with pytest.raises(ConfigError, match=sentence):
        check_opens(config)


@pytest.mark.parametrize(
    "model_type",
    ["gpt2", "bart", "vit", "funnel", "perceiver", "modernvbert", "new", "fnet", "clip_text_model"],
)
def test_what_is_no_encoder_of_text_has_no_family(model_type: str) -> None:
    assert find_family(model_type) is None


def test_a_run_of_no_steps_gives_its_weights_back(tmp_path: Path) -> None:
    root = tmp_path
    write_inputs(root)
    write_stock(root / "base", "MPNet")
    given = [f"model.init_from={root / 'base'}", f"data.tokenizer={{kind: folder, path: {root / 'base'}}}"]
    config = make_config(root, *CONTRAST, *given)
    prepared = prepare_here(config)
    export(build_model(config, prepared).state_dict(), config, prepared, root / "export", FACTS)
    base, exported = (load_file(root / name / "model.safetensors") for name in ("base", "export"))
    assert base.keys() == exported.keys(), "with the pooler that no loss reads"
    assert all(torch.equal(weight, exported[name]) for name, weight in base.items())
    saved = json.loads((root / "export/config.json").read_text())
    assert saved["architectures"] == ["MPNetModel"]
