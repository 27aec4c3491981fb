"""From text to scores on one GPU: `pretrain`, `evaluate` and fine-tuning give there what they give on the CPU."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.device import DEVICE
from tests.whole_words import write_encoder
from xalign_ray.config.load import load_recipe
from xalign_ray.demo.writer import write_demo
from xalign_ray.finetune.settings import FineTuning
from xalign_ray.finetune.tune import tune_task
from xalign_ray.sources import stage
from xalign_ray.tasks.registry import TASKS, TUNED_TASKS
from xalign_ray.tokens import prepare as preparation
from xalign_ray.track.events import read_events

pytestmark = pytest.mark.gpu
SETTINGS = (
    "data.corpora=[{format: jsonl, language: en, paths: [wiki/en.jsonl]},"
    " {format: jsonl, language: qgr, paths: [wiki/qgr.jsonl]}]",
    "data.dictionaries=[{languages: [en, qgr], paths: [dictionaries/en-qgr.txt]}]",
    "data.tokenizer.vocab_size=600",
    "train={max_steps: 60, global_batch_size: 16, per_device_batch_size: 16, eval_steps: 30, bf16: true}",
    "parallel={workers: 1, zero_stage: 1}",
    "track.mlflow=off",
)
WORDS = {"yes": "entailment", "no": "contradiction", "maybe": "neutral"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `pretrain` in a process of its own; its shards are made in this one, which needs no Ray."""
    folder = tmp_path_factory.mktemp("pipeline")
    write_demo(folder / "demo", sentences=600, parallel_sentences=10, retrieval_pairs=100)
    settings = [*SETTINGS, f"data.root={folder / 'demo'}", f"output={folder / 'runs'}"]
    settings.append(f"parallel.gpus_per_worker={int(DEVICE == 'cuda')}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "_run_tasks", lambda tasks, work, *_: [work(task) for task in tasks])
        preparation.prepare(load_recipe("tiny/align-mlm", settings).config)
    chosen = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "xalign_ray", "pretrain", "tiny/align-mlm", *chosen]
    done = subprocess.run([*command, "--no-ray", "--out", str(folder / "run")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_run_learns_and_says_how_fast(run: Path):
    steps = [event["metrics"] for event in read_events(run / "events.jsonl") if event["event"] == "step"]
    assert steps[-1]["train/loss"] < steps[0]["train/loss"] - 0.5
    assert steps[-1]["train/tflops"] > 0
    assert steps[-1]["train/peak_memory_mb"] > 0


@pytest.mark.parametrize("task", ["alignment", "tatoeba"])
def test_its_export_scores_on_the_gpu_as_on_the_cpu(run: Path, task: str):
    data = run.parent / "demo" / "tatoeba" if task == "tatoeba" else None
    there, here = (TASKS[task].evaluate(str(run / "export"), data, device=device) for device in (DEVICE, "cpu"))
    assert len(there) == len(here) > 4
    for one, other in itertools.zip_longest(there, here):
        assert (one.metric, one.language, one.layer) == (other.metric, other.language, other.layer)
        assert one.value == pytest.approx(other.value, abs=0.02)


def test_fine_tuning_learns_on_the_gpu_what_it_learns_on_the_cpu(tmp_path: Path):
    _write_task(tmp_path)
    found = []
    for device, compiled in ((DEVICE, False), (DEVICE, True), ("cpu", False)):
        settings = FineTuning(num_train_epochs=3, train_batch_size=16, learning_rate=1e-3, torch_compile=compiled)
        scores = tune_task(
            TUNED_TASKS["xnli"], str(tmp_path / "encoder"), [tmp_path], tmp_path / "trial", ["en"], settings,
            device=device,
        )  # fmt: skip
        found.append(scores[0].value)
    assert found == pytest.approx([found[-1]] * 3, abs=0.03)
    assert min(found) > 0.9


def _write_task(folder: Path) -> None:
    """An untrained encoder of whole words, and XNLI files in which one word says the label."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    write_encoder(folder / "encoder", [*WORDS, *(f"w{number}" for number in range(50))], **sizes)
    draw = random.Random(5)
    for name, count in (("multinli.train.en.tsv", 900), ("dev-en.tsv", 90), ("test-en.tsv", 90)):
        lines = ["premise\thypo\tlabel"] if "train" in name else []
        for number in range(count):
            word = [*WORDS][number % 3]
            text = [f"w{draw.randrange(50)}" for _ in range(draw.randrange(3, 12))]
            lines.append(f"{' '.join(text)}\tw1 {word} w2\t{WORDS[word]}")
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
