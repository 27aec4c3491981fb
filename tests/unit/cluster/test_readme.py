"""cluster/README.md says of each of its commands whether it was run, and names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "cluster" / "README.md").read_text()
LINES = [
    line
    for block in re.findall(r"```bash\n(.*?)```", TEXT, flags=re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
]


def test_each_command_says_whether_it_was_run() -> None:
    assert len(LINES) >= 15
    assert [line for line in LINES if not re.search(r"#.*(not run|run by hand|tests/\S+\.py)", line)] == []


def test_each_file_that_a_command_or_a_remark_names_is_there() -> None:
    named = {name for line in LINES for name in re.findall(r"\b(?:cluster|tests)/[\w/]+(?:\.\w+)?", line)}
    assert len(named) >= 6
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
