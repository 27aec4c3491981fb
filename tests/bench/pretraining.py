"""A whole pretraining run, raw text to saved weights, against run_mlm's way of it: seconds to as many tokens."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from corpus import Material, write_round
from hugging_face import group_rows, quiet_collator
from records import record
from step import _one_core
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

from xalign_ray.vocabulary.tokenizer_folder import open_tokenizer, save_tokenizer, wrap_tokenizer

STEPS, ROWS, LENGTH, PIECES = 250, 8, 128, 119_000


def measure(material: Material) -> list[dict[str, Any]]:
    """One run of theirs between two of ours."""
    folder = material.folder / "pretraining"
    folder.mkdir()
    write_round(material, folder, 0, 0)
    tokenizer = folder / "tokenizer"
    save_tokenizer(wrap_tokenizer(_widened(material)), tokenizer)
    before, theirs = _ours(material, folder, "before"), _theirs(folder, open_tokenizer(str(tokenizer)))
    ours = (before + _ours(material, folder, "after")) / 2
    how = (
        f"raw text on disk to saved weights, wall time, one thread to train with: {STEPS} steps of {ROWS} rows of "
        f"{LENGTH} tokens, 4 layers of 256, V {PIECES:,}, plain MLM over the real text of {len(material.languages)} "
        f"languages; {ours:.0f} s (prepare, Ray, feed, train, log, save; mean of a run before the other and one after) "
        f"against {theirs:.0f} s"
    )
    return [record("train/whole_run_ratio", theirs / ours, 4.0, f"against run_mlm's way; {how}")]


def _widened(material: Material) -> Any:
    """The trained tokenizer with pieces that no text has, up to the size of mBERT's vocabulary."""
    state = json.loads(material.word_piece.to_str())
    vocabulary = state["model"]["vocab"]
    vocabulary |= {f"[unused{number}]": number for number in range(len(vocabulary), PIECES)}
    return type(material.word_piece).from_str(json.dumps(state))


def _ours(material: Material, folder: Path, name: str) -> float:
    corpora = ", ".join(f'{{format: text, language: {code}, paths: ["{code}-0.txt"]}}' for code in material.languages)
    settings = [
        f"data.root={folder}", f"data.corpora=[{corpora}]", "data.dictionaries=[]", "data.parallel=[]",
        f"data.tokenizer={{kind: folder, path: {folder / 'tokenizer'}}}", f"data.max_seq_length={LENGTH}",
        "streams=[{kind: masked_text}]", "objectives=[{kind: masked_lm}]",
        "model.num_hidden_layers=4", "model.hidden_size=256", "model.num_attention_heads=4",
        "model.intermediate_size=1024", f"train.max_steps={STEPS}", f"train.global_batch_size={ROWS}",
        "parallel.workers=1", "parallel.zero_stage=0", "train.eval_steps=0", "checkpoint.save_steps=1000000",
        f"output={folder / name}",
    ]  # fmt: skip
    chosen = [word for setting in settings for word in ("--set", setting)]
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "xalign_ray", "pretrain", "tiny/mlm", *chosen], check=True, env=_one_core())
    return time.perf_counter() - began


def _theirs(folder: Path, tokenizer: PreTrainedTokenizerFast) -> float:
    began = time.perf_counter()
    rows = group_rows(folder / "peers-0.txt", tokenizer, LENGTH, folder / "cache")
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=PIECES,
            hidden_size=256,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=1024,
            max_position_embeddings=LENGTH,
        )
    )
    arguments = TrainingArguments(
        str(folder / "trainer"),
        per_device_train_batch_size=ROWS,
        max_steps=STEPS,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        remove_unused_columns=False,  # whole-word masking reads the offsets
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, quiet_collator(tokenizer), rows)
    trainer.train()
    trainer.save_model(str(folder / "saved"))
    return time.perf_counter() - began
