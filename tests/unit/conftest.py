"""A small prepared folder of text, pairs and dictionaries, made once by `prepare` without Ray."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.shards.prepared import Prepared
from xalign_ray.sources import stage
from xalign_ray.tokens import prepare as preparation
from xalign_ray.tokens.part import Task

WORDS = 120
STREAMS = "streams=[{kind: masked_text}, {kind: masked_pairs}, {kind: code_switched_labels, t: 0.8}]"


def _sentences(language: str, lines: int) -> list[str]:
    """Sentences of 3 to 8 words, frequent words first, each marked by its language; the same every time."""
    source = random.Random(language)
    return [
        " ".join(f"{language}{min(int(source.expovariate(0.04)), WORDS - 1)}" for _ in range(source.randint(3, 8)))
        for _ in range(lines)
    ]


def write_inputs(folder: Path) -> None:
    """Two languages with much and little text, a translation, and a dictionary of every word."""
    for language, lines in (("en", 1500), ("de", 300)):
        (folder / f"{language}.txt").write_text("\n".join(_sentences(language, lines)) + "\n")
    english = _sentences("en", 250)
    (folder / "pairs.en").write_text("\n".join(english) + "\n")
    (folder / "pairs.de").write_text("\n".join(line.replace("en", "de") for line in english) + "\n")
    (folder / "en-de.txt").write_text("".join(f"en{n} de{n}\n" for n in range(WORDS)))


def make_config(folder: Path, *settings: str) -> RunConfig:
    """A recipe over these inputs; shards go to `out` in the same folder."""
    data = {
        "root": str(folder),
        "corpora": [{"format": "text", "language": code, "paths": [f"{code}.txt"]} for code in ("en", "de")],
        "parallel": [{"format": "moses", "languages": ["en", "de"], "paths": ["pairs.en", "pairs.de"]}],
        "dictionaries": [{"languages": ["en", "de"], "paths": ["en-de.txt"]}],
        "tokenizer": {"kind": "bpe", "vocab_size": 400},
        "max_seq_length": 24,
        "example": "sentence",
        "reserve_fraction": 0.1,
    }
    train = {"max_steps": 40, "global_batch_size": 12, "per_device_batch_size": 12}
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"output": str(folder / "out"), "data": data, "train": train}))
    return load_recipe(str(recipe), [STREAMS, *settings]).config


def one_after_the_other(tasks: Sequence[Task], work: Callable[[Task], None], *_: object) -> None:
    for task in tasks:
        work(task)


def prepare_here(config: RunConfig, **options: bool) -> Prepared:
    """`prepare` with its parts done one after the other in this process instead of as Ray Data tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "_run_tasks", one_after_the_other)
        return preparation.prepare(config, **options)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of inputs; tests that change anything make their own."""
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


@pytest.fixture(scope="session")
def config(inputs: Path) -> RunConfig:
    """Three kinds of streams over the inputs."""
    return make_config(inputs)


@pytest.fixture(scope="session")
def prepared(config: RunConfig) -> Prepared:
    """The shards of the recipe."""
    return prepare_here(config)
