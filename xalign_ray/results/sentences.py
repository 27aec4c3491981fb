"""The sentences of a report and a model card: caveats, origins, how to read the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from xalign_ray.results.run import Run, columns_of, studies_of

ENVIRONMENT = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=select_autoescape(["html"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


MAX_WORDS = 20  # of the sentence that a page opens with
_NAMED = 3  # encoders of a list
_ENDED = ("finished", "not chosen")  # states of cells
_DEMO = (
    "These runs were trained on the embedded world: a small made-up set of languages to learn the tool by and to test "
    "it with. Its numbers are never a source of claims about a method."
)


Key = tuple[str, ...]  # values of KEY


class Finding(NamedTuple):
    """The first sentences of a report; undecided where the interval does not decide.

    Attributes:
        brief: at most MAX_WORDS words.
        detail: languages, seeds and interval of it, and scores that are left out.
        key: the headline measurement, None where nothing has been scored.
        at_chance: titles of the other metrics on which no encoder is above chance.
    """

    brief: str
    detail: str = ""
    key: Key | None = None
    at_chance: Sequence[str] = ()


def caveats(runs: Sequence[Run]) -> list[str]:
    """What must be known before the first number is read."""
    lines = [_DEMO] if any(run.on_demo for run in runs) else []
    for study in studies_of(runs).values():
        cells = study["cells"]
        if late := [cell for cell in cells if cell["state"] not in _ENDED]:
            named = few([f"{cell['name']} ({cell['reason'] or cell['state']})" for cell in late])
            lines.append(f"{len(late)} of {len(cells)} cells of {study['name']} have not ended: {named}.")
        if number := sum(cell["state"] == "finished" and cell.get("chosen", True) is None for cell in cells):
            of = f"{number} fine-tuning{'s' * (number > 1)} of {study['name']}"
            lines.append(f"Without {of}: no setting has been chosen yet.")
    unfinished = dict.fromkeys(run.label for run in runs if not run.finished)
    return lines + ([f"Not finished yet: {', '.join(unfinished)}."] if unfinished else [])


def origins(runs: Sequence[Run], continued: Mapping[str, str] | None = None) -> list[str]:
    """The command that makes this again, its commit, and the place of the runs in MLflow, where they are known.

    Args:
        continued: the command of each run of `xalign continue`, by its label.
    """
    studies = dict.fromkeys(
        run.study.get("study", {}).get("command") or f"the study {run.study['name']}" for run in runs if run.study
    )
    by_run = continued or {}
    made_by = [by_run.get(run.label) or f"xalign pretrain {run.recipe}" for run in runs if run.config]
    commands = [*studies] or [*dict.fromkeys(made_by)]
    made = {start.get("origin", {}).get("commit") for run in runs for start in run.log.starts}
    tracks = dict.fromkeys(
        (track["experiment"], track["mlflow"])
        for run in runs
        if (track := run.config.get("track")) and track["mlflow"] != "off"
    )
    lines = [f"Made by {', '.join(commands)}."] if commands else []
    if commits := sorted(filter(None, made)):
        lines.append(f"Commit{'s' * (len(commits) > 1)} {', '.join(commit[:12] for commit in commits)}.")
    return lines + [f"MLflow: experiment {experiment} at {where}." for experiment, where in tracks]


def how_to_read(runs: Sequence[Run]) -> list[str]:
    """Cautions for a reader that apply to these runs."""
    columns = columns_of(runs)
    text = ENVIRONMENT.get_template("reading.md").render(
        scored={metric for run in runs for metric in run.scores.metric},
        columns=len(columns),
        single=[
            label
            for label, label_runs in columns.items()
            if len(label_runs) == 1 and (label_runs[0].config or len({*label_runs[0].scores.seed} - {None}) < 2)
        ],
        vectors=sorted({(run.label, vectors) for run in runs for vectors in run.scores.vectors if vectors}),
        aligned=any("dictionary_alignment" in str(run.config.get("objectives")) for run in runs),
    )
    return text.splitlines()


def few(labels: Sequence[str]) -> str:
    """The first names, and how many others."""
    more = len(labels) - _NAMED
    return ", ".join(labels[:_NAMED]) + (f" and {more} more" if more > 0 else "")
