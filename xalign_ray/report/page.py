"""Sets the page: how to read it, tables, figures, recipes, in one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

import yaml

from xalign_ray.artifacts import hash_value
from xalign_ray.report.charts import held_out_chart, layer_chart, training_chart
from xalign_ray.report.columns import Column
from xalign_ray.report.compare import Comparison
from xalign_ray.report.figures import Chart, draw
from xalign_ray.report.numbers import find_gaps
from xalign_ray.report.reading import how_to_read
from xalign_ray.report.reproducibility import reproducibility_notes
from xalign_ray.report.run_tables import data_tables, difference_table, run_table
from xalign_ray.report.score_tables import gap_table, score_table
from xalign_ray.report.table import Table, as_html

_HERE = Path(__file__).parent
_LAYERS = (
    "Layer 0 is the embedding layer. The headline score is the mean of the last four layers (of all, where there are "
    "fewer). The dashed line is chance."
)
_GROUPINGS = {
    "task": ("scores", "Scores"),
    "language": ("languages", "Languages"),
    "family": ("families", "Families"),
    "size": ("sizes", "Wikipedia sizes"),
    "dictionary": ("dictionaries", "Dictionaries"),
}
_MAX_IN_COLUMN = 6  # encoders whose numbers fit beside each other in a column of text
_NESTED = " Where curves lie on each other, the first is the widest and the others are drawn inside it."
_BAND = " Lines are means over seeds, bands reach from the lowest to the highest seed."


@dataclass(frozen=True)
class Section:
    """A part of the page that the links at the top lead to."""

    name: str
    title: str
    body: str


def write_page(columns: Sequence[Column], comparison: Comparison, title: str) -> str:
    """The whole page.

    Args:
        columns: what is compared, or one.
        comparison: of their scores.
        title: what the page is called.
    """
    sections = [section for section in _sections(columns, comparison) if section.body]
    template = Template((_HERE / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(title),
        width="wide" if len(columns) > _MAX_IN_COLUMN else "narrow",
        style=(_HERE / "page.css").read_text(encoding="utf-8").strip(),
        lead=escape(_lead(columns)),
        links=" ".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in sections),
        reading="\n".join(f"<li>{escape(line)}</li>" for line in how_to_read(columns)),
        sections="\n".join(
            f'<section id="{section.name}">\n<h2>{escape(section.title)}</h2>\n{section.body}\n</section>'
            for section in sections
        ),
    )


def _sections(columns: Sequence[Column], comparison: Comparison) -> Iterator[Section]:
    for by in comparison.groupings:
        name, title = _GROUPINGS[by]
        yield Section(name, title, _scores(columns, comparison, by))
    yield Section("losses", "Losses", _losses(columns))
    yield Section("layers", "Layers", _figure(layer_chart(columns), _LAYERS, columns))
    yield Section("data", "Data", _html(data_tables(columns)))
    yield Section("recipes", "Recipes", _html([difference_table(columns)]) + _recipes(columns))
    yield Section("running", "Running", _html([run_table(columns)]))


def _scores(columns: Sequence[Column], comparison: Comparison, by: str) -> str:
    """A grouping's table; below the means over all languages every seed's gap, where there are several seeds."""
    table = _html([score_table(comparison, by)])
    if by != "task" or len(columns) == 1 or all(len(column.runs) == 1 for column in columns):
        return table
    gaps = _html([gap_table(find_gaps(columns, comparison.baseline), comparison.baseline)])
    return f"{table}\n<details><summary>Seed by seed</summary>\n{gaps}\n</details>"


def _losses(columns: Sequence[Column]) -> str:
    training = (
        "Training losses before their weights (in nats; the alignment loss is minus a mean cosine), each on its own "
        "axis. Every logged step is in losses.csv."
    )
    held_out = (
        "Masked-LM loss (nats a label) on rows that training never saw, the same rows and masks in every run of the "
        "same data."
    )
    repeats = reproducibility_notes(columns)
    training += _NESTED if repeats else ""
    told = "".join(f'<p class="note">{escape(line)}</p>\n' for line in repeats)
    drawn = _figure(training_chart(columns), training, columns)
    return drawn + told + _figure(held_out_chart(columns), held_out, columns)


def _figure(chart: Chart | None, caption: str, columns: Sequence[Column]) -> str:
    if chart is None:
        return ""
    caption += _BAND if any(len(column.runs) > 1 for column in columns) else ""
    return f"<figure>\n{draw(chart)}\n<figcaption>{escape(caption)}</figcaption>\n</figure>\n"


def _recipes(columns: Sequence[Column]) -> str:
    return "".join(
        f"\n<details><summary>The resolved recipe of {escape(column.label)}</summary><pre>"
        f"{escape(yaml.safe_dump(dict(column.runs[0].config), sort_keys=False, allow_unicode=True))}</pre></details>"
        for column in columns
        if column.runs[0].config
    )


def _html(tables: Sequence[Table | None]) -> str:
    return "\n".join(as_html(table) for table in tables if table is not None and (table.rows or table.note))


def _lead(columns: Sequence[Column]) -> str:
    runs = sum(len(column.runs) for column in columns)
    recipes = len({hash_value([column.settings or column.label]) for column in columns})
    what = f"{runs} run{'s' if runs > 1 else ''} of {recipes} recipe{'s' if recipes > 1 else ''}"
    return f"{what}. The numbers are beside this page: comparison.csv, scores.csv, losses.csv, layers.csv."
