"""A tokenizer as a Hugging Face folder: opened, or refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from xalign_ray.config.tokenizers import BpeTokenizer
from xalign_ray.data.tokenizer_folder import open_tokenizer, save_tokenizer, vocabulary, wrap_tokenizer
from xalign_ray.errors import ConfigError
from xalign_ray.text.tokenizer import train_bpe


def test_a_trained_tokenizer_comes_back_from_its_folder(tmp_path: Path) -> None:
    trained = wrap_tokenizer(train_bpe(BpeTokenizer(vocab_size=100), lambda: ["the cat", "the mat"] * 5))
    save_tokenizer(trained, tmp_path)
    opened = open_tokenizer(str(tmp_path))
    assert opened("the cat")["input_ids"] == trained("the cat")["input_ids"]
    assert opened.get_vocab() == trained.get_vocab()
    assert (opened.pad_token_id, opened.unk_token_id, opened.cls_token_id) == (0, 1, 2)
    assert (opened.sep_token_id, opened.mask_token_id) == (3, 4)


def test_special_and_unused_pieces_are_never_drawn() -> None:
    words = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "[unused2]", "mat"]
    backend = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    found = vocabulary(wrap_tokenizer(backend))
    assert found.regular.tolist() == [6, 8]
    assert (found.pad, found.cls, found.sep, found.mask, found.unknown) == (0, 3, 4, 5, 2)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^data.tokenizer.path '{re.escape(str(tmp_path))}' holds no tokenizer: "):
        open_tokenizer(str(tmp_path))


def test_a_tokenizer_without_a_mask_is_refused(tmp_path: Path) -> None:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "cat": 2}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]").save_pretrained(tmp_path)
    with pytest.raises(ConfigError) as told:
        open_tokenizer(str(tmp_path))
    assert str(told.value) == (f"data.tokenizer.path '{tmp_path}' has no cls, sep, mask token; masking needs all five.")
