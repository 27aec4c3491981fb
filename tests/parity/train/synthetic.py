"""Rows that are a pure function of their position, and the least of a prepared folder, for loops without data."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from xalign_ray.config.derive import derive_batch
from xalign_ray.config.schema import RunConfig
from xalign_ray.shards.prepared import RetrievalPairs
from xalign_ray.track.events import read_events
from xalign_ray.train.checkpoint import consolidate, newest
from xalign_ray.train.distributed import Workers
from xalign_ray.train.loop import train
from xalign_ray.work.artifacts import seal, write_manifest
from xalign_ray.work.job import Job

VOCAB, ROW = 64, 12
TEACHER = 16  # numbers of its vectors
FINGERPRINT = "f" * 64


def config(trainable: Any = "all", **settings: Any) -> RunConfig:
    """A tiny recipe; settings are dotted keys with `__` for the dot. New rows may be trainable without new pieces."""
    tree: dict[str, Any] = {
        "seed": 3,
        "data": {"corpora": [{"format": "text", "language": code, "paths": ["x"]} for code in ("en", "de")]}
        | {"dictionaries": [{"languages": ["en", "de"], "paths": ["x"]}], "max_seq_length": ROW}
        | {"parallel": [{"format": "moses", "languages": ["en", "de"], "paths": ["x", "y", "aligned"]}]},
        "streams": [{"kind": kind} for kind in ("masked_text", "aligned_pairs", "contrasted_pairs")],
        "model": {
            "num_hidden_layers": 1,
            "hidden_size": 16,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "hidden_dropout_prob": 0.1,
        },
        "objectives": [{"kind": "masked_lm"}, {"kind": "dictionary_alignment", "weight": 1.0}],
        "train": {"max_steps": 6, "global_batch_size": 8, "per_device_batch_size": 4, "eval_steps": 0}
        | {"retrieval_steps": 0, "bf16": False}
        | {"optimizer": {"learning_rate": 1e-2}, "schedule": {"warmup_steps": 2}},
        "parallel": {"workers": 1, "zero_stage": 2, "deepspeed_overrides": {}},
        "checkpoint": {"save_steps": 100},
    }
    for key, value in settings.items():
        *parents, last = key.split("__")
        at = tree
        for name in parents:
            at = at.setdefault(name, {})
        at[last] = value
    made = RunConfig.model_validate(tree)
    train_config = type(made.train).model_validate(made.train.model_dump() | {"trainable": trainable})
    return made.model_copy(update={"train": train_config})


def rows(positions: np.ndarray) -> dict[str, np.ndarray]:
    """Rows with one or two examples, padding behind them, and about a quarter of the tokens asked for."""
    count = len(positions)
    given = {
        key: np.zeros((count, ROW), np.int32) for key in ("input_ids", "position_ids", "segment_ids", "example_ids")
    }
    given |= {"labels": np.full((count, ROW), -100, np.int32), "language_ids": np.zeros((count, ROW), np.int32)}
    for i, position in enumerate(positions):
        draw = np.random.default_rng([5, int(position)])
        length, first = draw.integers(6, ROW + 1), draw.integers(2, 5)
        ids = draw.integers(5, VOCAB, length)
        asked = draw.random(length) < 0.25
        asked[0] = True
        given["labels"][i, :length] = np.where(asked, ids, -100)
        given["input_ids"][i, :length] = np.where(asked, 3, ids)
        given["example_ids"][i, :length] = np.where(np.arange(length) < first, 1, 2)
        given["position_ids"][i, :length] = np.where(
            np.arange(length) < first, np.arange(length), np.arange(length) - first
        )
        given["language_ids"][i, :length] = position % 2
    hashes = (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    nothing = np.zeros(len(positions), np.int32)
    counted = {"cross_lingual": nothing, "no_room": nothing}
    own = {"position": positions.astype(np.int64), "row_hash": hashes}
    return given | counted | own | aligned(positions, given["example_ids"]) | sentences(positions)


def aligned(positions: np.ndarray, examples: np.ndarray) -> dict[str, np.ndarray]:
    """The column of word_exchange: some positions of an example have one partner or more, every third row has none."""
    bits = np.zeros((len(positions), ROW, ROW), np.uint8)
    for i, position in enumerate(positions):
        drawn = np.triu(np.random.default_rng([6, int(position)]).random((ROW, ROW)) < 0.15 * (position % 3 > 0), 1)
        inside = (examples[i][:, None] == examples[i][None, :]) & (examples[i] > 0)
        bits[i] = (drawn | drawn.T) & inside
    return {"aligned": np.packbits(bits, axis=-1, bitorder="little")}


def sentences(positions: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of sentence pairs and of their teacher: one to three pairs a row, none in every fourth."""
    fields = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")
    given = {f"{side}_{f}": np.zeros((len(positions), ROW), np.int32) for side in ("query", "key") for f in fields}
    given["pair_hash"] = np.zeros((len(positions), ROW), np.int64)
    for i, position in enumerate(positions):
        draw = np.random.default_rng([8, int(position)])
        for language, side in enumerate(("query", "key")):
            at = 0
            for example in range(1, position % 4 + 1):
                length = int(draw.integers(3, 5))
                place = (i, slice(at, at + length))
                given[f"{side}_input_ids"][place] = [1, *draw.integers(5, VOCAB, length - 2), 2]
                given[f"{side}_position_ids"][place] = np.arange(length)
                given[f"{side}_language_ids"][place] = language
                given[f"{side}_example_ids"][place] = example
                if side == "key":
                    given["pair_hash"][i, at] = draw.integers(1, 9)
                at += length
    drawn = [np.random.default_rng([9, int(position)]).normal(size=(3, TEACHER)) for position in positions]
    vectors = np.array(drawn, np.float16).reshape(-1, 3, TEACHER)
    vectors[np.arange(3)[None] >= (positions % 4)[:, None]] = 0  # behind a row's last pair
    return given | {"teacher": vectors.view(np.uint8)}


