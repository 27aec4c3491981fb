"""Bundle of a report: what its numbers rest on in one file, and its verification, which computes them again.

A bundle is a zip archive whose comment is the SHA-256 of all bytes before it. It holds `bundle.json` (versions, the
report's options), `studies.json`, the report's tables as CSV, and of each run a folder: `config.yaml`, `run.json`
(its column, its log without curves, its data's manifest) and the files of its scores with their predictions. It holds
no text of a corpus, and not who ran what and where (`hide_places`).
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import DataError
from xalign_ray.results.aggregate import as_csv
from xalign_ray.results.claims import AgainstPapers, against_papers, measured
from xalign_ray.results.compare import SCORE_COLUMNS, Comparison, compare_runs, score_frame
from xalign_ray.results.run import FIELDS, NO_SCORES, Log, Run, cost_frame, frame_scores, is_of, studies_of
from xalign_ray.tasks.registry import METRICS, TASKS, TUNED_TASKS
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score, average_languages
from xalign_ray.tasks.task import Measure, Metric
from xalign_ray.track.scored_encoder import versions
from xalign_ray.work.artifacts import hash_value, is_sealed_archive, read_archive, seal_archive, write_atomic
from xalign_ray.work.file_checks import check_plain
from xalign_ray.work.run_folder import CONFIG, PREDICTIONS, SCORES
from xalign_ray.work.storage import shown_path

FORMAT = 6
INDEX, STUDIES_FILE, RUN_FILE = "bundle.json", "studies.json", "run.json"
REPORT, RUNS = "report", "runs"  # folders in it
_OF_LOG = ("starts", "end", "last_step", "started", "seconds", "memory", "waiting")  # all but its curves
_TOLERANCE = (
    1e-6  # of a mean or an end of an interval: far below printed digits, above differences between versions of scipy
)
_SECONDS, _SHARE = 1.0, 0.05  # by which two times may differ
_EXACT = 1e-12  # of a score, which is counted
_ON_TRUST = (
    "Taken on trust, as they were measured: CPU seconds, tokens, memory, waiting time. For nothing in the file says "
    "them twice: recipes, choices of settings and rates, states of cells, counts of the data, versions."
)

Members = Mapping[str, bytes]
Scores = Sequence[Score]


class ReportNumbers(NamedTuple):
    """All numbers of a report on labelled runs."""

    scores: pd.DataFrame
    comparison: Comparison
    papers: AgainstPapers
    costs: pd.DataFrame

    @property
    def files(self) -> dict[str, pd.DataFrame]:
        """The frames that a bundle holds and that are computed again, by file."""
        frames = {"scores.csv": self.scores.reindex(columns=SCORE_COLUMNS), "comparison.csv": self.comparison.shown}
        return {**frames, "costs.csv": self.costs, **self.papers.files}


def report_numbers(runs: Sequence[Run], by: Sequence[str] = (), baseline: str | None = None) -> ReportNumbers:
    """Computes the numbers of a report; arguments and errors as of `compare_runs`."""
    scores = score_frame(runs)
    comparison = compare_runs(runs, scores, by, baseline)
    return ReportNumbers(scores, comparison, against_papers(measured(runs, scores)), cost_frame(runs))


@dataclass
class Bundle:
    """The content of a file, and the differences that were found.

    Attributes:
        path: the file.
        index: bundle.json.
        members: the content of each file of the archive that can be read.
        problems: a sentence for each difference.
        facts: the checks, and the versions that made the bundle, a sentence each.
    """

    path: Path
    index: Mapping[str, Any]
    members: Members
    problems: list[str]
    facts: list[str] = field(default_factory=list)

    @cached_property
    def runs(self) -> list[Run]:
        """The labelled runs, as the report had them."""
        for name, metric in self.index["metrics"].items():  # first: no module that a score names is imported
            METRICS.setdefault(name, Metric(**metric))
        studies, archive = json.loads(self.members[STUDIES_FILE]), zipfile.Path(self.path)
        names = [Path(name) for name in self.members if Path(name).name == RUN_FILE]
        return [self._run(name.parent, studies, archive) for name in names]

    def scored(self, run: Path | str = RUNS) -> list[str]:
        """The names of the files of scores below a folder."""
        return sorted(name for name in self.members if Path(name).name == SCORES and name.startswith(f"{run}/"))

    def scores(self, name: str) -> list[Score]:
        """The scores of a file, once `runs` has been read."""
        return [Score(**record) for record in json.loads(self.members[name])["scores"]]

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Turns whatever a forged or torn file makes of the code that reads it into a problem."""
        try:
            yield
        except Exception as error:
            self.problems.append(f"{what} cannot be read ({type(error).__name__}: {error})")

    def _run(self, folder: Path, studies: Mapping[str, Any], archive: zipfile.Path) -> Run:
        facts, config = json.loads(self.members[f"{folder}/{RUN_FILE}"]), {}
        if recipe := self.members.get(f"{folder}/{CONFIG}"):
            with self.reading(f"{folder}/{CONFIG}"):
                config = parse_yaml(recipe.decode())
        log = Log(**facts["log"] | {"starts": tuple(facts["log"]["starts"])})
        scores = pd.concat(
            [NO_SCORES, *(frame_scores(self.scores(name), archive / name) for name in self.scored(folder))],
            ignore_index=True,
        )
        study = studies[facts["study"]] if facts["study"] else None
        return Run(Path(facts["name"]), config, log, scores, facts["data"], facts["label"], study, facts["seed"])


