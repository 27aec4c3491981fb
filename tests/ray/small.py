"""A small world and the smallest model over it: what recipes of tests that train for real begin with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock

from xalign_ray.config.load import load_recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.demo.writer import write_demo

MODEL = ("data.tokenizer.vocab_size=1000", "model.hidden_size=32", "model.intermediate_size=64")


# Pairs whose retrieval is scored during training.
TESTS = (
    "data.tests=[{format: moses, languages: [en, qgr], paths: [parallel/train.en-qgr.en, parallel/train.en-qgr.qgr]}]"
)
CUSTOM = "reader"  # a resource of the node of the tests' cluster
WRITTEN = TemporaryDirectory(prefix="worlds-")


def _write_once(sentences: int, parallel: int) -> Path:
    """In a folder that the processes of a test run share."""
    folder = Path(os.environ.get("TESTS_WORLDS", WRITTEN.name), f"{sentences}-{parallel}")
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            begun = folder.with_suffix(".begun")
            write_demo(begun, sentences=sentences, parallel_sentences=parallel, retrieval_pairs=20)
            begun.rename(folder)
    return folder


def copy_demo(folder: Path, sentences: int = 600, parallel: int = 100) -> None:
    """The embedded world in small, whose texts take longer to make than to copy; made once a test run."""
    shutil.copytree(_write_once(sentences, parallel), folder, dirs_exist_ok=True)


def write_world(folder: Path, sentences: int = 600, parallel: int = 100) -> list[str]:
    """Copies the embedded world; gives the settings that point a tiny recipe to it, with runs beside it."""
    copy_demo(folder / "demo", sentences, parallel)
    return [f"data.root={folder / 'demo'}", f"output={folder / 'runs'}", 'track.mlflow="off"', *MODEL]


def batches(rows: int, micro: int, steps: int, saved_every: int, held_out_every: int = 0) -> list[str]:
    """Settings of how long and how wide a run is, and when it is saved."""
    return [
        f"train.max_steps={steps}",
        f"train.global_batch_size={rows}",
        f"train.per_device_batch_size={micro}",
        f"checkpoint.save_steps={saved_every}",
        f"train.eval_steps={held_out_every}",
        "parallel.data_cpus=2",  # one data task at a time: starting their processes is what costs
    ]


def recipe(settings: list[str], *more: str, name: str = "tiny/align-mlm") -> RunConfig:
    """A recipe with these settings, resolved."""
    return load_recipe(name, [*settings, *more]).config
