"""Every module can be imported by its dotted name under an alias, whatever names its package exports."""

from __future__ import annotations

from tests.unit.rules.tree import PACKAGE, ROOT, python_files


def test_every_module_is_found_by_its_dotted_name() -> None:
    files = [path for path in python_files(PACKAGE) if path.name not in ("__init__.py", "__main__.py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    assert "xalign_ray.results.aggregate" in names
    exec("".join(f"import {name} as module\nassert module.__name__ == {name!r}, module\n" for name in names), {})
