"""Times `prepare` (a text file to token shards) beside the raw tokenizer on the same unseen lines; checks its ids."""

from __future__ import annotations

import json
import statistics
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from generated import Source, generate
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from tests.parity.tokenizer_zoo import hostile_lines
from xalign_ray.config.choices import BpeTokenizer
from xalign_ray.data.filters import Filters
from xalign_ray.data.part import Task, open_chunks, prepare_part
from xalign_ray.data.sources.open import WHOLE
from xalign_ray.data.sources.parts import Part
from xalign_ray.text.chunks import ChunkCutter
from xalign_ray.text.tokenizer import LONGEST_WORD, SPECIALS, train_bpe

ROUNDS = 5
VOCABULARY = 30_000
HOSTILE_SHARE = 0.02  # of the lines whose ids are compared


def train_tokenizers(sources: Sequence[Source], megabytes: float) -> dict[str, Tokenizer]:
    """WordPiece as BERT's, BPE as a recipe trains it, and Unigram as SentencePiece's, all of VOCABULARY pieces."""
    lines = _lines(sources, int(min(megabytes, 4) * 1e6), 0.02, 1)
    word_piece = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    word_piece.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    word_piece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    options: dict[str, Any] = {"vocab_size": VOCABULARY, "special_tokens": list(SPECIALS), "show_progress": False}
    word_piece.train_from_iterator(lines, trainers.WordPieceTrainer(**options))
    unigram = Tokenizer(models.Unigram())
    unigram.normalizer, unigram.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    unigram.train_from_iterator(lines[::2], trainers.UnigramTrainer(unk_token="[UNK]", **options))
    bpe = train_bpe(BpeTokenizer(vocab_size=VOCABULARY), lambda: lines)
    return {"wordpiece": word_piece, "bpe": bpe, "unigram": unigram}


def time_prepare(
    folder: Path, backend: Tokenizer, sources: Sequence[Source], megabytes: float, new: float
) -> dict[str, float]:
    """Medians over interleaved rounds, by CPU time, each on text of its own, after the real text, which is cold.

    Args:
        megabytes: text of all rounds that count.
        new: wanted new chunks per 100 tokens, as the cutter counts them; the measured rate is returned.
    """
    (folder / "tokenizer").mkdir(parents=True)
    backend.save(str(folder / "tokenizer" / "tokenizer.json"))
    (folder / "entries.json").write_text(json.dumps([[0, word] for source in sources for word in source.vocabulary]))
    size = int(megabytes * 1e6 / ROUNDS / 1.4)  # characters: the pack's languages have 1.4 bytes a character
    real = [line for source in sources for line in source.sentences()]
    cold = _time_round(folder, "cold", backend, real)
    share = new / 100
    tried = _time_round(folder, "tried", backend, _lines(sources, size, share, 100))
    share *= new / tried.new  # invented words per word, for the wanted rate per token
    rounds = [_time_round(folder, str(n), backend, _lines(sources, size, share, 101 + n)) for n in range(ROUNDS)]
    return {
        "ratio": statistics.median(one.prepared / one.raw for one in rounds),
        "new": statistics.mean(one.new for one in rounds),
        "cold_ratio": cold.prepared / cold.raw,
        "cold_new": cold.new,
    }


@dataclass(frozen=True)
class Round:
    """Tokens per CPU second of the raw tokenizer and of prepare, and how many new chunks 100 tokens brought."""

    raw: float
    prepared: float
    new: float


def _time_round(folder: Path, name: str, backend: Tokenizer, lines: list[str]) -> Round:
    path = folder / f"{name}.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    task = Task(str(folder), f"text/en/{name}", "text/en", ("en",), Part("text", (str(path),), (WHOLE,)),
                ("en",), 128, False, 0.02, Filters())  # fmt: skip
    learnt = open_chunks(str(folder), LONGEST_WORD).learnt
    began = time.process_time()
    tokens = sum(len(one.ids) for one in backend.encode_batch_fast(lines, add_special_tokens=False))
    between = time.process_time()
    prepare_part(task)
    ended = time.process_time()
    new = open_chunks(str(folder), LONGEST_WORD).learnt - learnt
    path.unlink()
    return Round(tokens / (between - began), tokens / (ended - between), new / tokens * 100)


def _lines(sources: Sequence[Source], characters: int, share: float, seed: int) -> list[str]:
    return [line for part in generate(sources, characters, share, seed) for line in part]


def share_equal(backend: Tokenizer, sources: Sequence[Source], count: int) -> tuple[float, int]:
    """Share of lines, generated and hostile, whose ids are the tokenizer's own; and how many were compared."""
    cutter, equal, compared, seed = ChunkCutter(backend, {}), 0, 0, 500
    while compared < count:
        lines = _lines(sources, 8_000_000, 0.02, seed)[: count - compared]
        lines += hostile_lines(int(len(lines) * HOSTILE_SHARE) + 1, seed)
        plain = [unicodedata.normalize("NFC", line) for line in lines]
        wanted = [one.ids for one in backend.encode_batch_fast(plain, add_special_tokens=False)]
        cut = cutter.cut(lines, 0)
        ends = np.concatenate(([0], np.cumsum(cut.word_length)))[np.cumsum(cut.line_words)]
        found = np.split(cut.pieces, ends[:-1])
        equal += sum(ours.tolist() == theirs for ours, theirs in zip(found, wanted, strict=True))
        compared, seed = compared + len(lines), seed + 1
    return equal / compared, compared
