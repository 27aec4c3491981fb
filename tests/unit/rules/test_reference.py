"""The reference pages follow the code: every key, option and metric stands in what `make docs` writes."""

from __future__ import annotations

import sys

import pytest

from tests.unit.rules.test_pages import VERBS
from tests.unit.rules.tree import ROOT
from xalign_ray.config.load import list_recipes
from xalign_ray.config.schema import RunConfig
from xalign_ray.tasks import registry
from xalign_ray.track.events import EVENTS, METRICS

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """What Sphinx reads of each reference page."""
    sys.path.insert(0, str(DOCS))
    try:
        from reference_tables import fill
    finally:
        sys.path.remove(str(DOCS))
    return {path.stem: fill(path.read_text(encoding="utf-8")) for path in (DOCS / "reference").glob("*.md")}


def test_no_mark_is_left(pages: dict[str, str]) -> None:
    assert [name for name, page in pages.items() if "<!--" in page] == []


def test_every_key_of_a_recipe_has_its_row(pages: dict[str, str]) -> None:
    schema = RunConfig.model_json_schema()  # another way to the keys than the page's
    blocks = [schema, *schema["$defs"].values()]
    keys = [key for block in blocks for key in block.get("properties", {})]
    rows = [line for line in pages["recipe"].splitlines() if line.startswith("| `")]
    assert len(keys) > 80
    assert sorted(line.split("`")[1] for line in rows) == sorted(keys)


def test_every_key_has_a_meaning(pages: dict[str, str]) -> None:
    rows = [line.split(" | ") for line in pages["recipe"].splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if row[0] != "| `kind`" and not row[1].strip()] == []


def test_every_verb_and_option_is_there(pages: dict[str, str]) -> None:
    sections = {part.partition("`")[0]: part for part in pages["cli"].split("## `xalign ")[1:]}
    assert sorted(sections) == sorted(" ".join(verb) for verb in VERBS)
    missing = [
        (verb, option)
        for verb, options in VERBS.items()
        for option in options - {"--help"}
        if option.startswith("--") and option not in sections[" ".join(verb)]
    ]
    assert missing == []


def test_every_metric_event_and_recipe_is_there(pages: dict[str, str]) -> None:
    assert [name for name in (*METRICS, *registry.METRICS, *EVENTS) if f"| `{name}` |" not in pages["metrics"]] == []
    assert [name for name in list_recipes() if f"| `{name}` |" not in pages["recipes"]] == []
