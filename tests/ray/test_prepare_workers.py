"""Preparing on a real local Ray cluster: the same bytes as in one process."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.data import DataContext

from tests.unit.conftest import prepare_here
from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import ParallelConfig
from xalign_ray.sources.stage import StageStep, run
from xalign_ray.tokens.prepare import prepare
from xalign_ray.work import status_line
from xalign_ray.work.artifacts import hash_file, read_manifest

pytestmark = pytest.mark.ray

PARTS, DOCUMENTS, WORDS = 3, 60, 400
GIVES_UP_S = 1.0


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text in three parts a language, some lines repeated across them; pairs in two parts; a dictionary."""
    folder = tmp_path_factory.mktemp("inputs")
    source = random.Random(5)

    def sentence(code: str) -> str:
        words = (min(int(source.expovariate(0.02)), WORDS - 1) for _ in range(source.randint(2, 30)))
        return " ".join(f"{code}{word}" for word in words)

    for code in ("en", "de"):
        known = [sentence(code) for _ in range(50)]
        for part in range(PARTS):
            documents = [[sentence(code) for _ in range(source.randint(1, 8))] for _ in range(DOCUMENTS)]
            documents += [[source.choice(known)] for _ in range(20)]
            text = "\n\n".join("\n".join(lines) for lines in documents)
            (folder / f"{code}-{part}.txt").write_text(text + "\n")
    for part in range(2):
        pairs = [sentence("en") for _ in range(200)]
        rows = ["en\tde", *(f"{line}\t{line.replace('en', 'de')}" for line in pairs)]
        (folder / f"pairs-{part}.tsv").write_text("\n".join(rows) + "\n")
    (folder / "words.txt").write_text("".join(f"en{n} de{n}\n" for n in range(WORDS)))
    data = {
        "root": str(folder),
        "corpora": [{"format": "text", "language": code, "paths": [f"{code}-*.txt"]} for code in ("en", "de")],
        "parallel": [{"format": "tsv", "languages": ["en", "de"], "paths": ["pairs-*.tsv"]}],
        "dictionaries": [{"languages": ["en", "de"], "paths": ["words.txt"]}],
        "filters": {"drop_duplicates": True},
        "tokenizer": {"kind": "bpe", "vocab_size": 600},
        "max_seq_length": 48,
    }
    streams = [{"kind": kind} for kind in ("masked_text", "masked_pairs", "code_switched_labels")]
    train = {"max_steps": 10, "global_batch_size": 8}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"data": data, "streams": streams, "train": train}))
    return path


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder as one process makes it, without Ray."""
    return prepare_here(load_recipe(str(recipe), [f"output={tmp_path_factory.mktemp('alone')}"]).config).folder


def hashes(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


@pytest.mark.usefixtures("cluster")
def test_ray_prepares_the_bytes_that_one_process_does_and_says_how_far_it_is(
    recipe: Path, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status_line, "EVERY_S", 0.0)
    shared = prepare(load_recipe(str(recipe), [f"output={tmp_path}"]).config).folder
    assert shared.name == alone.name, "the fingerprint"
    assert hashes(shared) == hashes(alone)
    said = capsys.readouterr().err
    for number in range(1, 9):
        assert re.search(rf"^preparing: {number} of 8 parts, \d+\.\d MB/s, ", said, re.MULTILINE)
    passes = ("reading for duplicate lines: 8 of 8 parts", "looking for duplicates: 3 of 3 partitions")
    for job in ("hashing the inputs: 9 of 9 files", *passes):
        assert f"\n{job}, " in f"\n{said}"


@dataclass(frozen=True)
class Slow:
    """A part that takes longer than Ray Data would wait for any to end."""

    folder: str

    def path(self, suffix: str) -> Path:
        return Path(self.folder, f"slow{suffix}")


def sleep(_: Slow) -> tuple[list[Path], dict[str, Any]]:
    time.sleep(3 * GIVES_UP_S)
    return [], {"slept": True}


@pytest.mark.usefixtures("cluster")
def test_a_part_may_take_longer_than_ray_data_waits_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default it gives up after half an hour without an end, which a teacher's vectors of a large part take."""
    monkeypatch.setattr(DataContext.get_current(), "execution_no_progress_timeout_s", GIVES_UP_S)
    step = StageStep("waiting", sleep, sizes=lambda tasks: [0.0 for _ in tasks])
    assert [record["slept"] for record in run(step, [Slow(str(tmp_path))], ParallelConfig())] == [True]


def test_what_is_compared_has_parts_and_repeats(alone: Path) -> None:
    manifest = read_manifest(alone)
    assert manifest is not None
    assert {name: pool["shards"][1] - pool["shards"][0] for name, pool in manifest["pools"].items()} == {
        "pairs/de-en": 2,
        "text/de": PARTS,
        "text/en": PARTS,
    }
    assert manifest["counts"]["dropped: duplicate line"] > 0
    assert manifest["held_out"]
    assert manifest["dictionary"]["pairs_trained"] > 0
