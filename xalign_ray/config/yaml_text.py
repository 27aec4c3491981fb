"""Reads YAML with the scalars of version 1.2, whatever PyYAML thinks of `no`, `off` and `1e-3`; without tags."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

MAX_VALUES = 100_000  # a recipe has a thousand
DEEPEST = 32  # blocks inside blocks: a recipe has 6
_CONTENT = (yaml.ScalarEvent, yaml.CollectionEndEvent, yaml.AliasEvent)
_BOOL, _INT, _FLOAT, _TIME = (f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "float", "timestamp"))


class _Yaml(yaml.CSafeLoader):
    """YAML with the scalars of version 1.2: `no` is Norwegian, `off` is a word, and 1e-3 is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A block, whose keys are unique (YAML 1.2, 3.2.1.1); PyYAML would take the last of equal ones."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if (name := str(key.value)) in lines:
                raise _Wrong(f"the key '{name}' stands twice, first in line {lines[name]}; keep one", key.start_mark)
            lines[name] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


class _Wrong(yaml.YAMLError):
    """What this program refuses, and where it stands."""

    def __init__(self, said: str, mark: yaml.Mark) -> None:
        super().__init__(f"line {mark.line + 1}: {said}")


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _INT, _FLOAT, _TIME)]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Yaml.add_implicit_resolver(_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Yaml.add_implicit_resolver(  # a longer one is a float below, and too large for every key
    _INT, re.compile(r"(?:[-+]?(?:0|[1-9][0-9_]{0,18})|0x[0-9a-fA-F]{1,15})$"), list("-+0123456789")
)
_Yaml.add_implicit_resolver(
    _FLOAT, re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), list("-+.0123456789")
)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        yaml.YAMLError: the text is not YAML, repeats a key, has tags or an alias inside its anchor's value, or unfolds
            (as 300 bytes can, to gigabytes) to more than MAX_VALUES or DEEPEST.
    """
    try:
        _check(text)
        return yaml.load(text, _Yaml)
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise yaml.YAMLError(where + " ".join(filter(None, (error.context, error.problem)))) from None
    except yaml.reader.ReaderError as error:
        raise yaml.YAMLError(" ".join(str(error).split())) from None


def parse_value(text: str) -> Any:
    """The value of a YAML text that is a value and nothing else.

    Raises:
        yaml.YAMLError: as `parse_yaml`, or a comment follows the value.
    """
    value = parse_yaml(text)
    ends = [event.end_mark.index for event in yaml.parse(text, _Yaml) if isinstance(event, _CONTENT)]
    if text[max(ends, default=0) :].strip():
        raise yaml.YAMLError("'#' begins a comment; quote it")
    return value


def _check(text: str) -> None:
    """Refuses what cannot be a recipe before values are made of it."""
    opened: list[_Block] = [_Block()]
    anchors: dict[str, _Block] = {}
    for event in yaml.parse(text, _Yaml):
        if tag := getattr(event, "tag", None):
            raise _Wrong(f"tags such as '{tag}' mean nothing here; leave it out", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append(_Block(event.anchor))
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _Wrong(f"'*{event.anchor}' stands inside its anchor's value; write it out", event.start_mark)
            opened[-1].take(anchors[event.anchor])
        elif isinstance(event, yaml.ScalarEvent | yaml.CollectionEndEvent):
            done = _Block(event.anchor) if isinstance(event, yaml.ScalarEvent) else opened.pop()
            opened[-1].take(done)
            anchors |= {done.anchor: done} if done.anchor else {}
        if sum(block.values for block in opened) > MAX_VALUES:
            raise _Wrong(f"more than {MAX_VALUES:,} values, aliases unfolded", event.start_mark)
        if len(opened) - 2 + opened[-1].depth > DEEPEST:
            raise _Wrong(f"more than {DEEPEST} blocks inside each other", event.start_mark)


@dataclass
class _Block:
    """A value, and its size with aliases unfolded."""

    anchor: str | None = None
    values: int = 1
    depth: int = 0  # blocks inside each other

    def take(self, inner: _Block) -> None:
        self.values += inner.values
        self.depth = max(self.depth, inner.depth + 1)
