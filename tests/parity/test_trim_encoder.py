"""`xalign trim`: encoders of four kinds with the vocabulary of a text alone, against the whole ones in transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    Gemma3TextConfig,
    Gemma3TextModel,
    LlamaConfig,
    LlamaModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from tests.unit.vocabulary.test_released_tokenizers import LINES
from xalign_ray.cli import main
from xalign_ray.errors import ConfigError
from xalign_ray.verbs.trim_encoder import trim_encoder

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
HEADS = {"num_key_value_heads": 1, "head_dim": 8}
KINDS = {
    "e5-small": (XLMRobertaModel, XLMRobertaConfig, {"max_position_embeddings": 130, "pad_token_id": 1}),
    "minilm": (BertForMaskedLM, BertConfig, {"max_position_embeddings": 128}),
    "gemma": (Gemma3TextModel, Gemma3TextConfig, HEADS | {"eos_token_id": [1, 106]}),
    "llama3": (LlamaModel, LlamaConfig, {"num_key_value_heads": 1, "pad_token_id": 128_004}),  # not the tokenizer's
}
TEXT = [LINES[code] for code in ("en", "de", "fr", "hi")]
OTHER = [LINES[code] for code in ("ru", "ko")]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "en.txt"
    path.write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    return path


@torch.no_grad()
def states(tokenizer: Any, model: Any, line: str) -> tuple[list[str], torch.Tensor]:
    """The pieces of a line and their last states, as transformers alone gives them."""
    batch = tokenizer(line, return_tensors="pt")
    return tokenizer.convert_ids_to_tokens(batch["input_ids"][0]), model.eval()(**batch).last_hidden_state[0]


@pytest.mark.models
@pytest.mark.parametrize("name", KINDS)
def test_pieces_and_states_of_the_text_are_those_of_the_whole_encoder(
    released_models: Path, tmp_path: Path, text: Path, name: str
) -> None:
    whole, small = tmp_path / "whole", tmp_path / "small"
    whole.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(released_models / name / file, whole / file)
    model_class, config_class, values = KINDS[name]
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(whole)
    model_class(config_class(**SMALL, **values, vocab_size=len(tokenizer))).save_pretrained(whole)
    shown = trim_encoder(whole, [text], small)
    assert f"Lines cut otherwise: 0 of {len(TEXT)}." in shown
    of_small = AutoTokenizer.from_pretrained(small)
    model, small_model = (AutoModel.from_pretrained(folder) for folder in (whole, small))
    assert small_model.get_input_embeddings().num_embeddings == len(of_small) < len(tokenizer) / 50
    for line in TEXT:
        (pieces, before), (pieces_of_small, after) = (
            states(tokenizer, model, line),
            states(of_small, small_model, line),
        )
        assert pieces == pieces_of_small
        torch.testing.assert_close(before, after, rtol=0, atol=1e-6)
    config, small_config = (AutoConfig.from_pretrained(folder) for folder in (whole, small))
    assert (of_small.bos_token, of_small.eos_token) == (tokenizer.bos_token, tokenizer.eos_token)
    for key in (key for key in ("eos_token_id", "pad_token_id") if getattr(config, key) is not None):
        old, new = getattr(config, key), getattr(small_config, key)
        assert of_small.convert_ids_to_tokens(new) == tokenizer.convert_ids_to_tokens(old)
    for line in OTHER:
        after = states(of_small, small_model, line)[1]
        assert torch.isfinite(after).all()  # other text is still read, by characters or as unknown
    assert type(small_model) is type(model)


@pytest.mark.models
@pytest.mark.parametrize(("min_count", "cut_otherwise"), [(1, 0), (2, 1)])
def test_modules_stay_whole_and_a_piece_counts_once_behind_however_many_prompts(
    released_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, min_count: int, cut_otherwise: int
) -> None:
    whole, small, text = tmp_path / "whole", tmp_path / "small", tmp_path / "en.txt"
    whole.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(released_models / "minilm" / file, whole / file)
    config = BertConfig(**SMALL, vocab_size=len(AutoTokenizer.from_pretrained(whole)))
    BertModel(config, add_pooling_layer=False).save_pretrained(whole)
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense"}
    written = [
        {"name": kind, "path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules.items()
    ]
    (whole / "modules.json").write_text(json.dumps(written), encoding="utf-8")
    for path, module in (("1_Pooling", Pooling(16)), ("2_Dense", Dense(16, 8))):
        (whole / path).mkdir()
        module.save(str(whole / path))
    prompts = {"prompts": {"query": "query: ", "passage": "passage: "}}
    (whole / "config_sentence_transformers.json").write_text(json.dumps(prompts), encoding="utf-8")
    text.write_text("the cat\nthe cat\nyesterday\n", encoding="utf-8")
    assert f"Lines cut otherwise: {cut_otherwise} of 3." in trim_encoder(whole, [text], small, min_count)
    vectors = [SentenceTransformer(str(one), device="cpu").encode("the cat") for one in (whole, small)]
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-6)
    assert not [name for name in load_file(small / "model.safetensors") if "pooler" in name]

    # What ends it leaves nothing, and nothing of another that has written there meanwhile is lost.
    def stop(*_: object) -> str:
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "theirs").touch()
        return ""

    monkeypatch.setattr("xalign_ray.verbs.trim_encoder._compare", stop)
    with pytest.raises(OSError, match="not empty"):
        trim_encoder(whole, [text], tmp_path / "other", min_count)
    assert [*(tmp_path / "other").iterdir()] == [tmp_path / "other" / "theirs"]
    assert not [*tmp_path.glob("*unfinished*")]


def test_a_folder_that_is_there_and_no_text_are_refused(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"--text names no file"):
        trim_encoder("mine", [], tmp_path / "small")
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "mine.txt").write_text("mine", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["xalign", "trim", "mine", "--text", str(text), "--out", str(tmp_path / "small")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "small is there. Name a new folder." in capsys.readouterr().err