def write_bundle(
    path: Path, runs: Sequence[Run], numbers: ReportNumbers, by: Sequence[str], baseline: str | None
) -> None:
    """Writes the bundle of a report; equal runs, options and versions give equal bytes.

    Args:
        runs: labelled, as others may read of them.
        numbers: the report's.
        by, baseline: arguments of the report.
    """
    members = {STUDIES_FILE: _json(studies_of(runs))}
    for number, run in enumerate(runs):
        folder = f"{RUNS}/{number:04}-{run.name}"
        if run.config:
            members[f"{folder}/{CONFIG}"] = yaml.safe_dump(dict(run.config)).encode()
        log = {name: getattr(run.log, name) for name in _OF_LOG}
        facts = {name: getattr(run, name) for name in ("label", "name", "seed", "data")}
        study = run.study["name"] if run.study else None
        members[f"{folder}/{RUN_FILE}"] = _json({**facts, "log": log, "study": study})
        for position, (file, rows) in enumerate(run.scores.groupby("file", sort=False, dropna=False)):
            beside: Any = getattr(file, "parent", None)  # none of another program's scores
            cell = f"{folder}/{position:04}/{beside.name if beside else 'given'}"
            records = rows.reindex(columns=FIELDS).to_dict("records")
            members[f"{cell}/{SCORES}"] = _json({"scores": records, "sha256": hash_value(records)})
            for name in (f"{PREDICTIONS}/{language}.jsonl" for language in {*rows.language} if beside):
                if (predictions := beside / name).is_file():
                    members[f"{cell}/{name}"] = predictions.read_bytes()
    members |= {f"{REPORT}/{name}": as_csv(frame).encode() for name, frame in numbers.files.items()}
    metrics = {name: asdict(METRICS[name]) for name in sorted({*numbers.scores.metric})}
    options = {"by": by, "baseline": baseline}
    index = {"format": FORMAT, "versions": versions(), "report": options, "metrics": metrics}
    write_atomic(path, seal_archive({INDEX: _json(index), **members}))


def is_bundle(path: Path) -> bool:
    """Whether a name of a report is of a bundle, whole or damaged."""
    return path.is_file() and (path.suffix == ".zip" or zipfile.is_zipfile(path))


