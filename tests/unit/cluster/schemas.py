"""Checks a manifest as an API server with strict field validation would, without one."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

KUBERNETES = "v1.36.0-local-strict"  # of kubernetes-validate: unknown fields are refused
OURS = "https://xalign-ray/custom_resources.yaml"


@cache
def _registry() -> Registry[Any]:
    own = yaml.safe_load((Path(__file__).parent / "custom_resources.yaml").read_text())
    kubernetes = json.loads(
        files("kubernetes_validate").joinpath("kubernetes-json-schema", KUBERNETES, "_definitions.json").read_text()
    )
    resources = [Resource.from_contents(each) for each in (own, kubernetes)]
    return resources @ Registry()


@cache
def _kinds() -> dict[tuple[str, str], str]:
    """Where the schema of an API version and kind is."""
    registry = _registry()
    kubernetes = "https://kubernetes.io/api/_definitions.json"
    kinds = {}
    for name, schema in registry.contents(kubernetes)["$defs"].items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            group = f"{kind['group']}/" if kind["group"] else ""
            kinds[group + kind["version"], kind["kind"]] = f"{kubernetes}#/$defs/{name}"
    for name in registry.contents(OURS)["$defs"]:
        if "/" in name:
            version, _, kind = name.rpartition("/")
            kinds[version, kind] = f"{OURS}#/$defs/{name.replace('/', '~1')}"
    return kinds


def faults(manifest: dict[str, Any]) -> list[str]:
    """What is wrong with a manifest, a sentence each: none if it would be accepted."""
    asked = manifest.get("apiVersion", ""), manifest.get("kind", "")
    if asked not in _kinds():
        return [f"There is no kind {asked[1]!r} in API version {asked[0]!r}."]
    validator = Draft202012Validator({"$ref": _kinds()[asked]}, registry=_registry())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]
