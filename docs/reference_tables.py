"""Reference from the code: fills each line `<!-- written: NAME -->` of a page while Sphinx reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import typer
from recipe_keys import recipe_keys, write_table

from xalign_ray.cli import app
from xalign_ray.config.load import RECIPES, arms, list_recipes, load_recipe
from xalign_ray.finetune.settings import FineTuning, read_papers
from xalign_ray.planning.describe import duration
from xalign_ray.planning.estimate import GIB, Estimate, estimate, operations_of_row, read_shape
from xalign_ray.planning.subject import at_most, read_figures, subject_of
from xalign_ray.tasks import registry
from xalign_ray.track.events import EVENTS, METRICS

_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
_MARK = re.compile(r"^<!-- written: (\w+) -->$", re.MULTILINE)


def setup(sphinx: Any) -> dict[str, bool]:
    """What Sphinx calls to make this module an extension."""
    sphinx.connect("source-read", lambda _, __, source: source.__setitem__(0, fill(source[0])))
    return {"parallel_read_safe": True}


def fill(page: str) -> str:
    """The page with what the code says in place of its marks."""
    return _MARK.sub(lambda mark: "\n".join(WRITERS[mark[1]]()), page)


def commands() -> Iterator[str]:
    """A section for each verb: what it does, how it is called, its arguments and options."""
    yield from _verbs(typer.main.get_command(app), "xalign")


def _verbs(group: Any, name: str) -> Iterator[str]:
    for verb, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _verbs(command, f"{name} {verb}")
            continue
        rows = [
            [_spelling(parameter), parameter.help or "", _given(parameter)]
            for parameter in command.params
            if parameter.name != "help"
        ]
        yield from ("", f"## `{name} {verb}`", "", command.help or "", "")
        yield from write_table(["argument or option", "meaning", "default"], rows)


def _spelling(one: Any) -> str:
    value = one.metavar or one.name.upper()
    if one.param_type_name == "argument":
        return f"`{value}`"
    return f"`{', '.join(one.opts)}{'' if one.is_flag else f' {value}'}`"


def _given(one: Any) -> str:
    return "required" if one.required else f"`{one.default}`" if one.default not in (None, "", [], (), False) else ""


def recipes() -> Iterator[str]:
    """A table for each folder of recipes: name, and the comment that the file begins with."""
    rows: dict[str, list[list[str]]] = {}
    for file in sorted(RECIPES.rglob("*.yaml")):
        name = file.relative_to(RECIPES).with_suffix("").as_posix()
        if not name.endswith(".arms"):
            rows.setdefault(file.parent.name, []).append([f"`{name}`", _comment(file.read_text(encoding="utf-8"))])
    for name, row in arms().items():
        rows.setdefault(name.split("/")[0], []).append([f"`{name}`", row["about"]])
    for folder, metrics in sorted(rows.items()):
        yield from ("", f"## {folder}", "", *write_table(["name", "what it is"], sorted(metrics)))


def _comment(text: str) -> str:
    return " ".join(line[2:] for line in takewhile(lambda line: line.startswith("# "), text.splitlines()))


def _named(meanings: Mapping[str, str]) -> Callable[[], Iterator[str]]:
    return lambda: write_table(
        ["name", "meaning and unit"], [[f"`{name}`", meaning] for name, meaning in meanings.items()]
    )


def fine_tuning() -> Iterator[str]:
    """The settings of a fine-tuning, with their meanings."""
    fields = FineTuning.model_fields.items()
    rows = [[f"`{name}`", " ".join((field.description or "").split()), f"`{field.default}`"] for name, field in fields]
    yield from write_table(["setting", "meaning", "default"], rows)


def fine_tuning_of_papers() -> Iterator[str]:
    """The settings that each paper has for each task."""
    papers = {(paper, task): settings for paper, tasks in read_papers().items() for task, settings in tasks.items()}
    names = list(dict.fromkeys(name for settings in papers.values() for name in settings))
    rows = [
        [f"`{paper}`", f"`{task}`", *(f"`{settings[name]}`" if name in settings else "" for name in names)]
        for (paper, task), settings in papers.items()
    ]
    yield from write_table(["paper", "task", *(f"`{name}`" for name in names)], rows)


def printed() -> Iterator[str]:
    """Every setting of the papers' recipes, with what is printed and where."""
    with Path(__file__).with_name("explanation").joinpath("printed.tsv").open(encoding="utf-8") as file:
        head, *rows = (line.rstrip("\n").split("\t") for line in file)
    code = [[*(f"`{cell}`" for cell in row[:3]), *(cell.replace("*", "\\*") for cell in row[3:])] for row in rows]
    yield from write_table(head, code)


def plans() -> Iterator[str]:
    """What the papers' recipes need of 8 and of 64 H100, with what is assumed; a row for those that need the same."""
    shapes = [read_shape("8xH100"), read_shape("64xH100")]
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in list_recipes():
        if name.startswith("papers/"):
            rows.setdefault(tuple(_plan(name, shapes)), []).append(f"`{name}`")
    heads = [f"{shape}: {what}" for shape in shapes for what in ("GiB a GPU", "time", "feed cores")]
    yield from write_table(
        ["recipes", "parameters", "steps", "operations", *heads],
        [[", ".join(names), *cells] for cells, names in rows.items()],
    )
    yield ""
    yield f"Assumed, not measured: {read_figures().assumed_mfu:g} of the GPU's peak in the precision of the recipe."


def _plan(name: str, shapes: list[Any]) -> list[str]:
    recipe = load_recipe(name)
    subject, config = subject_of(recipe), at_most(recipe.config)
    assert not isinstance(subject, str), subject
    limit, steps = "" if recipe.config.train.is_counted else "at most ", config.train.max_steps
    operations = config.train.global_batch_size * operations_of_row(config, subject)
    cells = [
        f"{subject.trained / 1e6:.0f} M",
        f"{limit}{steps:,}" if steps else "counted by `prepare`",
        f"{limit}{operations * steps:.1e}" if steps else f"{limit}{operations:.1e} a step",
    ]
    for shape in shapes:
        cost = estimate(config, subject, shape, None)
        if isinstance(cost, Estimate):
            time = f"{duration(cost.step_s / 3600)} a step" if cost.hours is None else duration(cost.hours)
            cells += [f"{cost.memory / GIB:.1f}", time, str(cost.data_cores)]
        else:
            cells += ["cannot run", cost, ""]
    return cells


WRITERS: dict[str, Callable[[], Iterator[str]]] = {
    "recipe_keys": recipe_keys,
    "commands": commands,
    "recipes": recipes,
    "fine_tuning": fine_tuning,
    "fine_tuning_of_papers": fine_tuning_of_papers,
    "printed": printed,
    "plans": plans,
    "events": _named(EVENTS),
    "metrics": _named(METRICS),
    "evaluations": _named({name: f"{metric.meaning} ({metric.unit})" for name, metric in registry.METRICS.items()}),
}
