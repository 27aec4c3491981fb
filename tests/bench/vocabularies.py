"""Trains the tokenizers that are measured: WordPiece, BPE and Unigram, on generated text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from generated import Source, generate_lines
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.vocabulary.tokenizer import SPECIALS, train_bpe

PIECES = 30_000
_OPTIONS: dict[str, Any] = {"vocab_size": PIECES, "special_tokens": list(SPECIALS), "show_progress": False}


def train_tokenizer(kind: str, sources: Sequence[Source], megabytes: float) -> Tokenizer:
    """One of KINDS, of PIECES pieces."""
    return KINDS[kind](generate_lines(sources, int(min(megabytes, 4) * 1e6), 0.02, 1))


def _word_piece(lines: list[str]) -> Tokenizer:
    """As BERT's."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(lines, trainers.WordPieceTrainer(**_OPTIONS))
    return made


def _bpe(lines: list[str]) -> Tokenizer:
    """As a recipe trains it."""
    return train_bpe(BpeTokenizer(vocab_size=PIECES), lambda: lines)


def _unigram(lines: list[str]) -> Tokenizer:
    """As SentencePiece's."""
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    made.train_from_iterator(lines[::2], trainers.UnigramTrainer(unk_token="[UNK]", **_OPTIONS))
    return made


KINDS: dict[str, Callable[[list[str]], Tokenizer]] = {"wordpiece": _word_piece, "bpe": _bpe, "unigram": _unigram}
