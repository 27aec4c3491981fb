"""Aligning a corpus on a real local Ray cluster, killed in the middle: the same bytes as in one process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xalign_ray.align import corpus
from xalign_ray.config.schema import ParallelCorpus
from xalign_ray.config.sources import WordAlignment
from xalign_ray.sources import stage
from xalign_ray.work.artifacts import hash_file, read_manifest

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[2]
PARTS, LINES = 4, 1500
PAIRS = ParallelCorpus(format="tsv", languages=("en", "de"), paths=("*.tsv",))
SAMPLE_PAIRS = 1000
SETTINGS = WordAlignment(train_pairs=SAMPLE_PAIRS)
PROGRAM = """
import sys
from pathlib import Path
import ray
from tests.ray.test_word_alignment import PAIRS, SETTINGS
from xalign_ray.align.corpus import align_corpus
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
align_corpus(PAIRS, Path(sys.argv[2]), Path(sys.argv[1]), settings=SETTINGS)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four TSV files, each a part, the last of another kind: a model of the first alone would be wrong on it."""
    folder = tmp_path_factory.mktemp("pairs")
    source = random.Random(4)
    for part in range(PARTS):
        rows = ["en\tde"]
        for _ in range(LINES):
            words = [source.randrange(50 * part, 50 * part + 80) for _ in range(source.randint(3, 12))]
            rows.append("\t".join(" ".join(f"{code}{word}" for word in words) for code in ("en", "de")))
        (folder / f"{part}.tsv").write_text("\n".join(rows) + "\n")
    return folder


def hashes(out: Path) -> dict[str, str]:
    files = [path for path in out.rglob("*") if path.is_file()]
    return {path.relative_to(out).as_posix(): hash_file(path) for path in files}


@pytest.fixture(scope="module")
def aligned(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As one process does it, without Ray."""
    out = tmp_path_factory.mktemp("alone") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "_run_tasks", lambda tasks, work, *_: [work(task) for task in tasks])
        corpus.align_corpus(PAIRS, out, root, settings=SETTINGS)
    return out


@pytest.mark.usefixtures("cluster")
def test_a_killed_job_on_two_workers_goes_on_where_it_was_and_writes_the_bytes_of_one_process(
    root: Path, aligned: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command, environment = [sys.executable, "-c", PROGRAM, str(root), str(out)], os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 200
    while not list(out.glob("parts/part-*[0-9].json")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    done = {path: path.stat().st_mtime_ns for path in out.glob("parts/*.json")}
    assert out / "parts" / "part-00000.model.json" in done
    assert 0 < len([*out.glob("parts/part-*[0-9].json")]) < PARTS
    assert read_manifest(out) is None
    corpus.align_corpus(PAIRS, out, root, settings=SETTINGS)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    assert hashes(out) == hashes(aligned)


def test_what_is_compared_has_parts_and_links(aligned: Path) -> None:
    manifest = read_manifest(aligned)
    assert manifest is not None
    assert len(manifest["parts"]) == PARTS
    assert manifest["model"]["pairs"] == SAMPLE_PAIRS
    assert manifest["counts"]["links"] > 0.9 * PARTS * LINES * 7
