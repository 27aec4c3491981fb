"""A run of no steps gives back the encoder that it began from: weights to the bit, head, sentence vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from tests.parity.stock import VERSIONS, run_stock
from tests.unit.conftest import make_config, prepare_here, write_inputs
from tests.whole_words import write_encoder
from xalign_ray.errors import ConfigError
from xalign_ray.models.backbone import backbone
from xalign_ray.models.export import export
from xalign_ray.models.sizes import count_in
from xalign_ray.train.loop import build_model

FACTS = {"recipe": "continue/contrast", "fingerprint": "ab" * 32, "step": 0}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
CONTRAST = ["streams=[{kind: contrasted_pairs, text: none}]", "objectives=[{kind: sentence_contrast}]"]
MASKED_LM = ["objectives=[{kind: masked_lm}]"]
TEXTS = ["en1 en2 de3", "de5 en1 en9 de7", "en4 " * 20]
PROMPTS = {"prompts": {"query": "en1 en2: "}, "default_prompt_name": None, "similarity_fn_name": "cosine"}

OPENED = """
import json
import torch
from transformers import AutoModel, AutoTokenizer
saved = {}
for folder in sys.argv[2:]:
    model, found = AutoModel.from_pretrained(folder, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = json.load(open("texts.json"))
    with torch.no_grad():
        given = [tokenizer(text, return_tensors="pt") for text in texts]
        states = [model.float().eval()(**inputs).last_hidden_state[0].tolist() for inputs in given]
    saved[folder] = {"states": states, "missing": sorted(found["missing_keys"])}
json.dump(saved, open(sys.argv[1], "w"))
"""


def write_base(folder: Path, model: Any, dtype: torch.dtype = torch.float32, modules: bool = False) -> None:
    """A folder as released: the tokenizer beside the weights of a model away from its first ones."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    model.to(dtype).save_pretrained(folder)
    if not modules:
        return
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": SIZES["hidden_size"], "pooling_mode_mean_tokens": False}
    files = {
        "modules.json": listed,
        "1_Pooling/config.json": pooling | {"pooling_mode_cls_token": True},
        "sentence_bert_config.json": {"max_seq_length": 10, "do_lower_case": False},
        "config_sentence_transformers.json": PROMPTS,
    }
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    files["tokenizer_config.json"] = tokenizer | {
        "model_max_length": 12
    }  # where Sentence Transformers 6 has the length
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))


