"""What topics measure on: generated text as files, dictionaries, tokenizers, and DICT-MLM recipes over them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from generated import BYTES_A_CHARACTER, REAL, Source, generate, read_sources
from tokenizers import Tokenizer
from vocabularies import train_tokenizer

from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.demo.writer import write_demo
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import stage
from xalign_ray.tokens import prepare as preparation
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer
from xalign_ray.vocabulary.tokenizer_folder import save_tokenizer, wrap_tokenizer

DICTIONARIES = Path(os.environ.get("XALIGN_REAL_DICTIONARIES", REAL.parent / "dictionaries" / "muse"))
TARGET_RATE = 1.2  # new pretokens per 100 tokens
TRIED_CHARACTERS = 6_000_000
GLOBAL_ROWS = 512

RunTasks = Callable[[Sequence[Any], Callable[[Any], None]], None]  # tasks of a stage


@dataclass(frozen=True)
class Material:
    """The real text that all is generated from, and how much of it a setting measures; `folder` is free to write to."""

    folder: Path
    megabytes: float
    sources: list[Source]
    dictionaries: list[Path]  # en-LANGUAGE.txt
    origin: str

    @classmethod
    def find(cls, folder: Path, megabytes: float) -> Material:
        """From the real pack; where that is missing from the embedded world."""
        files = sorted(REAL.glob("*.txt"))
        home, origin = DICTIONARIES, "the real pack"
        if not files:
            files, home, origin = _write_demo_text(folder), folder / "world" / "dictionaries", "the embedded world"
        found = [path for file in files if (path := home / f"en-{file.stem}.txt").is_file()]
        return cls(folder, megabytes, read_sources(files), found, origin)

    @cached_property
    def word_piece(self) -> Tokenizer:
        """As BERT's, trained on text like that which is measured."""
        return train_tokenizer("wordpiece", self.sources, self.megabytes)

    @property
    def where(self) -> str:
        """How much text of what, as records say it."""
        return f"{self.megabytes:g} MB made of {self.origin}"

    @property
    def languages(self) -> list[str]:
        """Of the sources, in their order."""
        return [source.language for source in self.sources]

    @cached_property
    def invented(self) -> float:
        """The share of invented words that gives TARGET_RATE once the real text is known, as WordPiece cuts it."""
        tokenizer = CachedTokenizer(self.word_piece, {})
        for number, source in enumerate(self.sources):
            tokenizer.tokenize(source.sentences(), number)
        share = wanted = TARGET_RATE / 100
        for seed in range(100, 104):  # the first brings what any such text brings; the others are like those that count
            misses, tried = tokenizer.misses, generate(self.sources, TRIED_CHARACTERS, share, seed)
            tokens = sum(len(tokenizer.tokenize(lines, number).pieces) for number, lines in enumerate(tried))
            if seed > 100:
                share *= wanted / ((tokenizer.misses - misses) / tokens)
        return share


def write_round(
    material: Material, folder: Path, number: int, megabytes: float, peers_take: int = 1
) -> dict[str, list[str]]:
    """Writes LANGUAGE-NUMBER.txt for each language; round 0 is the real text, the others are new.

    Returns:
        Every so manyth line of each language, also written together as peers-NUMBER.txt.
    """
    characters = int(megabytes * 1e6 / BYTES_A_CHARACTER)
    texts: Iterable[list[str]] = (source.sentences() for source in material.sources)
    if number:
        texts = generate(material.sources, characters, material.invented, 1000 + number)
    chosen: dict[str, list[str]] = {}
    for language, lines in zip(material.languages, texts, strict=True):
        (folder / f"{language}-{number}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        chosen[language] = lines[::peers_take]
    peers = [line for lines in chosen.values() for line in lines]
    (folder / f"peers-{number}.txt").write_text("\n".join(peers) + "\n", encoding="utf-8")
    return chosen


def make_config(material: Material, folder: Path, rounds: int, *settings: str) -> RunConfig:
    """DICT-MLM over the rounds that lie in a folder, a part each, with the settings of recipe real/dict-mlm-50."""
    if not (folder / "tokenizer").is_dir():
        save_tokenizer(wrap_tokenizer(material.word_piece), folder / "tokenizer")
    data = {
        "root": str(folder),
        "corpora": [
            {"format": "text", "language": code, "paths": [f"{code}-{number}.txt" for number in range(rounds)]}
            for code in material.languages
        ],
        "dictionaries": [
            {"languages": path.stem.split("-"), "paths": [str(path.resolve())]} for path in material.dictionaries
        ],
        "tokenizer": {"kind": "folder", "path": str(folder / "tokenizer")},
        "max_seq_length": 128,
        "reserve_fraction": 0.1,
        "held_out_fraction": 0.0,
        "dictionary_held_out_fraction": 0.0,
        "max_bad_fraction": 0.05,  # MUSE holds a few lines that are no entries
    }
    recipe = {
        "output": str(folder / "out"),
        "data": data,
        "sampling": {"alpha": 1},
        "streams": [{"kind": "code_switched_labels", "t": 0.5}],
        "model": {
            "num_hidden_layers": 2,
            "hidden_size": 96,
            "num_attention_heads": 4,
            "language_embeddings": True,
            "conditioned_head": True,
        },
        "train": {"max_steps": 16, "global_batch_size": GLOBAL_ROWS, "per_device_batch_size": GLOBAL_ROWS},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    return load_recipe(str(folder / "recipe.yaml"), settings).config


def prepare_here(config: RunConfig, run: RunTasks | None = None) -> Prepared:
    """`prepare` with its parts done in this process, one after the other or as `run` does them."""
    with tasks_here(run):
        return preparation.prepare(config)


@contextmanager
def tasks_here(run: RunTasks | None = None) -> Iterator[None]:
    """Inside, the tasks of stages are done in this process."""

    def one_by_one(tasks: Sequence[Any], work: Callable[[Any], None]) -> None:
        for task in tasks:
            work(task)

    before = stage._run_tasks
    stage._run_tasks = lambda tasks, work, *_: (run or one_by_one)(tasks, work)
    try:
        yield
    finally:
        stage._run_tasks = before


def text_tokens_per_row(prepared: Prepared) -> float:
    """Tokens of text, special ones not counted, of a row of training."""
    pools = prepared.manifest["pools"].values()
    return float(np.sum([pool["tokens"] for pool in pools]) / np.sum([pool["rows"] for pool in pools]))


def _write_demo_text(folder: Path) -> list[Path]:
    """The embedded world as plain text, a file a language."""
    write_demo(folder / "world")
    files = []
    for path in sorted((folder / "world" / "wiki").glob("*.jsonl")):
        texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
        files.append(folder / f"{path.stem}.txt")
        files[-1].write_text("\n".join(texts) + "\n", encoding="utf-8")
    return files
