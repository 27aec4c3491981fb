"""One arm of the step's bench in a process of its own: `python step_arms.py JSON` trains on made rows, says how long.

`python step_arms.py -` reads one arm a line from standard input and answers each: imports cost seconds once. Under
torchrun each process is a worker of the arm, and the first says how long.

Arms: `trainer` (transformers' Trainer, BertForMaskedLM, logits of all positions), `plain` (a plain torch loop around
our losses) and `ours` (the loop as `pretrain` runs it, with its event log). All see the same examples; ours packs them.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
from method_rows import METHODS, columns, dictionary

from xalign_ray.config.schema import RunConfig
from xalign_ray.objectives.objective import summed_cross_entropy
from xalign_ray.track.events import EVENT_LOG, read_events
from xalign_ray.train.distributed import keep_freed_memory, setup_workers
from xalign_ray.train.loop import Loop, build_model, train
from xalign_ray.train.optimizers import build_optimizer
from xalign_ray.train.step import tensors
from xalign_ray.work.job import Job
from xalign_ray.work.run_folder import RunFolder

ROW, WIDTH, DEPTH, HEADS = 128, 256, 4, 4
MASKED, SETTLED = 0.15, 2  # the first steps fill caches and are left out
NOT_A_LABEL = -100
TOGETHER = 4

said: dict[str, Any] = {}  # what an arm measured besides seconds
Examples = list[tuple[np.ndarray, np.ndarray]]  # ids and labels of each


@dataclass(frozen=True)
class Arm:
    """What is trained, how often, on how much.

    Attributes:
        fill: part of a row that an example takes. device: `cuda` puts everything on one GPU, in bf16 if `bf16`.
        method: of `ours`, a name of METHODS. train, model: further settings of the recipe's blocks for it.
        profile: steps of `ours` that are profiled; the summary is part of the answer.
        workers: of `ours`, the processes that torchrun started; each has `rows`.
    """

    name: str
    vocab: int
    rows: int
    fill: float = 1.0
    stage: int = 0
    steps: int = 8
    device: str = "cpu"
    bf16: bool = False
    row: int = ROW
    width: int = WIDTH
    depth: int = DEPTH
    heads: int = HEADS
    method: str = "mlm"
    train: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    profile: int = 0
    workers: int = 1


def together(arm: Arm) -> int:
    """Steps that are timed together: to time each, a GPU would be waited for."""
    return TOGETHER if arm.device == "cuda" else 1


def examples(arm: Arm) -> Examples:
    """As many as a padded batch has rows; 15 % of their tokens are labels."""
    random = np.random.default_rng(0)
    made = []
    for _ in range(arm.rows):
        middle = arm.row * arm.fill
        length = arm.row if arm.fill == 1 else int(random.integers(middle // 2, middle * 1.5))
        ids = random.integers(5, arm.vocab, length)
        labels = np.full(length, NOT_A_LABEL)
        chosen = random.choice(length, max(1, int(length * MASKED)), replace=False)
        labels[chosen] = ids[chosen]
        made.append((ids, labels))
    return made


def packed(some: Examples, row: int) -> dict[str, np.ndarray]:
    """Rows of whole examples, each in the first row that has room."""
    rows: list[Examples] = []
    for one in some:
        fits = (given for given in rows if sum(len(ids) for ids, _ in given) + len(one[0]) <= row)
        next(fits, None) or rows.append([])
        room = next((given for given in rows if sum(len(ids) for ids, _ in given) + len(one[0]) <= row), rows[-1])
        room.append(one)
    names = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids", "cross_lingual", "no_room")
    batch = {name: np.zeros((len(rows), row), np.int32) for name in names}
    batch["labels"] = np.full((len(rows), row), NOT_A_LABEL, np.int32)
    for number, given in enumerate(rows):
        at = 0
        for example, (ids, labels) in enumerate(given, 1):
            where = slice(at, at + len(ids))
            batch["input_ids"][number, where], batch["labels"][number, where] = ids, labels
            batch["position_ids"][number, where], batch["example_ids"][number, where] = np.arange(len(ids)), example
            at += len(ids)
    return batch


class MadeRows:
    """The least of a prepared folder."""

    def __init__(self, vocab: int) -> None:
        self.languages, self.vocab_size = ["en", "de"], vocab
        self.special = SimpleNamespace(pad=0, cls=1, sep=2)
        self.new_rows: dict[int, list[int]] = {}
        self.held_out_missing: dict[str, int] = {}
        self.retrieval_part = None

    def pairs(self, _split: str) -> SimpleNamespace:
        """For dictionary_alignment."""
        return dictionary(self.vocab_size)

    def held_out(self, *_: int) -> list[Any]:
        """None."""
        return []


def recipe(arm: Arm, rows: int) -> RunConfig:
    """The same model and optimizer for all arms."""
    method = METHODS[arm.method]
    return RunConfig.model_validate(
        {
            "data": {
                "corpora": [{"format": "text", "language": code, "paths": ["x"]} for code in ("en", "de")],
                "dictionaries": [{"languages": ["en", "de"], "paths": ["x"]}],
                "parallel": [{"format": "moses", "languages": ["en", "de"], "paths": ["x", "y", "aligned"]}],
                "max_seq_length": arm.row,
            },
            "streams": method["streams"],
            "objectives": method["objectives"],
            "model": {
                **method.get("model", {}),
                "num_hidden_layers": arm.depth,
                "hidden_size": arm.width,
                "num_attention_heads": arm.heads,
                "intermediate_size": 4 * arm.width,
                **arm.model,
            },
            "train": {
                "max_steps": arm.steps,
                "global_batch_size": rows * arm.workers,
                "per_device_batch_size": rows,
                "eval_steps": 0,
                "bf16": arm.bf16,
                **arm.train,
            },
            "parallel": {
                "workers": arm.workers,
                "zero_stage": arm.stage,
                "gpus_per_worker": int(arm.device == "cuda"),
            },
            "checkpoint": {"save_steps": 1_000_000},
            "track": {"profile_steps": arm.profile, "logging_steps": together(arm)},
        }
    )


def ours(arm: Arm) -> list[float]:
    """The loop with its engine, log and the checkpoint at the end."""
    batch = packed(examples(arm), arm.row)
    batch |= columns(arm.method, batch)
    count = len(batch["input_ids"])
    config = recipe(arm, count)

    def open_batches(first: int, rank: int, workers: int) -> Iterator[dict[str, np.ndarray]]:
        for step in range(first, arm.steps):
            position = (step * workers + rank) * count + np.arange(count)
            yield batch | {"position": position, "row_hash": position.astype(np.uint64)}

    with tempfile.TemporaryDirectory() as folder:
        facts = {"recipe": "made", "fingerprint": "f" * 64}
        workers = setup_workers(config.parallel)
        kept = ExitStack()
        if workers.on_gpu or workers.size > 1:
            kept.enter_context(patch.object(Loop, "_save"))  # gigabytes, after the last step; of one folder for all
        else:
            keep_freed_memory()  # as `pretrain` does
        with kept:
            train(Job(Path(folder), facts), config, MadeRows(arm.vocab), open_batches, workers)  # type: ignore[arg-type]
        if workers.rank:
            return [0.0]
        events = read_events(Path(folder) / EVENT_LOG)
        steps = [event["metrics"] for event in events if event["event"] == "step"]
        if arm.profile:
            said["profile"] = (RunFolder(Path(folder)).profile / "summary.txt").read_text()
    for name in ("train/tokens_per_s", "train/tflops", "train/mfu", "train/data_wait_ms"):
        if values := [step[name] for step in steps[SETTLED:] if name in step]:
            said[name] = statistics.median(values)
    return [step["train/step_ms"] / 1e3 for step in steps]


def plain(arm: Arm) -> list[float]:
    """Forward, backward, clip, step; nothing else."""
    rows = packed(examples(arm), arm.row)
    config, device = recipe(arm, len(rows["input_ids"])), torch.device(arm.device)
    torch.set_num_threads(1)
    objectives = build_model(config, MadeRows(arm.vocab), device).to(device)  # type: ignore[arg-type]
    optimizer = build_optimizer(objectives, config.train.optimizer)
    labels = int((rows["labels"] != NOT_A_LABEL).sum())
    seconds = []
    each = together(arm)
    for first in range(0, arm.steps, each):
        began = time.perf_counter()
        for step in range(first, first + each):
            with torch.autocast(device.type, torch.bfloat16, enabled=arm.bf16):
                loss = objectives(tensors(rows, device), (0, 1), step)["masked_lm"] / labels
            loss.backward()
            torch.nn.utils.clip_grad_norm_(objectives.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        _finish(device)
        seconds.append((time.perf_counter() - began) / each)
    return seconds


def stock_model(arm: Arm) -> Any:
    """The peers' model: transformers' own masked LM of the arm's sizes."""
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            vocab_size=arm.vocab,
            hidden_size=arm.width,
            num_hidden_layers=arm.depth,
            num_attention_heads=arm.heads,
            intermediate_size=4 * arm.width,
            max_position_embeddings=arm.row,
        )
    )


