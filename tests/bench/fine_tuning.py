"""Fine-tuning a classifier of pairs against the plain Trainer with dynamic padding: seconds of an epoch."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from records import record

from tests.whole_words import write_encoder

PAIRS, BATCH, EPOCHS, WORDS, ROUNDS = 1_600, 32, 3, 2_000, 3
LABELS = ("contradiction", "entailment", "neutral")
PREMISE, HYPOTHESIS = (2.9, 0.55), (2.2, 0.4)  # log-normal lengths in words, about XNLI's: medians 18 and 9


def measure(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Epochs after the first, in interleaved rounds of fresh processes."""
    found: dict[str, list[float]] = {"ours": [], "trainer": []}
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        for _ in range(rounds):
            for arm, seconds in found.items():
                command = [sys.executable, __file__, arm, folder]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                seconds.append(statistics.median(json.loads(done.stdout.splitlines()[-1])[1:]))
    ours, theirs = (statistics.median(seconds) for seconds in found.values())
    how = (
        f"seconds of an epoch over {PAIRS:,} pairs as long as XNLI's, batch {BATCH}, fp32, 4 layers of 256, one core, "
        f"median of {rounds} interleaved rounds of fresh processes; {ours:.1f} s against {theirs:.1f} s"
    )
    return [
        record("tune/trainer_ratio", theirs / ours, 0.97, f"against transformers' Trainer, padding by batch; {how}")
    ]


def write_files(folder: Path) -> None:
    """An untrained encoder with a tokenizer of whole words, and XNLI files of made words."""
    random = np.random.default_rng(0)
    sizes = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    write_encoder(folder / "encoder", (f"w{number}" for number in range(WORDS)), **sizes)

    def text(length: tuple[float, float]) -> str:
        return " ".join(f"w{word}" for word in random.integers(0, WORDS, 1 + int(random.lognormal(*length))))

    for name, count in (("multinli.train.en.tsv", PAIRS), ("dev-en.tsv", 6), ("test-en.tsv", 6)):
        lines = [f"{text(PREMISE)}\t{text(HYPOTHESIS)}\t{LABELS[number % 3]}" for number in range(count)]
        head = ["premise\thypo\tlabel"] if "train" in name else []
        (folder / name).write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")


def ours(folder: Path) -> list[float]:
    """`tune` of one cell; an epoch ends with the scoring of six pairs."""
    from xalign_ray.finetune.settings import FineTuning
    from xalign_ray.finetune.tune import tune_task
    from xalign_ray.tasks.registry import TUNED_TASKS

    ends = [time.perf_counter()]
    settings = FineTuning(num_train_epochs=EPOCHS, train_batch_size=BATCH)
    with tempfile.TemporaryDirectory() as out:
        tune_task(TUNED_TASKS["xnli"], str(folder / "encoder"), [folder], Path(out), ["en"], settings,
                  on_epoch=lambda *_: ends.append(time.perf_counter()))  # fmt: skip
    return np.diff(ends).tolist()


def trainer(folder: Path) -> list[float]:
    """As run_xnli does it, in one thread as well."""
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder / "encoder")
    rows = [line.split("\t") for line in (folder / "multinli.train.en.tsv").read_text().splitlines()[1:]]
    features = [
        {**tokenizer(premise, hypothesis, truncation=True, max_length=128), "label": LABELS.index(label)}
        for premise, hypothesis, label in rows
    ]
    model = AutoModelForSequenceClassification.from_pretrained(folder / "encoder", num_labels=3)
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            ends[:] = ends or [time.perf_counter()]

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(
            out,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        collator = DataCollatorWithPadding(tokenizer)
        Trainer(model, arguments, collator, features, callbacks=[Clock()]).train()  # type: ignore[arg-type]
    return np.diff(ends).tolist()


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"ours": ours, "trainer": trainer}[sys.argv[1]](Path(sys.argv[2]))) + "\n")
