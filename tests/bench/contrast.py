"""Contrast and distillation against masked LM, and contrast that continues an encoder against sentence-transformers.

`python contrast.py JSON` is one arm in a process of its own. Times are CPU seconds, for busy machines.
The encoder is multilingual-e5-small where XALIGN_MODELS has it, else a random one of its size.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from records import record

ROW, PAIRS, STEPS, ROUNDS = 128, 32, 4, 2
FIELDS = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")
Pair = tuple[list[int], list[int]]


def measure(rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Every ratio, in interleaved rounds of fresh processes."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(os.environ.get("XALIGN_MODELS", "")) / "e5-small"
        encoder = given if given.is_dir() else random_encoder(Path(folder))
        arms = {
            "mlm": {"name": "ours", "method": "mlm"},
            "contrast": {"name": "ours", "method": "mlm and contrast"},
            "distillation": {"name": "ours", "method": "distillation"},
            "mlm, 2": {"name": "ours", "method": "mlm", "micro_steps": 2},
            "contrast, 2": {"name": "ours", "method": "mlm and contrast", "micro_steps": 2},
            "e5": {"name": "ours", "method": "contrast", "encoder": str(encoder)},
            "e5, 2": {"name": "ours", "method": "contrast", "encoder": str(encoder), "micro_steps": 2},
            "peer": {"name": "peer", "encoder": str(encoder)},
        }
        runs = [{name: run_arm(arm) for name, arm in arms.items()} for _ in range(rounds)]
    seconds = {name: statistics.median(run[name] for run in runs) for name in arms}
    how = f"CPU seconds of a step, median of {rounds} rounds of fresh processes, one core, fp32, {PAIRS} pairs a step"
    small = f"4 layers of 256, rows of {ROW} tokens; {how}"
    peer = (
        f"continuing {encoder.name}, pairs a CPU second, against SentenceTransformerTrainer with "
        f"CachedMultipleNegativesRankingLoss, mini-batches of {PAIRS // 2}; {how}"
    )
    return [
        record("train/contrast_ratio", seconds["contrast"] / seconds["mlm"], 2.2,
               f"TLM and contrast against masked LM on the same rows, a step in one pass; {small}", "lower"),
        record("train/distillation_ratio", seconds["distillation"] / seconds["mlm"], 1.1,
               f"distillation on both sides of the pairs against masked LM on the same tokens; {small}", "lower"),
        record("train/contrast_ratio/two_passes", seconds["contrast, 2"] / seconds["mlm, 2"], None,
               f"the same in two micro-steps, and so two passes; {small}", "lower"),
        record("train/sentence_transformers_ratio", seconds["peer"] / seconds["e5, 2"], 1.0,
               f"ours in two micro-steps: {seconds['peer']:.1f} s against {seconds['e5, 2']:.1f} s; {peer}"),
        record("train/sentence_transformers_ratio/one_pass", seconds["peer"] / seconds["e5"], None,
               f"ours in one micro-step: {seconds['peer']:.1f} s against {seconds['e5']:.1f} s; {peer}"),
    ]  # fmt: skip


def run_arm(arm: dict[str, Any]) -> float:
    """CPU seconds of the median step of an arm."""
    command = [sys.executable, __file__, json.dumps(arm)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def random_encoder(folder: Path) -> Path:
    """A folder with an untrained encoder of the size of multilingual-e5-small and a tokenizer of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(250_032))]
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    shape = {"num_hidden_layers": 12, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
    BertModel(BertConfig(vocab_size=len(words), **shape)).save_pretrained(folder / "random-e5-small")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, mask_token="[MASK]").save_pretrained(
        folder / "random-e5-small"
    )
    return folder / "random-e5-small"


def texts(vocabulary: list[str], steps: int) -> list[tuple[str, str]]:
    """Pairs of sentences of 4 to 60 words, most of them short; a translation is about as long as its sentence."""
    random, made = np.random.default_rng(0), []
    for _ in range(steps * PAIRS):
        length = int(np.clip(random.lognormal(2.8, 0.6), 4, 60))
        made.append(
            tuple(" ".join(random.choice(vocabulary, length + more)) for more in (0, int(random.integers(0, 4))))
        )
    return made


def words_of(tokenizer: Any) -> list[str]:
    """Words of one piece each."""
    pieces = sorted(tokenizer.get_vocab())
    begin = "▁" if "▁" in pieces else "w"
    words = (piece.removeprefix("▁") for piece in pieces if piece.startswith(begin))
    return [word for word in words if word.isalnum() and word.isascii()][:5000]


def rows_of(pairs: list[Pair]) -> dict[str, np.ndarray]:
    """Pairs packed into rows, both sides of a pair into the same; what is masked is the pair as one example."""
    packed: list[list[Pair]] = []
    for pair in pairs:
        size = sum(map(len, pair))
        fits = (row for row in packed if sum(len(q) + len(k) for q, k in row) + size <= ROW)
        row = next(fits, None)
        packed.append([pair]) if row is None else row.append(pair)
    count = len(packed)
    batch = {f"{side}{name}": np.zeros((count, ROW), np.int32) for side in ("", "query_", "key_") for name in FIELDS}
    batch |= {"labels": np.full((count, ROW), -100, np.int32), "pair_hash": np.zeros((count, ROW), np.int64)}
    batch |= {name: np.zeros(count, np.int32) for name in ("cross_lingual", "no_room")}
    for i, row in enumerate(packed):
        for side, examples in (
            ("", [q + k for q, k in row]),
            ("query_", [q for q, _ in row]),
            ("key_", [k for _, k in row]),
        ):
            at = 0
            for number, ids in enumerate(examples, 1):
                where = (i, slice(at, at + len(ids)))
                batch[f"{side}input_ids"][where], batch[f"{side}example_ids"][where] = ids, number
                batch[f"{side}position_ids"][where] = np.arange(len(ids))
                at += len(ids)
    chosen = np.random.default_rng(1).random((count, ROW)) < 0.15 * (batch["example_ids"] > 0)
    return batch | {"labels": np.where(chosen, batch["input_ids"], -100).astype(np.int32)}


