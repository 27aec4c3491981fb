"""What prepare costs as corpora and vocabularies grow: duplicates dropped from more text, and 5,000 new pieces.

`python tests/bench/run.py 100 scale_prepare`: 100 MB of text against four times as much; CPU time of one process, which
does the parts one after the other, so that a term that grows faster than the corpus shows, and other load does not.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from corpus import Material, prepare_here
from generated import generate_lines
from records import record

from xalign_ray.config.load import load_recipe
from xalign_ray.text.cached_tokenizer import CachedTokenizer
from xalign_ray.text.new_pieces import extend_tokenizer

GROWTH = 4
STRETCH = 8_000_000  # characters that are made; a corpus is these lines again and again, each led by a number
REPEATED = 0.2  # share of the lines that stood before
NEW_PIECES = 5_000
ROUNDS = 3


def measure(material: Material) -> list[dict[str, Any]]:
    """Megabytes per CPU second with duplicates dropped, and tokens per CPU second with new pieces, as ratios."""
    lines = generate_lines(material.sources, STRETCH, material.invented, 7)
    sizes = (material.megabytes, material.megabytes * GROWTH)
    speeds = [_prepare(material, material.folder / f"{size:g}", lines, size) for size in sizes]
    said = ", ".join(f"{size:g} MB: {speed:.2f} MB per CPU second" for size, speed in zip(sizes, speeds, strict=True))
    few, many = (_tokenize(material, count) for count in (0, NEW_PIECES))
    return [
        record("scale/prepare_ratio", speeds[1] / speeds[0], 0.9, f"drop_duplicates; {said}; {material.origin}"),
        record("scale/new_pieces_ratio", many[0] / few[0], 0.8,
               f"tokens per CPU second, {NEW_PIECES:,} new pieces against none, {many[0]:,.0f} against {few[0]:,.0f}"),
        record("scale/new_pieces_ratio_text", many[1] / few[1], 0.8, "the same by characters: new pieces are longer"),
    ]  # fmt: skip


def _prepare(material: Material, folder: Path, lines: list[str], megabytes: float) -> float:
    folder.mkdir()
    backend = folder / "tokenizer"
    backend.mkdir()
    material.word_piece.save(str(backend / "tokenizer.json"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    (backend / "tokenizer_config.json").write_text(json.dumps(names | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    drawn, written, at = np.random.default_rng(3), 0, 0
    with (folder / "en.txt").open("w", encoding="utf-8") as file:
        while written < megabytes * 1e6:
            numbers = np.where(drawn.random(len(lines)) < REPEATED, 0, at + np.arange(len(lines)))
            text = "".join(f"{number} {line}\n" for number, line in zip(numbers.tolist(), lines, strict=True))
            written += len(text.encode())
            at += len(lines)
            file.write(text)
    data = {
        "root": str(folder),
        "corpora": [{"format": "text", "language": "en", "paths": ["en.txt"]}],
        "tokenizer": {"kind": "folder", "path": str(backend)},
        "filters": {"drop_duplicates": True},
    }
    tree = {"output": str(folder / "out"), "data": data, "streams": [{"kind": "masked_text"}]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tree | {"train": {"max_steps": 1, "global_batch_size": 1}}))
    config = load_recipe(str(folder / "recipe.yaml")).config
    began = time.process_time()
    prepared = prepare_here(config)
    spent = time.process_time() - began
    assert prepared.manifest["counts"]["dropped: duplicate line"] > 0
    return written / 1e6 / spent


def _tokenize(material: Material, new_pieces: int) -> tuple[float, float]:
    """Tokens and characters per CPU second of unseen text, the middle of some rounds after the first."""
    backend, rounds = material.word_piece, []
    if new_pieces:
        sample = generate_lines(material.sources, STRETCH, material.invented, 6)
        backend, _ = extend_tokenizer(backend, sample, new_pieces, {}, 1)
    tokenizer = CachedTokenizer(backend, {})
    for number in range(ROUNDS + 1):
        lines = generate_lines(material.sources, STRETCH, material.invented, 60 + number)
        began = time.process_time()
        tokens = len(tokenizer.tokenize(lines, 0).pieces)
        spent = time.process_time() - began
        rounds.append((tokens / spent, sum(map(len, lines)) / spent))
    return tuple(statistics.median(column) for column in zip(*rounds[1:], strict=True))  # type: ignore[return-value]