BASES = {
    "with a head that no loss asks": ({"head": True}, CONTRAST),
    "with a head that is trained": ({"head": True}, MASKED_LM),
    "stored in bf16": ({"head": True, "dtype": torch.bfloat16}, CONTRAST),
    "with an output table of its own": ({"head": True, "family": "EuroBert"}, CONTRAST),
    "without a head but with a pooler": ({"head": False}, CONTRAST),
    "without a head and a pooler": ({"head": False, "family": "ModernBert"}, CONTRAST),
    "a Sentence Transformers folder": ({"head": False, "modules": True}, CONTRAST),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of BASES in `<name>/base`, and what a run makes of it before its first step in `<name>/export`."""
    root = tmp_path_factory.mktemp("zero")
    write_inputs(root)
    words = [f"{code}{number}" for code in ("en", "de") for number in range(120)]
    torch.manual_seed(0)
    for name, (base, settings) in BASES.items():
        folder, others = root / name / "base", dict(base)
        write_encoder(folder, words, **SIZES)
        prefix, head = others.pop("family", "Bert"), others.pop("head")
        ids = {f"{role}_token_id": number for number, role in enumerate(("pad", "unk", "cls", "sep", "mask"))}
        stock = getattr(transformers, f"{prefix}Config")(vocab_size=5 + len(words), **SIZES, **ids)
        write_base(folder, getattr(transformers, f"{prefix}{'ForMaskedLM' if head else 'Model'}")(stock), **others)
        given = [f"model.init_from={folder}", f"data.tokenizer={{kind: folder, path: {folder}}}"]
        config = make_config(root, *settings, *given)
        prepared = prepare_here(config)
        export(build_model(config, prepared).state_dict(), config, prepared, root / name / "export", FACTS)
    return root


@pytest.mark.parametrize("name", BASES)
def test_the_longest_input_is_that_of_the_base(exported: Path, name: str) -> None:
    saved = json.loads((exported / name / "export/tokenizer_config.json").read_text())
    positions = json.loads((exported / name / "base/config.json").read_text())["max_position_embeddings"]
    assert saved["model_max_length"] == (12 if "Sentence Transformers" in name else positions)


@pytest.mark.parametrize("name", BASES)
def test_weights_are_those_of_the_base_to_the_bit(exported: Path, name: str) -> None:
    base, export = (load_file(exported / name / part / "model.safetensors") for part in ("base", "export"))
    assert base.keys() == export.keys()
    differing = [key for key, value in base.items() if not torch.equal(value.float(), export[key])]
    assert differing == []
    assert {value.dtype for value in export.values()} == {torch.float32}
    classes = [json.loads((exported / name / part / "config.json").read_text()) for part in ("base", "export")]
    assert classes[0]["architectures"] == classes[1]["architectures"]


def test_stock_transformers_gives_equal_states_and_misses_nothing(exported: Path) -> None:
    """transformers 4 opens exports alone: tokenizers that 5 saved, as those of the bases, are closed to it."""
    (exported / "texts.json").write_text(json.dumps(TEXTS))
    bases, exports = ([f"{name}/{part}" for name in BASES] for part in ("base", "export"))
    in_4 = [folder for folder in exports if "table of its own" not in folder]  # 4 has no EuroBERT
    found = {}
    for version, folders in zip(VERSIONS, (in_4, [*bases, *exports]), strict=True):
        run_stock(version, OPENED, f"states-{version}.json", *folders, cwd=exported)
        found[version] = json.loads((exported / f"states-{version}.json").read_text())
    for base, ours in zip(bases, exports, strict=True):
        for version in VERSIONS if ours in in_4 else "5":
            expected, opened = found["5"][base], found[version][ours]
            assert opened["missing"] == expected["missing"]
            for one, other in zip(expected["states"], opened["states"], strict=True):
                np.testing.assert_allclose(other, one, atol=1e-5)


def test_sentence_transformers_gives_equal_vectors(exported: Path) -> None:
    from sentence_transformers import SentenceTransformer

    base, export = (
        SentenceTransformer(str(exported / "a Sentence Transformers folder" / part), device="cpu")
        for part in ("base", "export")
    )
    assert [type(module).__name__ for module in export] == ["Transformer", "Pooling", "Normalize"]
    assert (export.max_seq_length, export.prompts["query"]) == (10, PROMPTS["prompts"]["query"])
    for prompt in (None, "query"):
        vectors = export.encode(TEXTS, prompt_name=prompt)
        np.testing.assert_allclose(vectors, base.encode(TEXTS, prompt_name=prompt), atol=1e-5)
    assert abs(vectors[0] - vectors[1]).max() > 1e-3


def test_no_head_is_held_where_no_loss_asks_one(exported: Path) -> None:
    config = make_config(exported, *CONTRAST, "model={num_hidden_layers: 1, num_attention_heads: 2, hidden_size: 16}")
    prepared = prepare_here(config)
    objectives = build_model(config, prepared)
    names = [name for name, _ in objectives.encoder.named_parameters()]
    assert not [name for name in names if "cls." in name or "predictions" in name]
    assert sum(p.numel() for p in objectives.encoder.parameters()) == (
        count_in(*backbone(config.model, prepared.vocab_size, 24, 0), config.model, 2, with_head=False).total
    )
    with pytest.raises(ConfigError, match="does not set `predicts_pieces = True`"):
        objectives.encoder.predict(torch.zeros(1, 16), torch.zeros(1).long())
