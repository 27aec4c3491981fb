"""Turns mistakes into sentences that name file, key or path and the nearest valid one; compares two recipes"""

from __future__ import annotations

import difflib
import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from xalign_ray.config.choices import PLUGGED_OBJECTIVES, PLUGGED_STREAMS, ObjectiveChoice, StreamChoice
from xalign_ray.errors import ConfigError
from xalign_ray.work.storage import shown_path

_WANTED = {  # in place of pydantic's messages, by the beginning of its error's name
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string_type": "must be text; put quotes around it",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must look like {pattern}",
    "tuple": "must be a list, as in [a, b]",
    "list": "must be a list, as in [a, b]",
    "set": "must be a list, as in [a, b]",
    "dict": "must be a block of keys",
    "mapping": "must be a block of keys",
    "model": "must be a block of keys",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "literal_error": "must be one of {expected}",
    "too_short": "must have at least {min_length} {entries}",
    "too_long": "must have at most {max_length} {entries}",
}
ALIASES: Mapping[str, str] = {  # our keys, the likeliest first, and what other tools and habits call them
    "learning_rate": "lr peak_lr",
    "lr_scheduler_type": "lr_scheduler",
    "schedule": "lr_scheduler",
    "num_train_epochs": "epochs num_epochs n_epochs",
    "max_steps": "steps num_steps total_steps",
    "train_batch_size": "batch_size bs batch",
    "global_batch_size": "batch_size bs batch train_batch_size",
    "per_device_train_batch_size": "micro_batch_size",
    "per_device_batch_size": "micro_batch_size per_device_train_batch_size",
    "weight_decay": "wd decay",
    "warmup_steps": "warmup warmup_ratio",
    "max_grad_norm": "clip grad_clip clip_norm",
    "hidden_dropout_prob": "dropout",
    "max_seq_length": "max_len max_length seq_len seq_length block_size",
    "num_hidden_layers": "layers num_layers",
    "num_attention_heads": "heads num_heads",
    "hidden_size": "hidden d_model width",
    "intermediate_size": "ffn",
    "vocab_size": "vocab",
    "mlm_probability": "mask_prob",
    "beta2": "betas",
    "epsilon": "eps",
    "bf16": "fp16 amp precision",
    "gpus_per_worker": "gpus num_gpus",
    "workers": "num_workers",
    "ray": "placement_strategy node_labels label_selector",
    "save_steps": "save_every",
    "eval_steps": "eval_every",
    "output": "output_dir out",
    "root": "data_dir data_root",
    "init_from": "model_name model_name_or_path pretrained",
    "max_train_samples": "max_samples",
}


def _wanted(item: Mapping[str, Any]) -> str:
    """What pydantic wanted in place of a value: `must be a whole number`."""
    words = next((words for begin, words in _WANTED.items() if item["type"].startswith(begin)), None)
    if words is None:
        return re.sub(r"^Input should be", "must be", str(item["msg"]))
    context = dict(item.get("ctx", {}))
    if "expected" in context:
        context["expected"] = context["expected"].replace("'", "").replace(" or ", ", ")
    few = context.get("min_length", context.get("max_length"))
    return words.format(**context, entries="entry" if few == 1 else "entries")