def retrieval_test(language: str, other_language: str, count: int, seed: int) -> RetrievalPairs:
    """Sentences of 3 to 12 tokens; those of the other language repeat half of the first's."""
    draw = np.random.default_rng([11, seed])
    first = [draw.integers(5, VOCAB, draw.integers(3, ROW + 1)).astype(np.int32) for _ in range(count)]
    second = [np.concatenate([ids[::2], draw.integers(5, VOCAB, 2)]).astype(np.int32) for ids in first]
    return RetrievalPairs(language, other_language, first, second)


class SyntheticRows:
    """What the loop reads of a prepared folder."""

    def __init__(self) -> None:
        self.languages = ["en", "de"]
        self.vocab_size = VOCAB
        self.special = SimpleNamespace(pad=0, cls=1, sep=2)
        self.new_rows: dict[int, list[int]] = {}
        self.held_out_missing = {"ru": 2}
        self.retrieval_part = "tests"
        self.manifest = {"pools": {"text/en": {"tokens": 10_000, "rows": 1}}, "held_out": {}, "max_seq_length": ROW}

    def read_tests(self, _: str, prompts: Sequence[str]) -> list[RetrievalPairs]:
        """Those of an encoder without a prompt."""
        assert not any(prompts)
        return [retrieval_test("de", "en", 23, 0), retrieval_test("en", "qaa", 6, 1)]

    def pairs(self, split: str) -> SimpleNamespace:
        assert split == "trained"
        draw = np.random.default_rng(9)
        left, right = (draw.integers(5, VOCAB, (10, 1)).astype(np.int32) for _ in range(2))
        language = np.zeros(10, np.int32)
        return SimpleNamespace(left=left, right=right, left_language=language, right_language=language + 1)

    def held_out(self, rank: int, workers: int, batch_rows: int) -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Five rows a language, so that two ranks have different numbers of them."""
        assert batch_rows >= 3
        numbers = np.arange(10)[rank::workers]
        return [(numbers % 2, rows(10_000 + numbers))]


class Interrupted(Exception):  # noqa: N818
    """What a test stops a run with."""


def stream(
    config: RunConfig, first_step: int, rank: int, workers: int, until: int | None = None
) -> Generator[dict[str, np.ndarray], None, None]:
    """This rank's shares from a step on, endlessly, or until it breaks at step number `until`."""
    batch = derive_batch(config)
    assert batch.workers == workers
    low, high = batch.rows_of(rank)
    while True:
        if first_step == until:
            raise Interrupted
        yield rows(first_step * batch.global_rows + np.arange(low, high))
        first_step += 1


def run(
    config: RunConfig, folder: Path, workers: Workers, fingerprint: str = FINGERPRINT, open_batches: Any = None
) -> None:
    """Trains on synthetic rows as this rank."""
    facts = {"recipe": "synthetic", "fingerprint": fingerprint}
    batches = open_batches or (lambda *at: stream(config, *at))
    train(Job(folder, facts), config, SyntheticRows(), batches, workers)


def run_until(step: int, config: RunConfig, folder: Path, workers: Workers, fingerprint: str = FINGERPRINT) -> None:
    """The same until the feed breaks off after a step; a checkpoint due by then is not on its way, but saved."""
    at_once = config.checkpoint.model_copy(update={"async_save": False})
    config = config.model_copy(update={"checkpoint": at_once})
    run(config, folder, workers, fingerprint, lambda *at: stream(config, *at, until=step))


def steps(folder: Path) -> list[dict[str, Any]]:
    """The surviving step events of a run."""
    return [event for event in read_events(folder / "events.jsonl") if event["event"] == "step"]


def losses(folder: Path) -> list[float]:
    """The surviving losses of a run, in order of steps."""
    return [event["metrics"]["train/loss"] for event in steps(folder)]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The newest checkpoint's weights, fp32."""
    found, _ = newest(folder, FINGERPRINT)
    assert found
    return consolidate(found)


def write_changed(folder: Path, manifest: dict[str, Any]) -> None:
    """Writes a checkpoint's manifest that was changed, sealed as whoever changes it on purpose would."""
    write_manifest(folder, seal({key: value for key, value in manifest.items() if key != "sha256"}))
