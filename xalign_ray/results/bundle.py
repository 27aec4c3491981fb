"""Bundle of a report: what its numbers rest on in one file, and its verification, which computes them again.

A bundle is a zip archive whose comment is the SHA-256 of all bytes before it. It holds `bundle.json` (versions, the
report's options), `runs.json` (runs, their data's manifests and scores), `studies.json`, the
resolved recipes, the files of scores with their predictions, and the report's tables as CSV. It holds no text of a
corpus, and not who ran what and where (`hide_places`).
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import DataError
from xalign_ray.results.aggregate import as_csv
from xalign_ray.results.claims import against_papers, measured
from xalign_ray.results.compare import SCORE_COLUMNS, compare_runs, score_frame
from xalign_ray.results.run import Log, Run, as_published, cost_frame, is_of, studies_of
from xalign_ray.tasks.registry import METRICS, TASKS, TUNED_TASKS
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score, average_languages, read_scores
from xalign_ray.tasks.task import Measure, Metric
from xalign_ray.track.scored_encoder import versions
from xalign_ray.work.artifacts import hash_value, is_sealed_archive, read_archive, seal_archive, write_atomic
from xalign_ray.work.file_checks import check_plain
from xalign_ray.work.run_folder import PREDICTIONS, SCORES
from xalign_ray.work.storage import hide_places, shown_path

FORMAT = 5
INDEX, RUNS_FILE, STUDIES_FILE = "bundle.json", "runs.json", "studies.json"
REPORT, SCORED, RECIPES = "report", "scores", "recipes"  # folders in it
_SCORE_FILES = (SCORES, f"*/*/{SCORES}", f"*/*/*/*/{SCORES}")  # below a study or run: of cells and evaluations
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
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Options:
    """Arguments of a report: see `report`."""

    by: Sequence[str] = ()
    baseline: str | None = None


@dataclass
class Bundle:
    """The content of a file, and the differences that were found.

    Attributes:
        index: bundle.json.
        members: the content of each file of the archive that can be read.
        problems: a sentence for each difference.
        facts: the checks, and the versions that made the bundle, a sentence each.
    """

    index: Mapping[str, Any]
    members: Members
    problems: list[str]
    facts: list[str] = field(default_factory=list)

    @cached_property
    def runs(self) -> list[Run]:
        """The labelled runs, as the report had them."""
        for name, metric in self.index["metrics"].items():  # so that no module that a bundle names is imported
            METRICS.setdefault(name, Metric(**metric))
        studies = json.loads(self.members[STUDIES_FILE])
        return [self._run(entry, studies) for entry in json.loads(self.members[RUNS_FILE])]

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Turns whatever a forged or torn file makes of the code that reads it into a problem."""
        try:
            yield
        except Exception as error:
            self.problems.append(f"{what} cannot be read ({type(error).__name__}: {error})")

    def _run(self, one: Mapping[str, Any], studies: Mapping[str, Any]) -> Run:
        config = {}
        with self.reading(one["recipe"]):
            config = parse_yaml(self.members[one["recipe"]].decode()) if one["recipe"] else {}
        log = Log(**one["log"] | {"starts": tuple(one["log"]["starts"])})
        scores = tuple(Score(**score) for score in one["scores"])
        study = studies[one["study"]] if one["study"] else None
        return Run(Path(one["name"]), config, log, scores, one["data"], one["label"], study, one["seed"])


def write_bundle(path: Path, runs: Sequence[Run], sources: Sequence[Path], options: Options) -> None:
    """Writes the bundle of a report; equal runs, options and versions give equal bytes.

    Args:
        runs: labelled, as the report shows them.
        sources: folders of the runs and studies, in which the predictions lie, and bundles.
    """
    runs, options = as_published(runs), replace(options, baseline=hide_places(options.baseline))
    members, entries = {STUDIES_FILE: _json(studies_of(runs))}, []
    for number, run in enumerate(runs):
        recipe = f"{RECIPES}/{number:03}-{run.name}.yaml" if run.config else None
        if recipe:
            members[recipe] = yaml.safe_dump(dict(run.config)).encode()
        log = {name: getattr(run.log, name) for name in _OF_LOG}
        what = {name: getattr(run, name) for name in ("label", "name", "seed", "data")} | {"recipe": recipe, "log": log}
        study = run.study["name"] if run.study else None
        entries.append({**what, "study": study, "scores": [asdict(score) for score in run.scores]})
    members[RUNS_FILE] = _json(entries)
    of_report, in_files = [score for run in runs for score in run.scores], set[Key]()
    keys_of_report = {*map(_key, of_report)}
    for number, source in enumerate(sources):
        held = _scored_files(source)
        for name in _names_of_scores(held):
            scores, predictions = _read_cell(held, name)
            scores = [replace(score, encoder=hide_places(score.encoder)) for score in scores]
            if scores and keys_of_report >= (keys := {*map(_key, scores)}):
                files = {**predictions, name: _scores_file(scores)}
                folder = f"{SCORED}/{number}-{source.resolve().name}"
                members |= {f"{folder}/{file}": content for file, content in files.items()}
                in_files |= keys
    if rest := [score for score in of_report if _key(score) not in in_files]:
        members[f"{SCORED}/elsewhere/{SCORES}"] = _scores_file(rest)
    members |= {f"{REPORT}/{name}": as_csv(frame).encode() for name, frame in tables_of(runs, options).items()}
    index = {
        "format": FORMAT,
        "versions": versions(),
        "report": asdict(options),
        "metrics": {name: asdict(METRICS[name]) for name in sorted({score.metric for score in of_report})},
    }
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
    return Bundle(index, members, problems)


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
        for check in (_check_scores, _check_seeds, _check_times, _check_tables):
            check(bundle)
        bundle.facts.append(_ON_TRUST)
        made_with = ", ".join(f"{name} {number}" for name, number in bundle.index["versions"].items())
        bundle.facts.append(f"Made with {made_with}.")
    return bundle


