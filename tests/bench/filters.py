"""Times `prepare` of a text file with each filter on against none, by CPU time; documents of ten lines each."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from corpus import Material, tasks_here
from generated import Source
from records import record

from xalign_ray.clean.duplicates import Sift, mark_duplicates
from xalign_ray.clean.text_stage import make_text
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.config.sources import FiltersConfig, NearDuplicatesConfig, QualityConfig
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.open import WHOLE
from xalign_ray.sources.records import Part
from xalign_ray.tokens.part import Task, prepare_part, read_left

ROUNDS = 3
LINES = 10  # of a document
LANGUAGES = ("en", "zh")  # with blanks between words and without
INVENTED = 0.01  # share of new words

GOPHER = QualityConfig(
    min_doc_words=50,
    max_doc_words=100_000,
    min_avg_word_length=3,
    max_avg_word_length=10,
    min_alpha_words_ratio=0.8,
    max_symbol_word_ratio=0.1,
    max_bullet_lines_ratio=0.9,
    max_ellipsis_lines_ratio=0.3,
    dup_line_frac=0.3,
    dup_line_char_frac=0.2,
)
N_GRAMS = QualityConfig(
    top_n_grams=((2, 0.2), (3, 0.18), (4, 0.16)),
    dup_n_grams=((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.1)),
)
SETTINGS: Mapping[str, FiltersConfig] = {
    "none": FiltersConfig(),
    "lengths": FiltersConfig(min_words=3, max_words=500),
    "script": FiltersConfig(min_script_fraction=0.5),
    "markers": FiltersConfig(drop_lines_with=("lorem ipsum", "javascript", "{")),
    "language": FiltersConfig(language_threshold=0.65),
    "gopher": FiltersConfig(quality=GOPHER),
    "n_grams": FiltersConfig(quality=N_GRAMS),
    "duplicates": FiltersConfig(drop_duplicates=True),
    "near_duplicates": FiltersConfig(near_duplicates=NearDuplicatesConfig()),
}


def measure(material: Material) -> list[dict[str, Any]]:
    """MB/s without a filter, and with each, as a share of it."""
    folder = material.folder / "filters"
    (folder / "tokenizer").mkdir(parents=True)
    material.word_piece.save(str(folder / "tokenizer" / "tokenizer.json"))
    size = material.megabytes / (ROUNDS * len(SETTINGS) * len(LANGUAGES))
    records = []
    for source in (one for one in material.sources if one.language in LANGUAGES):
        found: dict[str, list[float]] = {name: [] for name in SETTINGS}
        _rate(folder, source, "none", size, seed=0)  # what is loaded and learnt once
        for seed in range(ROUNDS):
            for number, name in enumerate(SETTINGS):  # each on text of its own: new words cost as much for all
                found[name].append(_rate(folder, source, name, size, 1 + seed * len(SETTINGS) + number))
        how = f"{source.language}, documents of {LINES} lines, {size:.1f} MB a round, CPU, {material.origin}"
        records.append(record(f"scale/prepare_mb_per_s/{source.language}", statistics.median(found["none"]), None, how))
        for name, rates in found.items():
            if name != "none":
                ratio = statistics.median(a / b for a, b in zip(rates, found["none"], strict=True))
                records.append(record(f"scale/prepare_filter_ratio/{source.language}/{name}", ratio, None, how))
    return records


def _rate(folder: Path, source: Source, name: str, megabytes: float, seed: int) -> float:
    """MB of text per CPU second, from the file to the shards."""
    lines = source.lines(int(megabytes * 1e6 / (1 if source.spaced else 3)), INVENTED, np.random.default_rng(seed))
    documents = ["\n".join(lines[at : at + LINES]) for at in range(0, len(lines), LINES)]
    path = folder / f"{name}.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    language = source.language
    pool, parallel = f"text/{language}-{name}-{seed}", ParallelConfig()  # a folder of its own
    texts = [Input(pool, (language,), (Part("text", (str(path),), (WHOLE,)),), (pool,))]
    began = time.process_time()
    with tasks_here():
        task = Task(str(folder), f"{pool}/part", pool, (language,), texts[0].parts[0], 128, True, 0.02, (),
                    SETTINGS[name])  # fmt: skip
        sift = Sift(partial(read_left, languages=(language,)), lambda texts: [replace(task, part=texts[0].parts[0])],
                    name)  # fmt: skip
        (text,) = mark_duplicates(make_text(texts, folder, parallel), folder, SETTINGS[name], parallel, sift)
    task = replace(task, part=text.parts[0])
    prepare_part(task, (language,))
    seconds = time.process_time() - began
    return path.stat().st_size / 1e6 / seconds