def members(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, without their metadata."""
    if typing.get_origin(annotation) is typing.Annotated:
        yield from members(typing.get_args(annotation)[0])
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from members(member)
    else:
        yield annotation


def types_in(kind: Any, key: str) -> Iterator[Any]:
    """The types that a key of a block, list or mapping may hold."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if _is_block(kind):
        if key in kind.model_fields:
            yield from members(kind.model_fields[key].annotation)
    elif origin in (tuple, list) and key.isdigit():
        yield from members(arguments[0])
    elif origin is dict:
        yield from members(arguments[1])


def _is_block(kind: Any) -> typing.TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and typing.get_origin(kind) is None and issubclass(kind, BaseModel)


def meant_key(schema: type[BaseModel], block: Iterable[str], above: str, written: str) -> str | None:
    """The dotted key that an unknown one stands for, by its own name elsewhere or by one of `ALIASES`.

    Args:
        schema: of the whole tree.
        block: the keys of the block that it was written in.
        above: the dotted place of the block, with a dot at its end.
        written: the key's last name.
    """
    here, plain = set(block), written.lower().replace("-", "_")
    names = (written, *(ours for ours, theirs in ALIASES.items() if plain in theirs.split()))
    if name := next((name for name in names if name in here), None):
        return f"{above}{name}"
    elsewhere = dict.fromkeys(_keys(schema))
    return next((key for name in names for key in elsewhere if key.rpartition(".")[2] == name), None)


def _keys(schema: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every dotted key of a tree but those inside lists, keys of higher blocks first."""
    yield from (f"{above}{name}" for name in schema.model_fields)
    for name, field in schema.model_fields.items():
        for kind in filter(_is_block, members(field.annotation)):
            yield from _keys(kind, f"{above}{name}.")


MAX_SHOWN = 100  # characters of a wrong value


def suggest(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` with the nearest of the known words, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


def suggest_path(path: Path) -> str:
    """As `suggest`, for a path on the disk, followed name by name: each exact, or the nearest."""
    if path.is_file():
        return f" It is a file; name the folder that it lies in, {path.parent}."
    nearest = Path(path.anchor)
    for name in path.relative_to(path.anchor).parts:
        there = [] if (nearest / name).exists() else _names_in(nearest)
        near = difflib.get_close_matches(name, there, n=1, cutoff=0.5) if there else [name]
        if not near or not (nearest / near[0]).exists():
            return ""
        nearest /= near[0]
    return "" if nearest == path else f" Did you mean '{nearest}'?"


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
    error: ValidationError, schema: type[BaseModel], origins: Mapping[str, str] | None = None, default_origin: str = ""
) -> str:
    """One sentence for each thing that is wrong, in the order of the tree, behind the origin of its key."""
    sentences = []
    faults = error.errors(include_url=False)
    for item in faults:
        outer = item["loc"]
        inside = (other for other in faults if other["loc"] != outer and other["loc"][: len(outer)] == outer)
        if item["type"] == "too_short" and any(inside):
            continue  # pydantic leaves wrong entries out and then finds the list too short
        if item["type"] == "union_tag_invalid" and any(other["loc"][0] == "plugins" for other in faults):
            continue  # the plug-in that did not load may have it
        keys, holders, kinds = _walk(schema, [str(part) for part in outer])
        places = (".".join(keys[:end]) for end in range(len(keys), 0, -1))
        origin = next((origins[key] for key in places if origins and key in origins), default_origin)
        sentences.append(f"{origin}: " * bool(origin) + _sentence(schema, item, keys, holders, kinds))
    return "\n".join(dict.fromkeys(sentences))


def _walk(schema: type[BaseModel], location: Sequence[str]) -> tuple[list[str], list[Any], list[Any]]:
    """The keys of a location, without pydantic's tags; the types that may hold the last, and that may stand there."""
    keys: list[str] = []
    holders: list[Any] = []
    kinds: list[Any] = [schema]
    for part in location:
        if len(kinds) > 1 and (tagged := [kind for kind in kinds if _tag(kind) == part]):
            kinds = tagged
            continue
        keys.append(part)
        holders = kinds
        kinds = _with_plugged([inside for kind in kinds for inside in types_in(kind, part)])
    return keys, holders, kinds


def _sentence(
    schema: type[BaseModel], item: Mapping[str, Any], keys: Sequence[str], holders: Sequence[Any], kinds: Sequence[Any]
) -> str:
    dotted, tags = ".".join(keys), [tag for kind in kinds if (tag := _tag(kind))]
    match item["type"]:
        case "extra_forbidden" | "invalid_key":  # the second is no string, such as 7
            names = sorted({name for holder in filter(_is_block, holders) for name in holder.model_fields})
            above = "".join(f"{key}." for key in keys[:-1])
            correct = meant_key(schema, names, above, keys[-1])
            near = f" Did you mean '{correct}'?" if correct else suggest(keys[-1], names).replace("'", f"'{above}", 1)
            return f"unknown key '{dotted}'.{near} Known here: {', '.join(names)}."
        case "missing":
            return f"'{dotted}' is required and not given."
        case "union_tag_not_found":
            return f"'{dotted}' has no kind; it must be one of {', '.join(tags)}."
        case "union_tag_invalid":
            written = str(item["ctx"]["tag"])
            return f"'{dotted}': kind {_shown(written)} is not one of {', '.join(tags)}.{suggest(written, tags)}"
        case "value_error":
            where = f"'{dotted}': " if dotted else ""
            return f"{where}{item['msg'].removeprefix('Value error, ')}."
    words = _wanted(item)
    choices = words.removeprefix("must be one of ").split(", ") if item["type"] == "literal_error" else ()
    return f"'{dotted}' is {_shown(item['input'])}; it {words}.{suggest(str(item['input']), choices)}"


def _shown(value: Any) -> str:
    """A value as it was written, cut where it is long."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _with_plugged(kinds: list[Any]) -> list[Any]:
    """The kinds of a union, and those that plug-ins have added to it."""
    for base, plugged in ((StreamChoice, PLUGGED_STREAMS), (ObjectiveChoice, PLUGGED_OBJECTIVES)):
        if kinds and _is_block(kinds[0]) and issubclass(kinds[0], base):
            return [*kinds, *plugged.values()]
    return kinds


def _tag(kind: Any) -> str | None:
    """The `kind` of a block that has one."""
    return str(kind.model_fields["kind"].default) if _is_block(kind) and "kind" in kind.model_fields else None


def flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    """A nested value as dotted keys; list entries are numbered; empty containers stay."""
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
