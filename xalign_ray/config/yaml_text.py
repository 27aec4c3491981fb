"""Reads YAML with the scalars of version 1.2, whatever PyYAML thinks of `no`, `off` and `1e-3`."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Yaml(yaml.CSafeLoader):
    """YAML with the scalars of version 1.2: `no` is Norwegian, `off` is a word, and 1e-3 is a number."""


_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
_Yaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_BOOL, _FLOAT)]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Yaml.add_implicit_resolver(_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Yaml.add_implicit_resolver(
    _FLOAT, re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$"), list("-+.0123456789")
)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    return yaml.load(text, _Yaml)
