"""Text files to DICT-MLM batches as a whole, in one process, against Hugging Face's path."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from corpus import Material, make_config, prepare_here, text_tokens_per_row, write_round
from hugging_face import make_batches
from records import record
from tokenizers import Tokenizer

from xalign_ray.config.schema import RunConfig
from xalign_ray.feed.batches import BatchReader
from xalign_ray.shards.order import Request
from xalign_ray.shards.prepared import Prepared
from xalign_ray.tokens.examples import longest_word
from xalign_ray.tokens.part import Task, open_cached_tokenizer
from xalign_ray.vocabulary.tokenizer_folder import open_tokenizer

ROUNDS = 5  # that count; the real text comes before, to warm up
BLOCK_STEPS = 16  # of a request: about derive.BLOCK_BYTES
PEERS_TAKE = 5  # the peers get every so manyth line of what we get: they are slow, and their cost is by the token

Lines = dict[str, list[str]]


@dataclass(frozen=True)
class Round:
    """Times of the arms on one round's text, as multiples of `encode_batch_fast` right before, token for token."""

    hugging_face: float
    prepare: float
    new: float  # chunks missing in the cache per 100 tokens


def measure(material: Material) -> list[dict[str, Any]]:
    """The ratio of the whole, and the feed's alone, all by CPU time."""
    folder = material.folder / "whole"
    folder.mkdir()
    lines = [
        write_round(material, folder, number, material.megabytes / ROUNDS, PEERS_TAKE) for number in range(ROUNDS + 1)
    ]
    config = make_config(material, folder, ROUNDS + 1)
    peers = Peers(material, folder, config.data.max_seq_length)
    rounds: list[Round] = []

    def run(tasks: Sequence[Task], work: Callable[[Task], None]) -> None:
        if not isinstance(tasks[0], Task):  # text is parsed
            for task in tasks:
                work(task)
            return
        for number in range(ROUNDS + 1):
            mine = [task for task in tasks if task.name.endswith(f"-{number:05d}")]
            rounds.append(_time_round(peers, config, number, lines[number], mine, work))

    prepared = prepare_here(config, run)
    feeds = _time_feed(prepared, config, peers, lines[-1])
    return _records(material, rounds[1:], feeds)


class Peers:
    """What we are compared with, each on the same lines; each arm returns the tokens it made."""

    def __init__(self, material: Material, folder: Path, max_seq_length: int) -> None:
        self.folder, self.max_seq_length = folder, max_seq_length
        self.backend: Tokenizer = material.word_piece

    def raw(self, lines: Lines) -> int:
        """The tokenizer and nothing else."""
        encoded = (self.backend.encode_batch_fast(some, add_special_tokens=False) for some in lines.values())
        return sum(len(one.ids) for some in encoded for one in some)

    def hugging_face(self, number: int) -> int:
        """Plain masked LM."""
        tokenizer = open_tokenizer(str(self.folder / "tokenizer"))
        path = self.folder / f"peers-{number}.txt"
        return make_batches(path, tokenizer, self.max_seq_length, self.folder / f"cache-{number}")


def _time_round(
    peers: Peers, config: RunConfig, number: int, lines: Lines, tasks: Sequence[Task], work: Callable[[Task], None]
) -> Round:
    tokens, raw = timed(partial(peers.raw, lines))
    hugging_face = 0.0
    if number:
        made, hugging_face = timed(partial(peers.hugging_face, number))
        assert made > 0.98 * tokens, "the peer dropped text"
    cached = open_cached_tokenizer(tasks[0].folder, longest_word(config.data.capacity, 1), tuple(config.languages))
    misses = cached.misses
    _, spent = timed(lambda: len([work(task) for task in tasks]))
    counts = [json.loads(task.path(".json").read_text(encoding="utf-8"))["counts"] for task in tasks]
    all_tokens = sum(count["tokens"] for count in counts)
    return Round(
        hugging_face=hugging_face / raw,
        prepare=spent / all_tokens / (raw / tokens),
        new=(cached.misses - misses) / all_tokens * 100,
    )


def _time_feed(prepared: Prepared, config: RunConfig, peers: Peers, lines: Lines) -> list[float]:
    """One pass over the rows in rounds, after a warm-up that does not count: times as in Round."""
    reader, rows = BatchReader(prepared, config), config.train.global_batch_size
    total = sum(pool["rows"] for pool in prepared.manifest["pools"].values())
    requests = max(1, total // (rows * BLOCK_STEPS * ROUNDS))  # of a round
    per_row = text_tokens_per_row(prepared)
    times = []
    for number in range(ROUNDS + 1):
        tokens, raw = timed(partial(peers.raw, lines))
        chunks = range(number * requests, (number + 1) * requests) if number else range(1)
        made, spent = timed(partial(_feed, reader, chunks, rows))
        times.append(spent / (made * per_row) / (raw / tokens))
    return times[1:]


def _feed(reader: BatchReader, chunks: range, rows: int) -> int:
    """Makes all steps of some chunks; returns their rows."""
    requests = (Request(chunk * BLOCK_STEPS, (chunk + 1) * BLOCK_STEPS, 0, rows) for chunk in chunks)
    return sum(len(reader(request)["position"]) for request in requests)


def timed(arm: Callable[[], int]) -> tuple[int, float]:
    """What it returns, and its CPU seconds."""
    began = time.process_time()
    made = arm()
    return made, time.process_time() - began


def _records(material: Material, rounds: Sequence[Round], feeds: Sequence[float]) -> list[dict[str, Any]]:
    feed = statistics.median(feeds)
    new = statistics.mean(one.new for one in rounds)
    how = (
        f"text files -> prepare -> DICT-MLM batches in one process, CPU time, median of {ROUNDS} interleaved rounds, "
        f"{new:.2f} new chunks per 100 tokens, {material.where}, WordPiece; the peers on every {PEERS_TAKE}th line"
    )
    hugging_face = statistics.median(one.hugging_face / (one.prepare + feed) for one in rounds)
    raw = statistics.median(1 / (one.prepare + feed) for one in rounds)
    fed = f"token shards -> DICT-MLM batches, dictionaries of {len(material.dictionaries)} languages, {material.where}"
    return [
        record("data/whole_ratio/hugging_face", hugging_face, 8.0,
               f"against datasets.map + group_texts + whole-word collator making plain MLM; {how}"),
        record("data/whole_ratio/raw", raw, None, f"against encode_batch_fast; {how}"),
        record("data/feed_ratio", 1 / feed, 3.0, f"against encode_batch_fast: {fed}, text tokens per CPU second"),
    ]  # fmt: skip
