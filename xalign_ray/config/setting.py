"""Values of `--set KEY=VALUE`: a key that holds text gets the text as written, any other key a YAML value."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import yaml
from pydantic import BaseModel

from xalign_ray.config.yaml_text import parse_value

_QUOTES = ('"', "'")


def read_setting(schema: type[BaseModel], key: str, text: str) -> Any:
    """The value of a key.

    A text key takes `my #1`, `[v2]`, `2020` and `~/runs` literally; quotes around the whole text are YAML's, and `null`
    or nothing unsets a key that may be unset.

    Args:
        schema: of the tree that the key is in.
        key: dotted, such as `data.corpora.0.language`.
        text: what follows the equals sign.

    Raises:
        yaml.YAMLError: another key than a text key has a value that is not YAML, or has a comment.
    """
    kinds = list(_kinds_at(schema, key.split(".")))
    if str not in kinds or set(kinds) - {str, types.NoneType}:
        return parse_value(text)
    if text[:1] in _QUOTES and text[-1:] == text[:1] and len(text) > 1:
        try:
            return parse_value(text)
        except yaml.YAMLError:
            return text
    return None if types.NoneType in kinds and text in ("", "null") else text


def _kinds_at(schema: type[BaseModel], keys: Sequence[str]) -> Iterator[Any]:
    """The types that a key may hold, of every kind of block on the way."""
    found = [schema]
    for key in keys:
        found = [kind for block in found for inside in _inside(block, key) for kind in _members(inside)]
    yield from found


def _inside(block: Any, key: str) -> Iterator[Any]:
    """The annotation of a key of a block, list or mapping."""
    origin, arguments = typing.get_origin(block), typing.get_args(block)
    if isinstance(block, type) and origin is None and issubclass(block, BaseModel):
        if key in block.model_fields:
            yield block.model_fields[key].annotation
    elif origin in (tuple, list) and key.isdigit():
        yield arguments[0]
    elif origin is dict:
        yield arguments[1]


def _members(annotation: Any) -> Iterator[Any]:
    """The members of a union, without their metadata."""
    if typing.get_origin(annotation) is typing.Annotated:
        yield from _members(typing.get_args(annotation)[0])
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for member in typing.get_args(annotation):
            yield from _members(member)
    else:
        yield annotation
