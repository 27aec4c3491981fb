"""The route of a row, as the page of the architecture has it: few steps, few formats, and each is in the code."""

from __future__ import annotations

import re
from pkgutil import resolve_name

from tests.unit.rules.tree import PACKAGE, ROOT, imports

PAGE = ROOT / "docs" / "explanation" / "architecture.md"
STEP = re.compile(r"^\| (\d)\. [^|]+ \| `(\w+)` of `([\w/]+)\.py` \| `([\w/]+\.py)` \| ([^|]+) \|$", re.MULTILINE)
FORMATS = ("records", "Parquet of records", "rows", "Parquet of rows", "columns")


def test_a_row_goes_from_a_dump_to_the_model_in_eight_steps_and_five_formats_that_are_in_the_code() -> None:
    steps = STEP.findall(PAGE.read_text(encoding="utf-8"))
    assert [number for number, *_ in steps] == list("12345678")
    assert {re.split(r"[:,]| as ", makes)[0] for *_, makes in steps} == set(FORMATS)
    for number, name, file, caller, _ in steps:
        place = f"xalign_ray.{file.replace('/', '.')}.{name}"
        assert resolve_name(place)
        assert place in {one.module for one in imports(PACKAGE / caller)}, f"step {number}: {caller} has no {place}"
