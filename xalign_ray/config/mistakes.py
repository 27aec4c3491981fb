"""Mistakes in a value or a key in our words: what was wanted, and the key that other tools call by this name."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

_KINDS = {  # of pydantic's errors, by the beginning of their name
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string_type": "text; put quotes around it",
    "tuple": "a list, as in [a, b]",
    "list": "a list, as in [a, b]",
    "set": "a list, as in [a, b]",
    "dict": "a block of keys",
    "mapping": "a block of keys",
    "model": "a block of keys",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
ALIASES: Mapping[str, tuple[str, ...]] = {  # names of other tools and habits, and ours, the likeliest first
    "lr": ("learning_rate",),
    "peak_lr": ("learning_rate",),
    "lr_scheduler": ("lr_scheduler_type", "schedule"),
    "epochs": ("num_train_epochs",),
    "num_epochs": ("num_train_epochs",),
    "n_epochs": ("num_train_epochs",),
    "steps": ("max_steps",),
    "num_steps": ("max_steps",),
    "total_steps": ("max_steps",),
    "batch_size": ("train_batch_size", "global_batch_size"),
    "bs": ("train_batch_size", "global_batch_size"),
    "batch": ("train_batch_size", "global_batch_size"),
    "micro_batch_size": ("per_device_train_batch_size", "per_device_batch_size"),
    "per_device_train_batch_size": ("per_device_batch_size",),
    "train_batch_size": ("global_batch_size",),
    "wd": ("weight_decay",),
    "decay": ("weight_decay",),
    "warmup": ("warmup_steps",),
    "warmup_ratio": ("warmup_steps",),
    "clip": ("max_grad_norm",),
    "grad_clip": ("max_grad_norm",),
    "clip_norm": ("max_grad_norm",),
    "dropout": ("hidden_dropout_prob",),
    "max_len": ("max_seq_length",),
    "max_length": ("max_seq_length",),
    "seq_len": ("max_seq_length",),
    "seq_length": ("max_seq_length",),
    "block_size": ("max_seq_length",),
    "layers": ("num_hidden_layers",),
    "num_layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "num_heads": ("num_attention_heads",),
    "hidden": ("hidden_size",),
    "d_model": ("hidden_size",),
    "ffn": ("intermediate_size",),
    "vocab": ("vocab_size",),
    "mask_prob": ("mlm_probability",),
    "betas": ("beta2",),
    "eps": ("epsilon",),
    "fp16": ("bf16",),
    "amp": ("bf16",),
    "gpus": ("gpus_per_worker",),
    "num_workers": ("workers",),
    "num_gpus": ("gpus_per_worker",),
    "save_every": ("save_steps",),
    "eval_every": ("eval_steps",),
    "patience": ("early_stopping_patience",),
    "output_dir": ("output",),
    "out": ("output",),
    "data_dir": ("root",),
    "data_root": ("root",),
    "model_name": ("init_from",),
    "model_name_or_path": ("init_from",),
    "pretrained": ("init_from",),
    "max_samples": ("max_train_samples",),
}


def sentence_on(key: str, item: Mapping[str, Any]) -> str:
    """One of pydantic's errors as a sentence on a key, without its stop."""
    if item["type"] == "value_error":
        return f"{key}: {str(item['msg']).removeprefix('Value error, ')}"
    return f"{key} {wanted(item)}"


def wanted(item: Mapping[str, Any]) -> str:
    """What pydantic wanted in place of a value: `must be a whole number`."""
    kind, context, message = item["type"], item.get("ctx", {}), str(item["msg"])
    if kind in _BOUNDS:
        how, limit = _BOUNDS[kind]
        return f"must be {how} {context[limit]}"
    if kind == "literal_error":
        return f"must be one of {_plain(context['expected'])}"
    if kind in ("too_short", "too_long"):
        few = kind == "too_short"
        number = context["min_length" if few else "max_length"]
        return f"must have {'at least' if few else 'at most'} {number} {'entry' if number == 1 else 'entries'}"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "string_pattern_mismatch":
        return f"must look like {context['pattern']}"
    if kind == "int_from_float":
        return "must be a whole number"
    found = next((said for begin, said in _KINDS.items() if kind.startswith(begin)), None)
    return f"must be {found}" if found else re.sub(r"^Input should be", "must be", message)


def _plain(expected: str) -> str:
    """`a, b, c` of pydantic's `'a', 'b' or 'c'`."""
    return expected.replace("'", "").replace(" or ", ", ")


def meant_key(schema: type[BaseModel], block: type[BaseModel] | None, above: str, written: str) -> str | None:
    """The dotted key that an unknown one stands for, by its own name elsewhere or by one of `ALIASES`.

    Args:
        schema: of the whole tree.
        block: that the key was written in.
        above: the dotted place of the block, with a dot at its end.
        written: the key's last name.
    """
    here = block.model_fields if block else {}
    names = (written, *ALIASES.get(written.lower().replace("-", "_"), ()))
    if name := next((name for name in names if name in here), None):
        return f"{above}{name}"
    elsewhere = dict.fromkeys(_keys(schema))
    return next((key for name in names for key in elsewhere if key.rpartition(".")[2] == name), None)


def _keys(schema: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every dotted key of a tree but those inside lists, keys of higher blocks first."""
    inner = []
    for name, field in schema.model_fields.items():
        yield f"{above}{name}"
        inner += [(block, f"{above}{name}.") for block in _blocks(field.annotation)]
    for block, place in inner:
        yield from _keys(block, place)


def _blocks(annotation: Any) -> Iterator[type[BaseModel]]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        for member in typing.get_args(annotation):
            yield from _blocks(member)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
