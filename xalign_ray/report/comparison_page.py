"""A comparison as a page of its own, for scores that no pretraining curve belongs to."""

from __future__ import annotations

from html import escape
from pathlib import Path

from xalign_ray.artifacts import write_atomic
from xalign_ray.report.compare import Comparison
from xalign_ray.report.score_tables import score_table
from xalign_ray.report.table import as_html

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="lead">{lead}</p>
{tables}
</body>
</html>
"""


def write_comparison_page(comparison: Comparison, title: str, lead: str, path: Path) -> Path:
    """Writes the tables of a comparison, one a grouping, as HTML that needs no file beside it."""
    style = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    tables = [score_table(comparison, by) for by in comparison.groupings]
    shown = "\n".join(as_html(table) for table in tables if table.rows)
    write_atomic(path, _PAGE.format(title=escape(title), style=style, lead=escape(lead), tables=shown))
    return path
