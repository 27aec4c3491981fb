"""Turns mistakes into sentences that name file, key or path and the nearest valid one; compares two recipes"""

from __future__ import annotations

import difflib
import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from xalign_ray.config.choices import PLUGGED_OBJECTIVES, PLUGGED_STREAMS, ObjectiveChoice, StreamChoice
from xalign_ray.errors import ConfigError
from xalign_ray.work.storage import shown_path

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
    "precision": ("bf16",),
    "width": ("hidden_size",),
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

# Keys that a recipe no longer has, and what took their place.
REPLACED: Mapping[str, str] = {
    "parallel.placement_strategy": "set parallel.ray.placement_strategy, an option of Ray Train's ScalingConfig",
    "parallel.node_labels": "set parallel.ray.label_selector, an option of Ray Train's ScalingConfig",
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


MAX_SHOWN = 100  # characters of a wrong value


def suggest(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` with the nearest of the known words, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


def suggest_path(path: Path) -> str:
    """As `suggest`, of what is on the disk: the path is followed name by name, each of them there or the nearest."""
    if path.is_file():
        return f" It is a file; name the folder that it lies in, {path.parent}."
    found = Path(path.anchor)
    for name in path.relative_to(path.anchor).parts:
        there = [] if (found / name).exists() else _names_in(found)
        near = difflib.get_close_matches(name, there, n=1, cutoff=0.5) if there else [name]
        if not near or not (found / near[0]).exists():
            return ""
        found /= near[0]
    return "" if found == path else f" Did you mean '{found}'?"


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def check_folder(folder: Path) -> None:
    """Raises ConfigError if a folder that was named is not there, or is no folder."""
    if not folder.is_dir():
        shown = Path(shown_path(folder))
        raise ConfigError(f"There is no folder '{shown}'.{suggest_path(shown)}")


def suggest_file(name: str, known: Iterable[str]) -> str:
    """As `suggest`, of a YAML file on the disk where one was written, else of the names that are known."""
    return suggest_path(Path(name)) if name.endswith((".yaml", ".yml")) else suggest(name, known)


def explain_validation(
    error: ValidationError, schema: type[BaseModel], origins: Mapping[str, str], default_origin: str
) -> str:
    """One sentence for each thing that is wrong, in the order of the tree."""
    sentences = []
    faults = error.errors(include_url=False)
    for item in faults:
        if item["type"] == "too_short" and any(_is_inside(other["loc"], item["loc"]) for other in faults):
            continue  # pydantic leaves wrong entries out and then finds the list too short
        if item["type"] == "union_tag_invalid" and any(other["loc"][0] == "plugins" for other in faults):
            continue  # the plug-in that did not load may have it
        location = [str(part) for part in item["loc"]]
        keys, block, kinds = _walk(schema, location)
        dotted = ".".join(keys)
        origin = _origin(origins, keys, default_origin)
        sentences.append(f"{origin}: {_sentence(schema, item, dotted, keys, block, kinds)}")
    return "\n".join(dict.fromkeys(sentences))


def _is_inside(location: tuple, outer: tuple) -> bool:
    return len(location) > len(outer) and location[: len(outer)] == outer


def _sentence(
    schema: type[BaseModel], item: Any, dotted: str, keys: list[str], block: type[BaseModel] | None, kinds: list[str]
) -> str:
    kind, message = item["type"], item["msg"]
    if kind in ("extra_forbidden", "invalid_key"):  # the other is no string, such as 7
        known = sorted(block.model_fields) if block else []
        above = "".join(f"{key}." for key in keys[:-1])
        if dotted in REPLACED:
            return f"'{dotted}' is no key any more: {REPLACED[dotted]}."
        meant = meant_key(schema, block, above, keys[-1])
        near = f" Did you mean '{meant}'?" if meant else suggest(keys[-1], known).replace("'", f"'{above}", 1)
        return f"unknown key '{dotted}'.{near} Known here: {', '.join(known)}."
    if kind == "missing":
        return f"'{dotted}' is required and not given."
    if kind == "union_tag_not_found":
        return f"'{dotted}' has no kind; it must be one of {', '.join(kinds)}."
    if kind == "union_tag_invalid":
        written = str(item["ctx"]["tag"])
        return f"'{dotted}': kind {_shown(written)} is not one of {', '.join(kinds)}.{suggest(written, kinds)}"
    if kind == "value_error":
        where = f"'{dotted}': " if dotted else ""
        return f"{where}{message.removeprefix('Value error, ')}."
    words = wanted(item)
    near = (
        suggest(str(item["input"]), words.removeprefix("must be one of ").split(", "))
        if kind == "literal_error"
        else ""
    )
    return f"'{dotted}' is {_shown(item['input'])}; it {words}.{near}"


def _shown(given: Any) -> str:
    """A value as it was written, cut where it is long."""
    text = repr(given)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _walk(schema: type[BaseModel], location: list[str]) -> tuple[list[str], type[BaseModel] | None, list[str]]:
    """Drops the union tags that pydantic puts into locations, and finds the block that holds the last key.

    Also the kinds that may stand at the location, where it is a union.
    """
    block: type[BaseModel] | None = schema
    keys: list[str] = []
    holder: type[BaseModel] | None = schema
    options: list[type[BaseModel]] = [schema]
    for part in location:
        tagged = [option for option in options if _tag(option) == part]
        if tagged and len(options) > 1:
            block, options = tagged[0], tagged
            continue
        keys.append(part)
        holder = block
        field = block.model_fields.get(part) if block else None
        if field is not None:
            options = _with_plugged(list(_models(field.annotation)))
            block = options[0] if len(options) == 1 else None
        elif not part.isdigit():
            options, block = [], None
    return keys, holder, [tag for option in options if (tag := _tag(option))]


def _with_plugged(kinds: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """The kinds of a union, and those that plug-ins have added to it."""
    if kinds and issubclass(kinds[0], StreamChoice):
        return [*kinds, *PLUGGED_STREAMS.values()]
    return [*kinds, *PLUGGED_OBJECTIVES.values()] if kinds and issubclass(kinds[0], ObjectiveChoice) else kinds


def _tag(model: type[BaseModel]) -> str | None:
    field = model.model_fields.get("kind")
    return str(field.default) if field else None


def _models(annotation: Any) -> Iterable[type[BaseModel]]:
    if (
        isinstance(annotation, type)
        and not isinstance(annotation, types.GenericAlias)
        and issubclass(annotation, BaseModel)
    ):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models(argument)


def _origin(origins: Mapping[str, str], keys: list[str], default: str) -> str:
    for end in range(len(keys), 0, -1):
        if (found := origins.get(".".join(keys[:end]))) is not None:
            return found
    return default


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """A nested value as dotted keys; list entries are numbered; empty containers stay as they are."""
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    flat: dict[str, Any] = {}
    for key, value in items:
        dotted = f"{prefix}{key}"
        inner = flatten(value, f"{dotted}.") if isinstance(value, Mapping | list | tuple) else {}
        flat |= inner or {dotted: value}
    return flat


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The dotted keys in which two resolved recipes differ, with both values; `None` where one has no such key."""
    a, b = flatten(left), flatten(right)
    return [(key, a.get(key), b.get(key)) for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)]
