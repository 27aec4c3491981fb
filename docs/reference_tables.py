"""Reference from the code: fills each line `<!-- written: NAME -->` of a page while Sphinx reads it."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel

from xalign_ray.cli import app
from xalign_ray.config.load import RECIPES
from xalign_ray.config.schema import RunConfig
from xalign_ray.track.names import EVALUATIONS, EVENTS, METRICS

_MARK = re.compile(r"^<!-- written: (\w+) -->$", re.MULTILINE)
_TYPES = {int: "integer", float: "number", str: "string", bool: "true or false", NoneType: "null", dict: "mapping"}
_BOUNDS = {"ge": "from", "gt": "above", "le": "to", "lt": "below"}  # pydantic's names; below those of Within
_BOUNDS |= {"least": "from", "above": "above", "most": "to", "below": "below"}
_LARGEST = 2**62  # bounds beyond it are those of 64-bit integers, and tell a reader nothing


def setup(sphinx: Any) -> dict[str, bool]:
    """What Sphinx calls to make this module an extension."""
    sphinx.connect("source-read", lambda _, __, source: source.__setitem__(0, fill(source[0])))
    return {"parallel_read_safe": True}


def fill(page: str) -> str:
    """The page with what the code says in place of its marks."""
    return _MARK.sub(lambda mark: "\n".join(WRITERS[mark[1]]()), page)


def recipe_keys() -> Iterator[str]:
    """A section for each block of a recipe, with a table of its keys; one for each kind of a list's entries."""
    yield from _block("", RunConfig, "Top level")


def _block(path: str, block: type[BaseModel], title: str) -> Iterator[str]:
    fields = block.model_fields
    yield from ("", f"## {title}", "", inspect.getdoc(block) or "", "")
    rows = [
        [f"`{key}`", _type(f.annotation, f.metadata), _default(f), f.description or ""] for key, f in fields.items()
    ]
    yield from _table(["key", "type", "default", "meaning"], rows)
    for key, field in fields.items():
        for inner in _blocks(field.annotation):
            kind = inner.model_fields.get("kind")
            named = f"`{path}{key}`" if kind is None else f"`{path}{key}`, `kind: {kind.default}`"
            yield from _block(f"{path}{key}.", inner, named)


def _blocks(annotation: Any) -> Iterator[type[BaseModel]]:
    """The blocks that a value may be, or a list of it may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for one in get_args(annotation):
        yield from _blocks(one)


def _type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(inner[0], [*metadata, *chain.from_iterable(getattr(one, "metadata", [one]) for one in inner[1:])])
    if origin is Literal:
        return " or ".join(f"`{one}`" for one in inner)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(one, metadata) for one in inner))
    if origin is tuple:
        return f"list of {_type(inner[0])}s" if inner[-1] is Ellipsis else f"[{', '.join(map(_type, inner))}]"
    if any(_blocks(annotation)):
        return "block"
    said = [(word, getattr(one, key, None)) for one in metadata for key, word in _BOUNDS.items()]
    bounds = [f"{word} {bound:g}" for word, bound in said if bound is not None and abs(bound) < _LARGEST]
    name = _TYPES.get(origin or annotation, str(annotation))
    return " ".join([name, *bounds]) if annotation in (int, float) else name


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    given = field.get_default(call_default_factory=True)
    if isinstance(given, BaseModel):
        return ""
    if isinstance(given, tuple) and given:
        return ", ".join(f"`{one.kind}`" for one in given)
    return f"`{given if isinstance(given, str) and given else json.dumps(given)}`"


def commands() -> Iterator[str]:
    """A section for each verb: what it does, how it is called, its arguments and options."""
    yield from _verbs(typer.main.get_command(app), "xalign")


def _verbs(group: Any, name: str) -> Iterator[str]:
    for verb, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _verbs(command, f"{name} {verb}")
            continue
        rows = [[_spelling(one), one.help or "", _given(one)] for one in command.params if one.name != "help"]
        yield from ("", f"## `{name} {verb}`", "", command.help or "", "")
        yield from _table(["argument or option", "meaning", "default"], rows)


def _spelling(one: Any) -> str:
    value = one.metavar or one.name.upper()
    if one.param_type_name == "argument":
        return f"`{value}`"
    return f"`{', '.join(one.opts)}{'' if one.is_flag else f' {value}'}`"


def _given(one: Any) -> str:
    return "required" if one.required else f"`{one.default}`" if one.default not in (None, "", [], (), False) else ""


def recipes() -> Iterator[str]:
    """A table for each folder of recipes: name, and the comment that the file begins with."""
    files = sorted(RECIPES.rglob("*.yaml"))
    for folder in sorted({file.parent for file in files}):
        rows = [[f"`{file.relative_to(RECIPES).with_suffix('')}`", _comment(file.read_text(encoding="utf-8"))]
                for file in files if file.parent == folder]  # fmt: skip
        yield from ("", f"## {folder.name}", "", *_table(["name", "what it is"], rows))


def _comment(text: str) -> str:
    return " ".join(line[2:] for line in takewhile(lambda line: line.startswith("# "), text.splitlines()))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in row)} |"


def _named(meanings: Mapping[str, str]) -> Callable[[], Iterator[str]]:
    return lambda: _table(["name", "meaning and unit"], [[f"`{name}`", said] for name, said in meanings.items()])


WRITERS: dict[str, Callable[[], Iterator[str]]] = {
    "recipe_keys": recipe_keys,
    "commands": commands,
    "recipes": recipes,
    "events": _named(EVENTS),
    "metrics": _named(METRICS),
    "evaluations": _named(EVALUATIONS),
}
