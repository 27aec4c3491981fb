"""Every setting of every recipe of the papers stands in docs/explanation/printed.tsv, with its source, and holds."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.unit.rules.tree import ROOT
from xalign_ray.config.explain import flatten
from xalign_ray.config.identity import HOW_A_STEP_IS_COMPUTED
from xalign_ray.config.load import arms, list_recipes, load_recipe
from xalign_ray.config.yaml_text import parse_yaml

RECIPES = ROOT / "xalign_ray" / "recipes"
TABLE = ROOT / "docs" / "explanation" / "printed.tsv"
PAPERS = [name for name in list_recipes() if name.startswith("papers/")]
TABLES = [f"papers/{path.stem}" for path in sorted((RECIPES / "papers").glob("*.arms.yaml"))]
HOW_IT_IS_RUN = {"plugins", "notes", "allow", "seed", "output", "parallel", "checkpoint", "track"}
HOW_FILES_ARE_READ = {"root", "max_bad_fraction"}
PAPER_OF = {"dict": "DICT", "mbert": "DICT", "xlm": "XLM", "align": "ALIGN", "weam": "WEAM", "ppa": "PPA"}
NUMBER = r"\d+(?:\.\d+)?"
OFF = "off"  # a value that stands for any way to say no

Row = Mapping[str, str]


def read_rows() -> list[Row]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def settings_of(recipe: str, *changed: str) -> dict[str, Any]:
    """Dotted keys and values of what changes the result; streams and losses by kind, sources counted or named."""
    tree = load_recipe(recipe, changed).config.model_dump(mode="json", exclude=HOW_IT_IS_RUN)
    for several in ("streams", "objectives"):
        tree[several] = {one.pop("kind"): one for one in tree[several]}
    data = tree["data"] = {key: value for key, value in tree["data"].items() if key not in HOW_FILES_ARE_READ}
    data["parallel"] = " ".join(_name(corpus) for corpus in data["parallel"])
    data |= {key: len(data[key]) for key in ("corpora", "dictionaries")}
    tree["train"] = {key: value for key, value in tree["train"].items() if key not in HOW_A_STEP_IS_COMPUTED}
    return flatten(tree)


def _name(corpus: Mapping[str, Any]) -> str:
    """The stem of its files, and what aligns its words."""
    return Path(corpus["paths"][0]).stem + (f" ({corpus['align']})" if corpus["align"] else "")


def rows_for(rows: list[Row], recipe: str, key: str) -> list[Row]:
    return [row for row in rows if fnmatchcase(key, row["key"]) and _is_of(row, recipe.removeprefix("papers/"))]


def _is_of(row: Row, name: str) -> bool:
    """`a* b !c*`: one that is like a* or b, and not like c*."""
    patterns = row["recipes"].split()
    no = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
    yes = [pattern for pattern in patterns if not pattern.startswith("!")]
    return any(fnmatchcase(name, one) for one in yes) and not any(fnmatchcase(name, one) for one in no)


def wrong(rows: list[Row], recipe: str, *changed: str) -> Iterator[str]:
    """What the table does not say of a recipe, says twice, or says otherwise."""
    for key, value in settings_of(recipe, *changed).items():
        found = rows_for(rows, recipe, key)
        if len(found) != 1:
            yield f"{recipe}: {key} stands in {len(found)} rows (it is {value!r})"
        elif value if found[0]["value"] == OFF else parse_yaml(found[0]["value"]) != value:
            yield f"{recipe}: {key} is {value!r}, and in the table {found[0]['value']}"


@pytest.mark.parametrize("recipe", PAPERS)
def test_every_setting_of_a_paper_recipe_is_in_the_table_once_and_holds(recipe: str) -> None:
    assert list(wrong(read_rows(), recipe)) == []


def test_no_row_is_left_over() -> None:
    rows = read_rows()
    used = [row for recipe in PAPERS for key in settings_of(recipe) for row in rows_for(rows, recipe, key)]
    left = [f"{row['recipes']}: {row['key']}" for row in rows if row not in used]
    assert left == []


def test_every_row_has_its_source() -> None:
    rows = read_rows()
    assert [row for row in rows if not row["where"].strip() or None in row or None in row.values()] == []
    assert [row for row in rows if row["printed"] and not re.search(r"\b[A-Z]{3,}\b", row["where"])] == []


@pytest.mark.parametrize("recipe", [*PAPERS, *TABLES])
def test_what_a_recipe_cites_is_cited_in_the_table(recipe: str) -> None:
    """Its comments, and those of what it extends, name sections, tables and figures of its paper."""
    paper = PAPER_OF[re.split(r"[-.]", recipe.split("/")[1])[0]]
    known = citations(" ".join(re.sub(rf"\b{paper} (?=\d)", "section ", row["where"]) for row in read_rows()
                               if paper in row["where"]))  # fmt: skip
    assert citations(comments(recipe)) - known == set()


def comments(recipe: str) -> str:
    row = arms().get(recipe)
    text = f"# {row['about']}" if row else (RECIPES / f"{recipe}.yaml").read_text(encoding="utf-8")
    bases = (row or parse_yaml(text)).get("extends", [])
    own = " ".join(line.partition("#")[2].strip() for line in text.splitlines())
    return " ".join([own, *map(comments, [bases] if isinstance(bases, str) else bases)])


def citations(text: str) -> set[str]:
    """`Tables 1 and 3, section 3.1` as {Table 1, Table 3, section 3.1}."""
    found = re.findall(rf"(section|Table|figure|footnote)s? ({NUMBER}(?:(?:, | and ){NUMBER})*)", text)
    return {f"{kind} {number}" for kind, numbers in found for number in re.findall(NUMBER, numbers)}


def test_a_wrong_section_is_found() -> None:
    assert citations("Tables 1, 3 and 6 (section 4.1), 5 things") == {"Table 1", "Table 3", "Table 6", "section 4.1"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("train.pairs_per_step=33", "papers/ppa-250k: train.pairs_per_step is 33, and in the table 128"),
        ("data.filters.quality.dup_line_frac=0.1", "dup_line_frac is 0.1, and in the table off"),
        ("objectives.1.temperature=0.07", "objectives.momentum_contrast.temperature is 0.07, and in the table 0.05"),
        ("data.parallel.0.align=hmm", "data.parallel is 'Europarl.en-fr (hmm) Europarl.en-es"),
        ("streams.0.kind=masked_pairs", "needs a stream contrasted_pairs"),
    ],
)
def test_a_recipe_that_was_changed_no_longer_holds(changed: str, said: str) -> None:
    try:
        (found,) = wrong(read_rows(), "papers/ppa-250k", changed)
    except Exception as refused:
        found = str(refused)
    assert said in found


def test_a_setting_that_the_table_lacks_or_has_twice_is_found() -> None:
    rows = read_rows()
    without = [row for row in rows if row["key"] != "train.tf32"]
    assert list(wrong(without, "papers/xlm")) == ["papers/xlm: train.tf32 stands in 0 rows (it is True)"]
    (doubled,) = wrong([*rows, rows_for(rows, "papers/xlm", "train.tf32")[0]], "papers/xlm")
    assert doubled == "papers/xlm: train.tf32 stands in 2 rows (it is True)"