def ours(arm: dict[str, Any]) -> list[float]:
    """CPU seconds of the steps of the loop."""
    from xalign_ray.config.schema import RunConfig
    from xalign_ray.train.distributed import keep_freed_memory, setup_workers
    from xalign_ray.train.loop import train
    from xalign_ray.work.job import Job

    random = np.random.default_rng(0)
    if "encoder" in arm:
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(arm["encoder"])
        read = [tuple(tokenizer(list(pair))["input_ids"]) for pair in texts(words_of(tokenizer), STEPS)]
        vocab_size, pad, model = len(tokenizer), tokenizer.pad_token_id, {"init_from": arm["encoder"]}
    else:
        read = [tuple([1, *random.integers(5, 30_000, n).tolist(), 2] for n in (14, 14)) for _ in range(STEPS * PAIRS)]
        vocab_size, pad = 30_000, 0
        model = {"num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
    batches = [rows_of(read[at : at + PAIRS]) for at in range(0, len(read), PAIRS)]
    if arm["method"] == "distillation":
        for batch in batches:
            shape = len(batch["labels"]), int(batch["query_example_ids"].max()), model["hidden_size"]
            batch["teacher"] = random.normal(size=shape).astype(np.float16).view(np.uint8)
    count = max(len(batch["labels"]) for batch in batches)  # a batch with fewer gets rows without a pair
    losses = {"mlm": ["masked_lm"], "contrast": ["sentence_contrast"], "distillation": ["distillation"]}
    losses["mlm and contrast"] = losses["mlm"] + losses["contrast"]
    tree = {
        "data": {
            "corpora": [{"format": "text", "language": code, "paths": ["x"]} for code in ("en", "de")],
            "parallel": [{"format": "moses", "languages": ["en", "de"], "paths": ["x", "y"]}],
            "max_seq_length": ROW,
        }
        | ({"teacher": {"path": "teacher"}} if arm["method"] == "distillation" else {}),
        "streams": [{"kind": "contrasted_pairs"}],
        "objectives": [{"kind": kind} for kind in losses[arm["method"]]],
        "model": model,
        "train": {"max_steps": STEPS, "global_batch_size": count, "eval_steps": 0}
        | {"per_device_batch_size": -(-count // arm.get("micro_steps", 1)), "optimizer": {"learning_rate": 2e-5}},
        "parallel": {"workers": 1, "zero_stage": 0},
        "checkpoint": {"save_steps": 1_000_000},
    }
    config = RunConfig.model_validate(tree)
    begins: list[float] = []

    def open_batches(_first: int, _rank: int, _workers: int) -> Iterator[dict[str, np.ndarray]]:
        for step, batch in enumerate(batches):
            begins.append(time.process_time())
            position = step * count + np.arange(count)
            short = count - len(batch["labels"])
            whole = {
                name: np.pad(values, [(0, short)] + [(0, 0)] * (values.ndim - 1)) for name, values in batch.items()
            }
            whole["labels"][count - short :] = -100
            yield whole | {"position": position, "row_hash": position.astype(np.uint64)}

    prepared: Any = SimpleNamespace(
        languages=["en", "de"], vocab_size=vocab_size, special=SimpleNamespace(pad=pad, cls=1, sep=2), new_rows={},
        held_out_missing={}, retrieval_part=None, pairs=lambda _: None, held_out=lambda *_: [],
    )  # fmt: skip
    keep_freed_memory()  # as `pretrain` does
    with tempfile.TemporaryDirectory() as folder:
        facts = {"recipe": "made", "fingerprint": "f" * 64}
        train(Job(Path(folder), facts), config, prepared, open_batches, setup_workers(config.parallel))  # type: ignore[arg-type]
    return [after - before for before, after in pairwise(begins)][1:]


def peer(arm: dict[str, Any]) -> list[float]:
    """The same by sentence-transformers, without evaluation, logs and checkpoints."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.models import Pooling, Transformer
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
    from transformers import TrainerCallback

    torch.set_num_threads(1)
    inside = Transformer(arm["encoder"])
    model = SentenceTransformer(modules=[inside, Pooling(inside.get_embedding_dimension())], device="cpu")
    pairs = texts(words_of(model.tokenizer), STEPS)
    data = Dataset.from_dict({"anchor": [one for one, _ in pairs], "positive": [other for _, other in pairs]})
    begins: list[float] = []

    class Times(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            begins.append(time.process_time())

    loss = CachedMultipleNegativesRankingLoss(
        model, mini_batch_size=PAIRS // 2, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    )
    with tempfile.TemporaryDirectory() as folder:
        asked = SentenceTransformerTrainingArguments(
            output_dir=folder, per_device_train_batch_size=PAIRS, num_train_epochs=1, learning_rate=2e-5,
            report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        SentenceTransformerTrainer(model, asked, data, loss=loss, callbacks=[Times()]).train()
    return [after - before for before, after in pairwise(begins)][1:]


if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    sys.stdout.write(f"\n{statistics.median({'ours': ours, 'peer': peer}[chosen['name']](chosen))}\n")
