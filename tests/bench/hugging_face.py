"""The peer: plain masked-LM batches by Hugging Face's own parts, as the run_mlm.py of transformers puts them together.

`datasets.map` tokenizes, `datasets.map` groups into rows of one length, the collator masks whole words. (Its whole-word
mode knows neither 80/10/10 nor a dictionary: it does less than what it is compared with.)
"""

from __future__ import annotations

import warnings
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

BATCH_ROWS = 32

datasets.disable_progress_bars()


def make_batches(path: Path, tokenizer: PreTrainedTokenizerFast, max_seq_length: int, cache: Path) -> int:
    """A text file to batches; returns the tokens in them."""
    rows, collator = group_rows(path, tokenizer, max_seq_length, cache), quiet_collator(tokenizer)
    return sum(batch["input_ids"].numel() for batch in DataLoader(rows, batch_size=BATCH_ROWS, collate_fn=collator))


def group_rows(path: Path, tokenizer: PreTrainedTokenizerFast, max_seq_length: int, cache: Path) -> Any:
    """A text file to a data set of full rows."""

    def encode(batch: dict[str, list[str]]) -> Any:
        return tokenizer(batch["text"], return_special_tokens_mask=True, return_offsets_mapping=True)

    def group(batch: dict[str, list[list[Any]]]) -> dict[str, list[list[Any]]]:
        joined = {name: list(chain(*values)) for name, values in batch.items()}
        total = len(joined["input_ids"]) // max_seq_length * max_seq_length
        return {
            name: [all_[i : i + max_seq_length] for i in range(0, total, max_seq_length)]
            for name, all_ in joined.items()
        }

    lines = datasets.load_dataset("text", data_files=[str(path)], split="train", cache_dir=str(cache))
    return lines.map(encode, batched=True, remove_columns=["text"]).map(group, batched=True)


def quiet_collator(tokenizer: PreTrainedTokenizerFast) -> DataCollatorForLanguageModeling:
    """Masks whole words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "random token replacement is not supported with whole word masking"
        return DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True)
