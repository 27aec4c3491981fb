"""Bundle of a report: what its numbers rest on in one file, and its verification, which computes them again.

A bundle is a zip archive whose comment is the SHA-256 of all bytes before it. It holds `bundle.json` (versions, the
report's options, a hash of each file), `runs.json` (runs, their data's manifests and scores), `studies.json`, the
resolved recipes, the files of scores with their predictions, and the report's tables as CSV. It holds no text of a
corpus, and not who ran what and where (`hide_places`).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import zipfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from xalign_ray.config.language_codes import languages_of
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import DataError
from xalign_ray.results.aggregate import over_seeds
from xalign_ray.results.claims import CELLS, CLAIMS, against_papers, measured
from xalign_ray.results.compare import SCORE_COLUMNS, compare_runs, score_frame
from xalign_ray.results.run import Log, Run, as_published, columns_of, declared_seeds, is_of, keys_as_declared, left_out
from xalign_ray.tasks.registry import METRICS, TASKS, TUNED_TASKS
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score, average_languages, read_scores
from xalign_ray.tasks.task import Measure, Metric
from xalign_ray.track.scored_encoder import versions
from xalign_ray.work.artifacts import hash_value, is_sealed_archive, read_archive, seal_archive, write_atomic
from xalign_ray.work.file_checks import check_plain
from xalign_ray.work.run_folder import PREDICTIONS, SCORES
from xalign_ray.work.storage import hide_places, shown_path

FORMAT = 3
INDEX, RUNS_FILE, STUDIES_FILE = "bundle.json", "runs.json", "studies.json"
REPORT, SCORED, RECIPES = "report", "scores", "recipes"  # folders in it
_SCORE_FILES = (SCORES, f"*/*/{SCORES}", f"*/*/*/*/{SCORES}")  # below a study or run: of cells and evaluations
_OF_LOG = ("starts", "end", "last_step", "started", "seconds", "memory", "waiting")  # all but its curves
_TOLERANCE = 1e-6  # of a mean or an end of an interval: far below what is printed, above what versions of scipy change
_EXACT = 1e-12  # of a score, which is counted
_ON_TRUST = (
    "Taken on trust, for nothing in the file says them twice: minutes, worker hours, device hours, tokens, memory, "
    "waiting time, steps and times of starts, states and hours of cells, counts of the data, versions."
)
_ANY = "any"  # origin of a score, in place of a run or encoder
_UNKNOWN_BYTES = "its bytes are not those that were written"

_COMPARED: Mapping[str, Sequence[str]] = {  # what tells the rows of a table apart
    "scores.csv": [
        *("label", "run", "task", "metric", "split", "layer", "pooling", "language", "seed", "step"),
        *("encoder", "test_set"),
    ],
    "comparison.csv": ["by", "metric", "split", "layer", "pooling", "group", "label"],
    CELLS: ["paper", "table", "section", "row", "column"],
    CLAIMS: ["claim", "step"],
}

Members = Mapping[str, bytes]
Scores = Sequence[Score]
Key = tuple[Any, ...]
Rows = Mapping[str, Sequence[Mapping[str, Any]]]  # predictions by language
Golds = defaultdict[Key, list[tuple[str, str | None, str]]]  # file, test set and hash of the gold labels


@dataclass(frozen=True)
class Options:
    """What a report was asked for: see `report`."""

    by: Sequence[str] = ()
    sizes: Mapping[str, float] = field(default_factory=dict)
    baseline: str | None = None


@dataclass
class Bundle:
    """What a file says, and what was found to differ on the way.

    Attributes:
        index: bundle.json.
        members: the content of each file of the archive that can be read.
        problems: a sentence for each difference.
        facts: what was computed again and the versions that it was made with, a sentence each.
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
        return [self._run(one, studies) for one in json.loads(self.members[RUNS_FILE])]

    @property
    def studies(self) -> list[Mapping[str, Any]]:
        """Those of the runs, once each."""
        return list({run.study["name"]: run.study for run in self.runs if run.study}.values())

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
        if config and one["on_demo"]:
            config["data"]["root"] = "demo"  # where it lay there, it does not lie here
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
    known = _keys(_key(score, run.label) for run in runs for score in run.scores)
    studies = {run.study["name"]: run.study for run in runs if run.study}
    members = {
        STUDIES_FILE: _json(studies),
        **{
            _recipe_name(*one): yaml.safe_dump(dict(one[1].config)).encode() for one in enumerate(runs) if one[1].config
        },
        RUNS_FILE: _json([_describe(*one) for one in enumerate(runs)]),
        **{
            f"{SCORED}/{at}-{source.resolve().name}/{name}": content
            for at, source in enumerate(sources)
            for scores, name, files in _scored_files(source)
            if scores and all(_holds(known, _key(score)) for score in scores)
            for name, content in {**files, name: _scores_file(scores)}.items()
        },
        **{f"{REPORT}/{name}": _as_csv(frame).encode() for name, frame in tables_of(runs, options).items()},
    }
    scored = (name for name in members if name.endswith(f"/{SCORES}"))
    in_files = _keys(_key(Score(**one)) for name in scored for one in json.loads(members[name])["scores"])
    every = [(_key(one, run.label), one) for run in runs for one in run.scores]
    if rest := [one for key, one in every if not _holds(in_files, key)]:
        members[f"{SCORED}/elsewhere/{SCORES}"] = _scores_file(rest)
    used = sorted({score.metric for run in runs for score in run.scores})
    index = {
        "format": FORMAT,
        "versions": versions(),
        "report": asdict(options),
        "metrics": {name: asdict(METRICS[name]) for name in used},
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    write_atomic(path, seal_archive({INDEX: _json(index), **members}))


def is_bundle(path: Path) -> bool:
    """Whether a name of a report is of a bundle, whole or damaged."""
    return path.is_file() and (path.suffix == ".zip" or zipfile.is_zipfile(path))


def read_bundle(path: Path) -> Bundle:
    """Reads a bundle and holds every byte of it to the hashes that it carries.

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
    problems += [f"{name}: {_UNKNOWN_BYTES}" for name in damaged]
    try:
        index = json.loads(members[INDEX])
        hashes, number = dict(index["files"]), index["format"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise DataError(
            f"{shown_path(path)} is no whole bundle: {INDEX} is missing or damaged. Bundles are what "
            "`xalign report RUN --bundle FILE` writes; get another copy."
        ) from None
    if number != FORMAT:
        raise DataError(f"{shown_path(path)} is a bundle of format {number}; this xalign reads format {FORMAT}.")
    for name, expected in hashes.items():
        if name not in members:
            problems += [] if name in damaged else [f"{name}: it is missing"]
        elif hashlib.sha256(members[name]).hexdigest() != expected:
            problems.append(f"{name}: {_UNKNOWN_BYTES}")
    problems += [f"{name}: {INDEX} does not list it" for name in members if name not in hashes and name != INDEX]
    return Bundle(index, members, problems)


def verify_bundle(path: Path) -> Bundle:
    """Computes again what a bundle says, without its runs and without a GPU.

    Every score of a fine-tuned model from its predictions, every mean, interval and verdict from the scores, and every
    declared seed is looked for.

    Returns:
        The bundle, whose `problems` name what differs.

    Raises:
        DataError: as `read_bundle`.
    """
    bundle = read_bundle(path)
    with bundle.reading("the rest"):
        for check in (_check_scores, _check_seeds, _check_rates, _check_choices, _check_declared, _check_tables):
            check(bundle)
        bundle.facts.append(_ON_TRUST)
        made_with = ", ".join(f"{name} {number}" for name, number in bundle.index["versions"].items())
        bundle.facts.append(f"Made with {made_with}.")
    return bundle


def tables_of(runs: Sequence[Run], options: Options) -> dict[str, pd.DataFrame]:
    """The frames of a report that a bundle holds and that are computed again, by file."""
    scores = score_frame(runs)
    comparison = compare_runs(runs, scores, options.by, options.sizes, options.baseline)
    frames = {"scores.csv": scores.reindex(columns=SCORE_COLUMNS), "comparison.csv": comparison.shown}
    return frames | against_papers(measured(runs, scores)).files


def _describe(number: int, run: Run) -> dict[str, Any]:
    """What runs.json says of a run."""
    return {
        "label": run.label,
        "name": run.name,
        "seed": run.seed,
        "recipe": _recipe_name(number, run) if run.config else None,
        "data": run.data,
        "on_demo": run.on_demo,
        "log": {name: getattr(run.log, name) for name in _OF_LOG},
        "study": run.study["name"] if run.study else None,
        "scores": [asdict(score) for score in run.scores],
    }


def _recipe_name(number: int, run: Run) -> str:
    return f"{RECIPES}/{number:03}-{run.name}.yaml"


def _scored_files(source: Path) -> Iterator[tuple[Scores, str, Members]]:
    """Each scores.json of a folder or a bundle: its scores, its name, and the predictions beside it by theirs."""
    if is_bundle(source):
        members = read_bundle(source).members
        for name in (one for one in members if one.endswith(f"/{SCORES}")):
            scores = [Score(**record) for record in json.loads(members[name])["scores"]]
            yield scores, name, {one: content for one, content in members.items() if one.startswith(_beside(name))}
        return
    for path in sorted({path for pattern in _SCORE_FILES for path in source.glob(pattern)}):
        scores = [replace(score, encoder=hide_places(score.encoder)) for score in read_scores(path)]
        found = path.parent.glob(f"{PREDICTIONS}/*.jsonl")
        files = {file.relative_to(source).as_posix(): file.read_bytes() for file in sorted(found)}
        yield scores, path.relative_to(source).as_posix(), files


def _scores_file(scores: Scores) -> bytes:
    records = [asdict(score) for score in scores]
    return _json({"scores": records, "sha256": hash_value(records)})


def _key(score: Score, label: str = "") -> Key:
    """What two records of one score have in common.

    Its origin comes first: the run or encoder. None where a report has given several encoders the name of their column.
    """
    origin = None if score.run is None and score.encoder == label else score.run or score.encoder
    where = (score.task, score.metric, score.split, str(score.layer), score.pooling, score.language)
    return origin, *where, score.value, score.n, score.chance, score.seed, score.step, score.test_set


def _keys(keys: Iterable[Key]) -> set[Key]:
    """The keys, each also with any origin, for `_holds`."""
    return {one for key in keys for one in (key, (_ANY, *key[1:]))}


def _holds(keys: Collection[Key], key: Key) -> bool:
    """Whether a score is among those of `_keys`; one of unknown origin is if its like is there, of whatever origin."""
    return (_ANY, *key[1:]) in keys if key[0] is None else key in keys or (None, *key[1:]) in keys


def _shown(score: Score) -> str:
    seed = "" if score.seed is None else f", seed {score.seed}"
    return f"{score.metric} in {score.language} of {score.run or score.encoder}{seed}"


def _check_scores(bundle: Bundle) -> None:
    """Scores from predictions; runs.json has the scores of the files and no others, each in its cell's column."""
    of_runs = {_key(score, run.label): score for run in bundle.runs for score in run.scores}
    in_files: dict[Key, Score] = {}
    again, predicted, golds = set[Key](), 0, Golds(list)
    for name in sorted(one for one in bundle.members if one.endswith(f"/{SCORES}")):
        with bundle.reading(f"{name} or a prediction of it"):
            scores = [Score(**record) for record in json.loads(bundle.members[name])["scores"]]
            in_files |= {_key(score): score for score in scores}
            bundle.problems += _misplaced(bundle, name, scores)
            if files := _predictions_beside(bundle, name):
                again |= {_key(score) for score in _score_again(scores, files, name, bundle.problems, golds)}
                predicted += len(files)
    total, there, written = len(in_files), _keys(of_runs), _keys(in_files)
    missing = [score for key, score in in_files.items() if not _holds(there, key)]
    unknown = [score for key, score in of_runs.items() if not _holds(written, key)]
    bundle.problems += [f"{RUNS_FILE}: {_shown(one)} is {one.value:.6g} in its file, not so there" for one in missing]
    bundle.problems += [f"{RUNS_FILE}: {_shown(one)}, {one.value:.6g}, is in no {SCORES}" for one in unknown]
    bundle.facts.append(f"{len(again):,} of {total:,} scores computed again from {predicted:,} files of predictions.")
    if rest := total - len(again):
        bundle.facts.append(f"{rest:,} scores have no predictions: they are held to their hashes alone.")


def _misplaced(bundle: Bundle, name: str, scores: Scores) -> Iterator[str]:
    """Whether the scores of a study's cell stand in another column than that of the cell."""
    cell_name = Path(name).parent.name
    for study in bundle.studies:
        for cell in (one for one in study["cells"] if one["name"] == cell_name):
            if {one.task for one in scores} != {cell["task"]}:
                yield f"{name}: its scores are not of {cell['task']}"
            if cell["task"] in TUNED_TASKS and not _predictions_beside(bundle, name):
                yield f"{name}: its predictions are missing"
            single = [one for one in scores if one.language != ALL_LANGUAGES]
            means = {one.averaged_with: one.value for one in average_languages(single)}
            for one in (one for one in scores if one.language == ALL_LANGUAGES and one.averaged_with in means):
                if not math.isclose(one.value, means[one.averaged_with], rel_tol=0, abs_tol=_EXACT):
                    yield f"{name}: {_shown(one)} is {one.value:.6g}, its languages' is {means[one.averaged_with]:.6g}"
            codes = {code for one in scores for code in languages_of(one.language)}
            asked = [] if "per_language" in str(cell["training"]) else _asked(study)
            lacking = [{*one.get("languages", ())} - codes for one in asked if one["task"] == cell["task"]]
            for language in sorted(min(lacking, key=len, default=())):
                yield f"{name}: {language} is declared and has no score"
        for label in {cell["label"] for cell in study["cells"] if cell["name"] == cell_name}:
            columns = [run for run in bundle.runs if run.label in (label, f"{label} ({study['name']})")]
            own = _keys(_key(score, run.label) for run in columns for score in run.scores)
            if not all(_holds(own, _key(score)) for score in scores):
                yield f"{name}: its scores are of {label}, and {RUNS_FILE} has them not in that column"


def _predictions_beside(bundle: Bundle, name: str) -> dict[str, bytes]:
    """The predictions of a file of scores, by language."""
    start = _beside(name)
    return {Path(one).stem: content for one, content in bundle.members.items() if one.startswith(start)}


def _beside(name: str) -> str:
    """Where the predictions of a file of scores lie."""
    return f"{name.removesuffix(SCORES)}{PREDICTIONS}/"


def _score_again(scores: Scores, files: Members, name: str, problems: list[str], golds: Golds) -> Scores:
    """Holds the scores of a cell to its predictions, and its gold labels to `golds`; those that it computed again."""
    task = scores[0].task
    rows = {language: [json.loads(line) for line in lines.decode().splitlines()] for language, lines in files.items()}
    if task not in TUNED_TASKS:  # of somebody's own task, which is not imported, there is nothing to hold to
        return _search_again(scores, rows, name, problems) if task in TASKS else ()
    single = [score for score in scores if score.language != ALL_LANGUAGES]
    unscored = sorted(files.keys() - {score.language for score in single})
    problems += [f"{name}: its predictions in {language} have no score" for language in unscored]
    problems += _other_gold({(task, one.split, one.language): one.test_set for one in single}, rows, name, golds)
    measures = {language: _measure(task, language, own) for language, own in rows.items()}
    found = []
    for score in single:
        own = measures.get(score.language, {}).get(score.metric.removesuffix("_supervised"))
        if own is None:
            problems.append(f"{name}: {_shown(score)} has no predictions")
            return ()
        by_gold = score.metric.removesuffix("_supervised").endswith("_accuracy")  # that of spans needs the words
        found.append(replace(score, value=own.value, n=own.n, chance=own.chance if by_gold else score.chance))
    return _hold(scores, found, name, problems)


def _other_gold(test_sets: Mapping[Key, str | None], rows: Rows, name: str, golds: Golds) -> Iterator[str]:
    """Where a test set has other gold labels than in a cell before; one whose hash is not known by its length."""
    for (*what, language), test_set in test_sets.items():
        own = [(row["key"], row["gold"]) for row in rows.get(language, ())]
        others, gold = golds[*what, language, len(own)], hash_value(own)
        same = (one for one in others if one[1] == test_set or None in (one[1], test_set))
        if (first := next(same, None)) and first[2] != gold:
            yield f"{name}: its gold labels in {language} are not those of {first[0]}, which has the same test set"
        others.append((name, test_set, gold))


def _search_again(scores: Scores, rows: Rows, name: str, problems: list[str]) -> Scores:
    """The same of a cell without training: of what its predictions say, such as the headline of retrieval."""
    task = TASKS[scores[0].task]
    said = {language: {row["key"]: row["prediction"] for row in own} for language, own in rows.items()}
    measures = [(score, task.measure_again(score, said.get(score.language, {}))) for score in scores]
    found = [replace(score, **asdict(own)) for score, own in measures if own is not None]
    held = {one.averaged_with for one in found}
    return _hold([score for score in scores if score.averaged_with in held], found, name, problems)


def _hold(scores: Scores, found: Scores, name: str, problems: list[str]) -> Scores:
    """Holds scores, those of all languages too, to what was found in each language, and returns them."""
    means = {(one.averaged_with, one.language): one for one in [*found, *average_languages(found)]}
    for score in scores:
        own = means.get((score.averaged_with, score.language))
        if own and not math.isclose(own.chance or 0.0, score.chance or 0.0, rel_tol=0, abs_tol=_EXACT):
            problems.append(f"{name}: chance of {_shown(score)} is {score.chance}; its predictions give {own.chance}")
        if own is None or own.n != score.n or not math.isclose(own.value, score.value, rel_tol=0, abs_tol=_EXACT):
            told = "nothing" if own is None else f"{own.value:.6g} of {own.n:,}"
            problems.append(f"{name}: {_shown(score)} is {score.value:.6g} of {score.n:,}; its predictions give {told}")
    return scores


def _measure(task: str, language: str, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Measure]:
    known = TUNED_TASKS[task]
    examples = [known.from_gold(row["key"], row["gold"], language) for row in rows]
    return known.measure(examples, [row["prediction"] for row in rows])


def _check_seeds(bundle: Bundle) -> None:
    """Every seed that a study declares, of pretraining and of fine-tuning, has its scores, and so has every cell."""
    scored = {Path(name).parent.name for name in bundle.members if name.endswith(f"/{SCORES}")}
    declared = 0
    for study in bundle.studies:
        name = f"study {study['name']}"
        columns = columns_of([run for run in bundle.runs if run.study and run.study["name"] == study["name"]])
        known = {None, *(seed for seeds in declared_seeds(study).values() for seed in seeds)}
        strange = set[int | None]()  # an encoder that was given may have any
        for label, seeds in declared_seeds(study).items():
            own = [run for shown, runs in columns.items() if is_of(shown, label, study) for run in runs]
            for task in (None, *dict.fromkeys(one["task"] for one in _asked(study))):
                have = {run.seed for run in own if any(task in (None, score.task) for score in run.scores)}
                what = "is declared and has no scores" if task is None else f"has no scores of {task}"
                bundle.problems += [f"{name}: seed {seed} of {label} {what}" for seed in seeds if seed not in have]
            declared, strange = declared + len(seeds), strange | ({run.seed for run in own} - known)
        bundle.problems += [f"{name}: seed {seed} is not declared" for seed in sorted(strange, key=str)]
        tuned: dict[Key, set[int]] = defaultdict(set)
        told = scored | left_out(study.get("choices", ()), study["cells"])
        for cell in (cell for cell in study["cells"] if cell["state"] == "finished"):
            if cell["kind"] == "finetuning" and cell["name"] in scored:
                tuned[cell["task"], cell["train_language"], cell["label"]].add(cell["seed"])
            elif cell["kind"] != "pretraining" and cell["name"] not in told:
                bundle.problems.append(f"{name}: the scores of {cell['label']} on {cell['task']} are missing")
        for one in study.get("study", {}).get("finetunings", ()):
            for (task, language, label), own in tuned.items():
                lacking = [seed for seed in one["seeds"] or (0,) if seed not in own]
                if (task, language) == (one["task"], one["train_language"]):
                    bundle.problems += [
                        f"{name}: fine-tuning seed {seed} of {label} on {task} is missing" for seed in lacking
                    ]
    if declared:
        bundle.facts.append(f"{declared} declared seeds of pretraining looked for.")


def _asked(study: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a study asks of all encoders; nothing where some are of a few languages and may have nothing to do."""
    declares = study.get("study", {})
    if any(one["languages"] for one in declares.get("encoders", ())):
        return []
    return [*declares.get("evaluations", ()), *declares.get("finetunings", ())]


def _check_choices(bundle: Bundle) -> None:
    """Every setting was tried, and the one with the highest mean development score chosen, by what the cells say."""
    for study in bundle.studies:
        declares = study.get("study", {})
        asked = {
            (one["task"], one["train_language"]): one.get("settings", {}) for one in declares.get("finetunings", ())
        }
        for one in study.get("choices", ()):
            where = f"study {study['name']}: the setting of {one['label']} on {one['task']}"
            settings = asked.get((one["task"], one["train_language"]), {})
            many = math.prod(len({*map(str, values)}) for values in settings.values() if values)
            if declares.get("search", {}).get("kind") == "grid" and len(one["candidates"]) != many:
                bundle.problems.append(f"{where} is of {len(one['candidates'])} that were tried; {many} are declared")
            tried = [list(enumerate(candidate["development"].values())) for candidate in one["candidates"]]
            means = {at: over_seeds(own) for at, own in enumerate(tried) if own and len(own) == max(map(len, tried))}
            if means and means.get(one["chosen"], -math.inf) < max(means.values()) - _EXACT:
                bundle.problems.append(f"{where} is not the best of those tried")


def _check_declared(bundle: Bundle) -> None:
    """Each recipe has what the study declares of its label, as far as both versions of the package know the key.

    A key that no recipe of the study has as it is declared, and that the study does not set, is of another version.
    """
    for study in bundle.studies:
        runs = [run for run in bundle.runs if run.study and run.study["name"] == study["name"] and run.config]
        declares = study.get("study", {})
        settings = [one for encoder in declares.get("encoders", ()) for one in encoder["settings"]]
        named = tuple({one.partition("=")[0] for one in (*settings, *declares.get("settings", ()))})
        keys = [keys_as_declared(run, study) for run in runs]
        right = {key for own in keys for key, is_right in own.items() if is_right}
        for run, own in zip(runs, keys, strict=True):
            wrong = [key for key, is_right in own.items() if not is_right and (key in right or key.startswith(named))]
            if wrong:
                where = f"recipe of {run.label}, seed {run.seed}"
                bundle.problems.append(f"{where}: {wrong[0]} is not as the study declares it")


def _check_rates(bundle: Bundle) -> None:
    """Each recipe of a study that chooses rates was trained at the one whose development score is highest."""
    checked = 0
    for study in (one for one in bundle.studies if "rates" in one):
        name, rates = f"study {study['name']}", study["rates"]
        every = {one["learning_rate"] for one in rates["tried"]}
        for label, chosen in rates["chosen"].items():
            tried = [(one["score"], -one["learning_rate"]) for one in rates["tried"] if one["encoder"] == label]
            trained = {
                run.config["train"]["optimizer"]["learning_rate"]
                for run in bundle.runs
                if run.label in (label, f"{label} ({study['name']})") and run.config
                if run.study and run.study["name"] == study["name"]
            }
            if lacking := every - {-rate for _, rate in tried}:
                bundle.problems.append(f"{name}: {label} was not tried at the rate {min(lacking):g}, and others were")
            if {-max(tried)[1], *trained} != {chosen}:
                bundle.problems.append(
                    f"{name}: the rate {chosen:g} of {label} is not the best of those tried, "
                    f"{-max(tried)[1]:g}, or not that of its recipes"
                )
            checked += 1
    if checked:
        bundle.facts.append(f"{checked} learning rates follow from the development scores of those that were tried.")


def _check_tables(bundle: Bundle) -> None:
    """Every mean, difference, interval and verdict of the report, computed from the scores of the runs."""
    frames = tables_of(bundle.runs, Options(**bundle.index["report"]))
    for name, frame in frames.items():
        stored = bundle.members.get(f"{REPORT}/{name}")
        if stored is None:
            bundle.problems.append(f"{REPORT}/{name}: it is missing")
            continue
        with bundle.reading(f"{REPORT}/{name}"):
            bundle.problems += _differing(name, stored.decode(), _as_csv(frame))
        bundle.facts.append(f"{name}: {len(frame):,} rows computed again.")
    known = {INDEX, RUNS_FILE, STUDIES_FILE, *(f"{REPORT}/{name}" for name in frames)}
    known |= {one["recipe"] for one in json.loads(bundle.members[RUNS_FILE])}
    scored = tuple(_beside(name) for name in bundle.members if name.endswith(f"/{SCORES}"))
    rest = (name for name in bundle.members if name not in known and not name.endswith(f"/{SCORES}"))
    bundle.problems += [f"{name}: it belongs to no run or table" for name in rest if not name.startswith(scored)]


def _differing(name: str, stored: str, computed: str) -> Iterator[str]:
    """What a table says otherwise than it follows from the scores, a sentence a number."""
    said, found = (_rows(text, _COMPARED[name]) for text in (stored, computed))
    for key in dict.fromkeys([*said, *found]):
        where = f"{REPORT}/{name}: {', '.join(filter(None, key[:-1]))}"
        if key not in said or key not in found:
            yield f"{where}: {'is missing' if key in found else 'follows from no score'}"
            continue
        for column in dict.fromkeys([*found[key], *said[key]]):
            told, value = said[key].get(column) or "", found[key].get(column) or ""
            if not _are_same(told, value):
                yield f"{where}: {column} is {told or 'empty'}, computed again {value or 'empty'}"


def _rows(text: str, keys: Sequence[str]) -> dict[tuple[str, ...], Mapping[str, str]]:
    """The rows of a table by what tells them apart; the last part of a key numbers rows that nothing tells apart."""
    rows: dict[tuple[str, ...], Mapping[str, str]] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for row in csv.DictReader(io.StringIO(text)):
        key = tuple(row.get(name) or "" for name in keys)
        rows[(*key, str(seen[key]))] = row
        seen[key] += 1
    return rows


def _are_same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return math.isclose(float(one), float(other), rel_tol=0, abs_tol=_TOLERANCE)
    except ValueError:
        return False


def _as_csv(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")


def _json(value: Any) -> bytes:
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1) + "\n").encode()
