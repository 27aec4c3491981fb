"""`xalign trim`: encoders of four kinds with the vocabulary of a text alone, against the whole ones in transformers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
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
    "gemma": (Gemma3TextModel, Gemma3TextConfig, HEADS),
    "llama3": (LlamaModel, LlamaConfig, {"num_key_value_heads": 1, "pad_token_id": 128_001}),
}
TEXT = [LINES[code] for code in ("en", "de", "fr", "hi")]
OTHER = [LINES[code] for code in ("ru", "ko")]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "en.txt"
    path.write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    return path


@torch.no_grad()
def states(folder: Path, line: str) -> tuple[list[str], torch.Tensor]:
    """The pieces of a line and their last states, as transformers alone gives them."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(line, return_tensors="pt")
    return tokenizer.convert_ids_to_tokens(batch["input_ids"][0]), model(**batch).last_hidden_state[0]


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
    size = len(AutoTokenizer.from_pretrained(whole))
    model_class(config_class(**SMALL, **values, vocab_size=size)).save_pretrained(whole)
    shown = trim_encoder(whole, [text], small)
    assert f"Lines cut otherwise: 0 of {len(TEXT)}." in shown
    rows = AutoModel.from_pretrained(small).get_input_embeddings().num_embeddings
    assert rows == len(AutoTokenizer.from_pretrained(small)) < size / 50
    for line in TEXT:
        (pieces, before), (pieces_of_small, after) = states(whole, line), states(small, line)
        assert pieces == pieces_of_small
        torch.testing.assert_close(before, after, rtol=0, atol=1e-6)
    for line in OTHER:
        assert torch.isfinite(states(small, line)[1]).all()  # other text is still read, by characters or as unknown
    assert type(AutoModel.from_pretrained(small)) is type(AutoModel.from_pretrained(whole))


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