def read_bundle(path: Path) -> Bundle:
    """Reads a bundle and holds all its bytes to the hash that it ends with.

    Raises:
        DataError: it is missing, no bundle, of another format, or so damaged that it cannot be read.
    """
    try:
        if path.exists():
            check_plain(path)
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{shown_path(path)} cannot be read ({error.strerror}).") from None
    problems = []
    if not is_sealed_archive(content):
        problems.append("the archive: its SHA-256 is not the one that it ends with; bytes of it were changed")
    try:
        members, damaged = read_archive(content)
    except (zipfile.BadZipFile, ValueError, NotImplementedError):  # the last of a version that zipfile cannot read
        raise DataError(f"{shown_path(path)} is no bundle, or it is damaged: it is not a zip archive.") from None
    problems += [f"{name}: it cannot be read" for name in damaged]
    try:
        index = json.loads(members[INDEX])
        number = index["format"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise DataError(
            f"{shown_path(path)} is no whole bundle: {INDEX} is missing or damaged. Bundles are what "
            "`xalign report RUN --bundle FILE` writes; get another copy."
        ) from None
    if number != FORMAT:
        raise DataError(f"{shown_path(path)} is a bundle of format {number}; this xalign reads format {FORMAT}.")
    return Bundle(path, index, members, problems)


def verify_bundle(path: Path) -> Bundle:
    """Recomputes the numbers of a bundle, without its runs and without a GPU.

    Every score of a fine-tuned model from its predictions, every mean, interval and verdict from the scores; and every
    declared seed is looked for.

    Returns:
        The bundle, whose `problems` name what differs.

    Raises:
        DataError: as `read_bundle`.
    """
    bundle = read_bundle(path)
    with bundle.reading("the rest"):
        for check in (_check_columns, _check_scores, _check_seeds, _check_times, _check_tables):
            check(bundle)
        bundle.facts.append(_ON_TRUST)
        made_with = ", ".join(f"{name} {number}" for name, number in bundle.index["versions"].items())
        bundle.facts.append(f"Made with {made_with}.")
    return bundle


def _shown(score: Score) -> str:
    seed = "" if score.seed is None else f", seed {score.seed}"
    return f"{score.metric} in {score.language} of {score.run or score.encoder}{seed}"


def _check_scores(bundle: Bundle) -> None:
    """Every score follows from its predictions, every mean from its languages."""
    written, again, predicted = set[Score](), set[Score](), set[str]()
    for name in bundle.scored():
        with bundle.reading(f"{name} or a prediction of it"):
            scores = bundle.scores(name)
            beside = f"{name.removesuffix(SCORES)}{PREDICTIONS}/"
            files = {file: content for file, content in bundle.members.items() if file.startswith(beside)}
            recomputed = _score_again(scores, files)
            bundle.problems += [f"{name}: {problem}" for problem in _differing_scores(scores, recomputed)]
            held = {item.averaged_with for item in recomputed}
            again |= {score for score in scores if score.averaged_with in held}
            predicted |= {*files}
            written |= {*scores}
    bundle.facts.append(
        f"{len(again):,} of {len(written):,} scores computed again from {len(predicted):,} files of predictions."
    )
    if rest := len(written) - len(again):
        bundle.facts.append(f"{rest:,} scores have no predictions: they are held to the hash of the whole alone.")


def _check_columns(bundle: Bundle) -> None:
    """The scores of a study's cell stand in the column of the cell."""
    columns: dict[tuple[str, str], set[str]] = defaultdict(set)
    for run in bundle.runs:
        if run.study:
            for file in run.scores.file.unique():
                columns[run.study["name"], file.parent.name].add(run.label)
    for name, study in studies_of(bundle.runs).items():
        for cell in study["cells"]:
            labels = columns[name, cell["name"]]
            if labels and not labels & {cell["label"], f"{cell['label']} ({name})"}:
                bundle.problems.append(
                    f"study {name}: the scores of {cell['name']} are of {cell['label']}, and stand in the column "
                    f"{', '.join(sorted(labels))}"
                )


def _score_again(scores: Scores, files: Members) -> list[Score]:
    """The scores in single languages as the predictions of a cell give them; none of somebody's own task."""
    task, recomputed = scores[0].task, list[Score]()
    for name, content in files.items():
        rows, language = [json.loads(line) for line in content.decode().splitlines()], Path(name).stem
        measures = dict[str, Measure]()
        if task in TUNED_TASKS:
            examples = [TUNED_TASKS[task].from_gold(row["key"], row["gold"], language) for row in rows]
            measures = TUNED_TASKS[task].measure(examples, [row["prediction"] for row in rows])
        predicted = {row["key"]: row["prediction"] for row in rows}
        for score in (candidate for candidate in scores if candidate.language == language):
            if task in TUNED_TASKS:
                metric = score.metric.removesuffix("_supervised")
                measure = measures[metric]
                # That of spans needs the words.
                chance = measure.chance if metric.endswith("_accuracy") else score.chance
                recomputed.append(replace(score, value=measure.value, n=measure.n, chance=chance))
            elif task in TASKS and (measure := TASKS[task].measure_again(score, predicted)):
                recomputed.append(replace(score, **asdict(measure)))
    return recomputed


def _differing_scores(scores: Scores, found: Scores) -> Iterator[str]:
    """Scores that differ from their predictions, and means that differ from the mean over languages."""
    again = {(old.averaged_with, old.language): old for old in found}
    held = {old.averaged_with for old in found}
    single = [old for old in scores if old.language != ALL_LANGUAGES]
    for old in single:
        if (old.averaged_with, old.language) not in again and (old.averaged_with in held or old.task in TUNED_TASKS):
            yield f"{_shown(old)} is {old.value:.6g} and has no predictions"
    means = average_languages([again.get((old.averaged_with, old.language), old) for old in single])
    again |= {(old.averaged_with, old.language): old for old in means}
    for old in scores:
        new = again.get((old.averaged_with, old.language), old)
        written, computed = ([each.value, each.chance or 0.0, each.n] for each in (old, new))
        if not np.allclose(written, computed, rtol=0, atol=_EXACT):
            source = "its languages give" if old.language == ALL_LANGUAGES else "its predictions give"
            numbers = [f"{value:.6g} of {n:,}, chance {chance:.6g}" for value, chance, n in (written, computed)]
            yield f"{_shown(old)} is {numbers[0]}; {source} {numbers[1]}"


def _check_seeds(bundle: Bundle) -> None:
    """Every seed of pretraining that a study declares has a run with scores, and there is no other."""
    declared = 0
    for study in studies_of(bundle.runs).values():
        runs = [run for run in bundle.runs if run.study and run.study["name"] == study["name"]]
        for label, seeds in study.get("seeds", {}).items():
            scored_seeds = {run.seed for run in runs if is_of(run.label, label, study) and len(run.scores)}
            declared += len(seeds)
            where = f"study {study['name']}: seed"
            bundle.problems += [
                f"{where} {seed} of {label} is declared and has no scores" for seed in {*seeds} - scored_seeds
            ]
            bundle.problems += [f"{where} {seed} of {label} is not declared" for seed in scored_seeds - {*seeds, None}]
    if declared:
        bundle.facts.append(f"{declared} declared seeds of pretraining looked for.")


def _check_times(bundle: Bundle) -> None:
    """The time of a training of one attempt is that from its first event to its last."""
    ended = [
        (run, run.log.end["time"] - run.log.started) for run in bundle.runs if run.log.end and len(run.log.starts) == 1
    ]
    for run, between in ended:
        if abs(run.log.seconds - between) > max(_SECONDS, _SHARE * between):  # a clock may have been set
            took = f"{run.name} took {run.log.seconds:,.0f} s"
            bundle.problems.append(f"{RUN_FILE}: {took}, and its events are {between:,.0f} s apart")
    bundle.facts.append(f"{len(ended)} times of trainings of one attempt held to their events.")


def _check_tables(bundle: Bundle) -> None:
    """Every mean, difference, interval and verdict of the report, computed from the scores of the runs."""
    for name, frame in report_numbers(bundle.runs, **bundle.index["report"]).files.items():
        stored = bundle.members.get(f"{REPORT}/{name}")
        if stored is None:
            bundle.problems.append(f"{REPORT}/{name}: it is missing")
            continue
        with bundle.reading(f"{REPORT}/{name}"):
            bundle.problems += [
                f"{REPORT}/{name}{problem}" for problem in _differing_cells(stored.decode(), as_csv(frame))
            ]
        bundle.facts.append(f"{name}: {len(frame):,} rows computed again.")


def _differing_cells(stored: str, computed: str) -> Iterator[str]:
    """Lines of a table that do not follow from the scores."""
    written, again = (pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False) for text in (stored, computed))
    if [*written.columns] != [*again.columns] or len(written) != len(again):
        yield f": its columns or its {len(written):,} rows are not the {len(again):,} that follow from the scores"
        return
    if again.empty:  # of no numbers: pandas would subtract texts
        return
    first, second = (frame.apply(pd.to_numeric, errors="coerce") for frame in (written, again))
    differs = (written != again) & ~((first - second).abs() <= _TOLERANCE)
    for row, column in np.argwhere(differs.to_numpy()):
        cells = [frame.iat[row, column] or "empty" for frame in (written, again)]
        yield f" line {row + 2}: {again.columns[column]} is {cells[0]}, computed again {cells[1]}"


def _json(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1) + "\n").encode()