def tables_of(runs: Sequence[Run], options: Options) -> dict[str, pd.DataFrame]:
    """The frames of a report that a bundle holds and that are computed again, by file."""
    scores = score_frame(runs)
    comparison = compare_runs(runs, scores, options.by, options.baseline)
    frames = {
        "scores.csv": scores.reindex(columns=SCORE_COLUMNS),
        "comparison.csv": comparison.shown,
        "costs.csv": cost_frame(runs),
    }
    return frames | against_papers(measured(runs, scores)).files


def _scored_files(source: Path) -> Members:
    """Each scores.json of a folder with the predictions next to it; of a bundle all files.

    Raises:
        DataError: a scores.json is damaged.
    """
    if is_bundle(source):
        return read_bundle(source).members
    scored = {path for pattern in _SCORE_FILES for path in source.glob(pattern)}
    for path in scored:
        read_scores(path)
    files = [file for path in scored for file in (path, *path.parent.glob(f"{PREDICTIONS}/*.jsonl"))]
    return {file.relative_to(source).as_posix(): file.read_bytes() for file in files}


def _names_of_scores(members: Members) -> list[str]:
    return sorted(name for name in members if Path(name).name == SCORES)


def _read_cell(members: Members, name: str) -> tuple[Scores, Members]:
    """The scores of a scores.json, and the predictions next to it by name."""
    scores = [Score(**record) for record in json.loads(members[name])["scores"]]
    beside = f"{name.removesuffix(SCORES)}{PREDICTIONS}/"
    return scores, {file: content for file, content in members.items() if file.startswith(beside)}


def _scores_file(scores: Scores) -> bytes:
    records = [asdict(score) for score in scores]
    return _json({"scores": records, "sha256": hash_value(records)})


def _key(score: Score) -> tuple[Any, ...]:
    """A score's fields without its encoder's name: a report calls an encoder by the label of its column."""
    return tuple(value for name, value in asdict(score).items() if name not in ("run", "encoder"))


def _shown(score: Score) -> str:
    seed = "" if score.seed is None else f", seed {score.seed}"
    return f"{score.metric} in {score.language} of {score.run or score.encoder}{seed}"


def _check_scores(bundle: Bundle) -> None:
    """Scores from predictions; runs.json has the scores of the files and no others, each in its cell's column."""
    of_runs = {_key(score): score for run in bundle.runs for score in run.scores}
    in_files: dict[tuple[Any, ...], Score] = {}
    of_files, again, predicted = set[Score](), set[Score](), 0
    for name in _names_of_scores(bundle.members):
        with bundle.reading(f"{name} or a prediction of it"):
            scores, files = _read_cell(bundle.members, name)
            in_files |= {_key(score): score for score in scores}
            bundle.problems += _in_other_columns(bundle, name, scores)
            recomputed = _score_again(scores, files)
            bundle.problems += [f"{name}: {problem}" for problem in _differing_scores(scores, recomputed)]
            held = {item.averaged_with for item in recomputed}
            again |= {score for score in scores if score.averaged_with in held}
            predicted += len(files)
            of_files |= {*scores}
    missing = [score for key, score in in_files.items() if key not in of_runs]
    unknown = [score for key, score in of_runs.items() if key not in in_files]
    bundle.problems += [
        f"{RUNS_FILE}: {_shown(item)} is {item.value:.6g} in its file, not so there" for item in missing
    ]
    bundle.problems += [f"{RUNS_FILE}: {_shown(item)}, {item.value:.6g}, is in no {SCORES}" for item in unknown]
    bundle.facts.append(
        f"{len(again):,} of {len(of_files):,} scores computed again from {predicted:,} files of predictions."
    )
    if rest := len(of_files) - len(again):
        bundle.facts.append(f"{rest:,} scores have no predictions: they are held to the hash of the whole alone.")


def _in_other_columns(bundle: Bundle, name: str, scores: Scores) -> Iterator[str]:
    """Whether the scores of a study's cell stand in another column than that of the cell."""
    for study in studies_of(bundle.runs).values():
        for label in {cell["label"] for cell in study["cells"] if cell["name"] == Path(name).parent.name}:
            columns = [run for run in bundle.runs if run.label in (label, f"{label} ({study['name']})")]
            if not {_key(score) for score in scores} <= {_key(score) for run in columns for score in run.scores}:
                yield f"{name}: its scores are of {label}, and {RUNS_FILE} has them not in that column"


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
            scored_seeds = {run.seed for run in runs if is_of(run.label, label, study) and run.scores}
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
            bundle.problems.append(f"{RUNS_FILE}: {took}, and its events are {between:,.0f} s apart")
    bundle.facts.append(f"{len(ended)} times of trainings of one attempt held to their events.")


def _check_tables(bundle: Bundle) -> None:
    """Every mean, difference, interval and verdict of the report, computed from the scores of the runs."""
    for name, frame in tables_of(bundle.runs, Options(**bundle.index["report"])).items():
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
