"""What prepare costs as corpora, vocabularies and recipes grow: duplicates, a second recipe.

XALIGN_BENCH_DUMP names a Wikipedia dump (English); without it a second recipe is timed over plain text alone.
`python tests/bench/run.py 100 scale_prepare`: 100 MB of text against four times as much; CPU time of one process, which
does the parts one after the other, so that a term that grows faster than the corpus shows, and other load does not.
"""

from __future__ import annotations

import json
import os
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
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import FiltersConfig, NearDuplicatesConfig

TEXT = "en.txt"
GROWTH = 4
STRETCH = 8_000_000  # characters that are made; a corpus is these lines again and again, each led by a number
REPEATED = 0.2  # share of the lines that stood before
ROUNDS = 3


def measure(material: Material) -> list[dict[str, Any]]:
    """Megabytes per CPU second with duplicates dropped, and CPU time of a second recipe, as ratios."""
    sizes = (material.megabytes, material.megabytes * GROWTH)
    speeds = [_drop_duplicates(material, material.folder / f"{size:g}", size) for size in sizes]
    said = ", ".join(f"{size:g} MB: {speed:.2f} MB per CPU second" for size, speed in zip(sizes, speeds, strict=True))
    return [
        record("scale/prepare_ratio", speeds[1] / speeds[0], 0.9, f"drop_duplicates; {said}; {material.origin}"),
        _find_duplicates(material, material.folder / "duplicates"),
        *_second_recipe(material, material.folder / "second"),
    ]


def _drop_duplicates(material: Material, folder: Path, megabytes: float) -> float:
    """Megabytes per CPU second."""
    lines = generate_lines(material.sources, STRETCH, material.invented, 7)
    config = _make_config(material, folder, drop_duplicates=True)
    drawn, written, at = np.random.default_rng(3), 0, 0
    with (folder / TEXT).open("w", encoding="utf-8") as file:
        while written < megabytes * 1e6:
            numbers = np.where(drawn.random(len(lines)) < REPEATED, 0, at + np.arange(len(lines)))
            text = "".join(f"{number} {line}\n" for number, line in zip(numbers.tolist(), lines, strict=True))
            written += len(text.encode())
            at += len(lines)
            file.write(text)
    began = time.process_time()
    prepared = prepare_here(config)
    spent = time.process_time() - began
    assert prepared.manifest["counts"]["dropped: duplicate line"] > 0
    return written / 1e6 / spent


def _find_duplicates(material: Material, folder: Path) -> dict[str, Any]:
    """CPU time of all of prepare with duplicates and near-duplicates dropped, and without, in turn."""
    plain = _make_config(material, folder, drop_duplicates=False)
    lines = generate_lines(material.sources, STRETCH, material.invented, 11)
    (folder / TEXT).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    both = FiltersConfig(drop_duplicates=True, near_duplicates=NearDuplicatesConfig())
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(ROUNDS):
        for is_on, spent in seconds.items():
            data = plain.data.model_copy(update={"filters": both} if is_on else {})
            began = time.process_time()
            prepare_here(plain.model_copy(update={"data": data, "output": str(folder / f"out-{is_on}-{number}")}))
            spent.append(time.process_time() - began)
    off, on = (statistics.median(spent) for spent in seconds.values())
    how = (
        f"whole prepare, both on {on:.1f} and off {off:.1f} CPU seconds, medians of {ROUNDS} rounds; {material.origin}"
    )
    return record("scale/duplicates_ratio", on / off, 1.35, how, "lower")


def _second_recipe(material: Material, folder: Path) -> list[dict[str, Any]]:
    """CPU time of a recipe of another length and reserve over text that a first has parsed; what the text takes."""
    folder.mkdir(parents=True)
    lines = generate_lines(material.sources, STRETCH, material.invented, 9)
    (folder / TEXT).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    sources = {"text": (folder / TEXT, material.origin)}
    if dump := os.environ.get("XALIGN_BENCH_DUMP"):
        sources["wikipedia"] = Path(dump), Path(dump).name
    records = []
    for format_, (path, origin) in sources.items():
        config = _make_config(material, folder / format_, drop_duplicates=False)
        (corpus,) = config.data.corpora
        spent = []
        for length, reserve in ((128, 0.0), (256, 0.1)):
            corpora = (corpus.model_copy(update={"format": format_, "paths": (str(path.absolute()),)}),)
            update = {"corpora": corpora, "max_seq_length": length, "reserve_fraction": reserve}
            began = time.process_time()
            prepare_here(config.model_copy(update={"data": config.data.model_copy(update=update)}))
            spent.append(time.process_time() - began)
        kept = sum(file.stat().st_size for file in (folder / format_ / "out" / "text").rglob("*.parquet"))
        how = f"{path.stat().st_size / 1e6:.1f} MB, {spent[0]:.1f} and {spent[1]:.1f} CPU seconds, {origin}"
        is_dump = format_ == "wikipedia"
        records.append(
            record(f"data/second_recipe/{format_}", spent[1] / spent[0], 0.2 if is_dump else None, how, "lower")
        )
        share = kept / path.stat().st_size
        records.append(record(f"data/text_on_disk/{format_}", share, 0.9 if is_dump else None, how, "lower"))
    return records


def _make_config(material: Material, folder: Path, drop_duplicates: bool) -> RunConfig:
    """Of English text in a file of the folder, cut by the material's tokenizer."""
    backend = folder / "tokenizer"
    backend.mkdir(parents=True)
    material.word_piece.save(str(backend / "tokenizer.json"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    (backend / "tokenizer_config.json").write_text(json.dumps(names | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    data = {
        "root": str(folder),
        "corpora": [{"format": "text", "language": "en", "paths": [TEXT]}],
        "tokenizer": {"kind": "folder", "path": str(backend)},
        "filters": {"drop_duplicates": drop_duplicates},
    }
    tree = {"output": str(folder / "out"), "data": data, "streams": [{"kind": "masked_text"}]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tree | {"train": {"max_steps": 1, "global_batch_size": 1}}))
    return load_recipe(str(folder / "recipe.yaml")).config
