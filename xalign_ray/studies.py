"""The verbs over several runs: a study's cells run and compared, a report on any runs, and the quickstart."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from xalign_ray import evaluation as scoring
from xalign_ray import pipeline
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.data.inputs import data_root
from xalign_ray.errors import DataError
from xalign_ray.locks import hold
from xalign_ray.report.build import Chosen
from xalign_ray.report.build import report as write_report
from xalign_ray.report.groups import read_sizes
from xalign_ray.report.run import read_run
from xalign_ray.report.sources import MLFLOW, find_runs
from xalign_ray.report.study import Cell, EvaluationConfig, load_study, plan_cells, run_study
from xalign_ray.tasks.registry import TUNED_TASKS
from xalign_ray.tasks.scores import SCORES, are_whole
from xalign_ray.track.follower import open_command, resolve_uri

QUICKSTART = "quickstart"
RUNS = Path("runs")


def report(
    runs: Sequence[str],
    out: Path | None = None,
    by: Sequence[str] = (),
    sizes: Path | None = None,
    baseline: str | None = None,
    tracking: str = "sqlite",
) -> Path:
    """One page on a run (inside its folder) or on several compared.

    Args:
        runs: folders of runs or sweeps, `mlflow:EXPERIMENT`, `mlflow:RUN_ID`.
        out: folder of the report.
        by: groupings, the first one for the terminal; all that are possible if none are given.
        sizes: a CSV file with the size of each language's Wikipedia.
        baseline: label of the column that the others are compared with, the first if None.
        tracking: where MLflow is, as `track.mlflow` in a recipe; `sqlite` is runs/mlflow.db.

    Returns:
        The page.
    """
    alone = len(runs) == 1 and not runs[0].startswith(MLFLOW)
    target = out or (Path(runs[0]) / "report" if alone else Path("report"))
    found = find_runs(runs, resolve_uri(tracking, RUNS))
    chosen = Chosen(baseline=baseline, by=by, sizes=read_sizes(sizes) if sizes else {})
    files, table = write_report(found, target, chosen)
    if table.row_count:
        Console(stderr=True).print(table)
    return files.page


def run(name: str, out: Path | None = None, settings: Sequence[str] = (), rehash: bool = False) -> Path:
    """Runs the cells of a study that are not finished, and compares all of them.

    Args:
        name: a study of the package or a file.
        out: the folder of runs, data and report; `runs` if not given.
        settings: given to every cell, over its own.
        rehash: read all input files again, whatever is remembered of them.

    Returns:
        The report's page.
    """
    study = load_study(name)
    output = (out or RUNS).absolute()
    if rehash:
        pipeline.forget_inputs(output)
    common = (f"output={output}", *settings)
    cells = plan_cells(study)
    names = {(cell.label, cell.seed): number for number, cell in enumerate(cells, start=1)}

    def recipe_of(cell: Cell) -> Recipe:
        return load_recipe(cell.recipe, [*cell.settings, *common])

    def find_folder(cell: Cell) -> Path | None:
        """None where `pretrain` has to make or repair something of the run."""
        with suppress(DataError):
            if (folder := pipeline.find_run(recipe_of(cell))) is not None and folder.is_dir():
                pipeline.check_run(folder)
                return folder
        return None

    def run_cell(cell: Cell) -> Path:
        pipeline.say(f"[{names[cell.label, cell.seed]}/{len(cells)}] {cell.label}, seed {cell.seed}")
        recipe = recipe_of(cell)
        folder = pipeline.pretrain(recipe)
        for evaluation in cell.evaluate:
            if not are_whole(folder / scoring.EVALUATION / evaluation.folder / SCORES):
                _evaluate(folder, evaluation, data_root(recipe.config))
        return folder

    report_folder = output / "reports" / study.name
    with hold(report_folder, f"study {study.name}"):
        folders = run_study(study, run_cell, find_folder)
        chosen = Chosen([cell.label for cell in cells], study.baseline)
        files, table = write_report([read_run(folder) for folder in folders], report_folder, chosen)
    Console(stderr=True).print(table)
    return files.page


def _evaluate(folder: Path, evaluation: EvaluationConfig, root: Path) -> None:
    data = [root / path for path in evaluation.data]
    out = folder / scoring.EVALUATION / evaluation.folder
    if evaluation.task in TUNED_TASKS:
        language = evaluation.train_language
        scoring.tune(str(folder), evaluation.task, data, out, evaluation.options, evaluation.languages, language)
    else:
        scoring.evaluate(str(folder), evaluation.task, data[0] if data else None, out, evaluation.languages or None)


def quickstart(out: Path | None = None) -> None:
    """MLM against ALIGN-MLM on the embedded world: prepare, pretrain, export, evaluate, track, report."""
    output = out or RUNS
    page = run(QUICKSTART, output)
    pipeline.say(f"Report:  {page}")
    pipeline.say(f"MLflow:  {open_command(resolve_uri('sqlite', output.absolute()))}")
