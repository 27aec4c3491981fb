"""Scores are averaged in one file, so that page, card, terminal, MLflow, verdicts and a study's choice agree."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.unit.rules.tree import PACKAGE, parse, python_files

MEANS = {"mean", "fmean", "nanmean", "average", "median"}
ROOMS = [PACKAGE / name for name in ("results", "studies", "finetune", "track", "continuing")]
# What is averaged there is no score of an encoder in a language.
OTHERS = {
    "results/aggregate.py": "the one mean",
    "results/difference.py": "variances of an interval; ranks, and sentences of one language",
    "results/run.py": "losses in a bin of steps, waiting time",
    "results/charts.py": "neighbouring points of a curve",
    "results/report_tables.py": "seconds of trainings",
    "results/printed.py": "printed numbers that another printed number follows from",
    "continuing/sentence_sets.py": "sentences of one language",
    "continuing/compared_run.py": "sentences of one language",
    "continuing/temperature.py": "both directions of a loss",
    "studies/progress.py": "seconds of cells",
}


def means_in(path: Path) -> list[int]:
    """The lines that take a mean: `numbers.mean()`, `fmean(numbers)`, `.agg("mean")`, `sum(...) / len(...)`."""
    lines = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call):
            own = isinstance(node.func, ast.Name) and node.func.id in MEANS - {"average"}
            taken = isinstance(node.func, ast.Attribute) and node.func.attr in MEANS
            named = any(isinstance(one, ast.Constant) and one.value in MEANS for one in node.args)
            lines += [node.lineno] if own or taken or (named and _aggregates(node)) else []
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            lines += [node.lineno] if _calls(node.left, "sum") and _calls(node.right, "len") else []
    return lines


def _aggregates(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr in ("agg", "transform", "aggregate")


def _calls(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def test_scores_are_averaged_in_one_file() -> None:
    files = {path.relative_to(PACKAGE).as_posix(): path for path in python_files(*ROOMS)}
    found = {name: lines for name, path in files.items() if name not in OTHERS and (lines := means_in(path))}
    assert found == {}
    assert OTHERS.keys() <= files.keys()


def test_every_way_to_take_a_mean_is_found(tmp_path: Path) -> None:
    lines = ["scores.mean()", "fmean(scores)", "sum(scores) / len(scores)", 'frame.agg("mean")', "np.nanmean(scores)"]
    path = tmp_path / "own.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert means_in(path) == [1, 2, 3, 4, 5]
