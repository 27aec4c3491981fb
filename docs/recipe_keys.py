"""The table of recipe keys from the schema: what each means, its type, bounds and default."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from xalign_ray.config.schema import RunConfig

_TYPES = {int: "integer", float: "number", str: "string", bool: "true or false", NoneType: "null", dict: "mapping"}
_BOUNDS = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}  # names of pydantic and of Within
_LARGEST = 2**62  # bounds beyond it are those of 64-bit integers, and tell a reader nothing


def recipe_keys() -> Iterator[str]:
    """A section for each block of a recipe, with a table of its keys; one for each kind of a list's entries."""
    yield from _block("", RunConfig, "Top level", set())


def _block(path: str, block: type[BaseModel], title: str, shown: set[type[BaseModel]]) -> Iterator[str]:
    """A block and those in it; one that several keys hold is shown at the first of them."""
    fields = block.model_fields
    yield from ("", f"## {title}", "", inspect.getdoc(block) or "", "")
    rows = [[f"`{key}`", _meaning(f), _type(f.annotation, f.metadata), _default(f)] for key, f in fields.items()]
    yield from write_table(["key", "meaning", "type", "default"], rows)
    for key, field in fields.items():
        for inner in _blocks(field.annotation):
            kind = inner.model_fields.get("kind")
            named = f"`{path}{key}`" if kind is None else f"`{path}{key}`, `kind: {kind.default}`"
            if inner not in shown:
                shown.add(inner)
                yield from _block(f"{path}{key}.", inner, named, shown)


def _meaning(field: Any) -> str:
    """Its description; a block says itself what it is."""
    blocks = list(_blocks(field.annotation))
    docstrings = [(inspect.getdoc(block) or "").partition("\n\n")[0] for block in blocks]
    return " ".join((field.description or (docstrings[0] if len(docstrings) == 1 else "")).split())


def _blocks(annotation: Any) -> Iterator[type[BaseModel]]:
    """The blocks that a value may be, or a list of it may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _blocks(argument)


def _type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(
            inner[0], [*metadata, *chain.from_iterable(getattr(item, "metadata", [item]) for item in inner[1:])]
        )
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in inner)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(member, metadata) for member in inner))
    if origin is tuple:
        return f"list of {_type(inner[0])}s" if inner[-1] is Ellipsis else f"[{', '.join(map(_type, inner))}]"
    if any(_blocks(annotation)):
        return "block"
    limits = [(word, getattr(mark, key, None)) for mark in metadata for key, word in _BOUNDS.items()]
    bounds = [f"{word} {bound:g}" for word, bound in limits if bound is not None and abs(bound) < _LARGEST]
    name = _TYPES.get(origin or annotation, str(annotation))
    return " ".join([name, *bounds]) if annotation in (int, float) else name


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return ""
    if isinstance(default, tuple) and default:
        return ", ".join(f"`{block.kind}`" for block in default)
    return f"`{default if isinstance(default, str) and default else json.dumps(default)}`"


def write_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table; cells are put on one line."""
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in row)} |"