def trainer(arm: Arm) -> list[float]:
    """The peer: rows padded to the row length, logits everywhere, its own defaults otherwise."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    torch.set_num_threads(1)
    some = examples(arm)
    rows = [
        {
            "input_ids": np.pad(ids, (0, arm.row - len(ids))),
            "attention_mask": np.arange(arm.row) < len(ids),
            "labels": np.pad(labels, (0, arm.row - len(ids)), constant_values=NOT_A_LABEL),
        }
        for ids, labels in some
    ]
    model = stock_model(arm)
    seconds: list[float] = []
    each = together(arm)

    class Clock(TrainerCallback):
        def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step % each == 0:
                _finish(model.device)
                self.began = time.perf_counter()

        def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step % each == 0:
                _finish(model.device)
                seconds.append((time.perf_counter() - self.began) / each)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=arm.rows,
            max_steps=arm.steps,
            use_cpu=arm.device == "cpu",
            bf16=arm.bf16,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model, arguments, train_dataset=rows * arm.steps, callbacks=[Clock()]).train()  # type: ignore[arg-type]
    return seconds


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def head_memory(arm: Arm) -> list[float]:
    """MB that the head, the loss and their gradients need on top of what is there before: logits of all, and ours."""
    rows = packed(examples(arm), arm.row)
    objectives = build_model(recipe(arm, len(rows["input_ids"])), MadeRows(arm.vocab))  # type: ignore[arg-type]
    encoder, batch = objectives.encoder, tensors(rows, torch.device("cpu"))
    labels = batch["labels"].flatten()
    asked, hidden = labels != NOT_A_LABEL, torch.randn(labels.numel(), arm.width)

    def head(loss: Callable[..., torch.Tensor], states: torch.Tensor, wanted: torch.Tensor) -> None:
        logits = encoder.predict(states, torch.zeros_like(wanted))
        loss(logits, wanted).backward()
        for parameter in objectives.parameters():
            parameter.grad = None

    head(summed_cross_entropy, hidden[:8], labels[:8])  # what is only needed once
    return [
        _peak(lambda: head(torch.nn.functional.cross_entropy, hidden, labels)),
        _peak(lambda: head(summed_cross_entropy, hidden[asked], labels[asked])),
    ]


def _peak(work: Callable[[], None]) -> float:
    """MB by which the resident memory of the process grows at most."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before = _status("VmRSS")
    work()
    return (_status("VmHWM") - before) / 1e3


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(key))


ARMS: dict[str, Callable[[Arm], list[float]]] = {
    "ours": ours,
    "plain": plain,
    "trainer": trainer,
    "head_memory": head_memory,
}


def measure(given: str) -> dict[str, Any]:
    """Seconds of each step, their median, peak memory in MB, and what else the arm measured."""
    arm = Arm(**json.loads(given))
    said.clear()
    if arm.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    found = ARMS[arm.name](arm)
    if arm.device == "cuda":
        said["gpu_peak_mb"] = torch.cuda.max_memory_allocated() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"found": found, "median": statistics.median(found[SETTLED:] or found), "peak_mb": peak} | said


def answer_each() -> None:
    """One line of JSON for each arm that standard input names; what libraries print goes elsewhere."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = measure(line)
        except Exception as error:  # the next arm is measured all the same
            answer = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
            traceback.print_exc()
        gc.collect()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    if sys.argv[1] == "-":
        answer_each()
    else:
        answer = json.dumps(measure(sys.argv[1]))
        if os.environ.get("RANK", "0") == "0":
            sys.stdout.write(answer + "\n")
