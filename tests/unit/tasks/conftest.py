"""A tiny BERT in a folder, as `from_pretrained` opens it, with a WordPiece vocabulary given by the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WIDTH = 16


def make_tokenizer(pieces: Sequence[str]) -> PreTrainedTokenizerFast:
    vocabulary = {piece: index for index, piece in enumerate([*SPECIALS, *pieces])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", **names)


@torch.no_grad()
def write_row(table: torch.nn.Embedding, row: int, values: Sequence[float]) -> None:
    table.weight[row] = 0.0
    table.weight[row, : len(values)] = torch.tensor(values)


def make_bert_in(
    folder: Path,
    pieces: Sequence[str],
    vectors: dict[str, Sequence[float]] | None = None,
    languages: Sequence[str] = (),
    language_vectors: dict[str, Sequence[float]] | None = None,
    positions: int = 32,
    layers: int = 2,
    **extra: object,
) -> Path:
    """Saves a random BERT for masked LM, always the same, with the given rows of its tables, zero behind the values."""
    tokenizer = make_tokenizer(pieces)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=positions,
        type_vocab_size=2 * max(1, len(languages)),
        initializer_range=0.1,
        xalign_languages=list(languages),
        xalign_segments=2,
        **extra,
    )
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = BertForMaskedLM(config)
    tables = model.bert.embeddings
    for piece, values in (vectors or {}).items():
        write_row(tables.word_embeddings, tokenizer.convert_tokens_to_ids(piece), values)
    for language, values in (language_vectors or {}).items():
        write_row(tables.token_type_embeddings, 2 * languages.index(language), values)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(name="make_tokenizer")
def tokenizer_maker() -> Callable[[Sequence[str]], PreTrainedTokenizerFast]:
    """`make_tokenizer(pieces)`: WordPiece over the special tokens and these pieces."""
    return make_tokenizer


@pytest.fixture
def make_bert(tmp_path: Path) -> Callable[..., Path]:
    """`make_bert(pieces, vectors={piece: values}, languages=[...], name=..., **config)`: a folder with a tiny BERT."""
    return lambda pieces, name="encoder", **settings: make_bert_in(tmp_path / name, pieces, **settings)


def pool(encoder: Encoder, texts: Sequence[str], language: str, pooling: str = "mean") -> np.ndarray:
    """A vector of each text and layer, `[layers + 1, N, D]`."""
    vectors = SentenceVectors(open_encoder(encoder.inputs.encoder), encoder=encoder)
    return vectors.layers(texts, language, pooling)[1][pooling]
