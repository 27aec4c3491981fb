"""Finds the runs of a report: folders of runs and studies, bundles, scores of other programs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from xalign_ray.config.derive import NOT_OF_A_COLUMN
from xalign_ray.config.explain import check_folder
from xalign_ray.config.load import RUN_KEYS
from xalign_ray.config.saved import read_saved
from xalign_ray.errors import DataError
from xalign_ray.finetune.training_set import PER_LANGUAGE
from xalign_ray.results.aggregate import KEY
from xalign_ray.results.bundle import is_bundle, read_bundle
from xalign_ray.results.compare import score_frame
from xalign_ray.results.foreign import is_foreign, read_foreign
from xalign_ray.results.run import NO_SCORES, PATHS, Log, Run, columns_of, label_runs, read_run, studies_of
from xalign_ray.work.artifacts import check_files, read_json, read_manifest
from xalign_ray.work.mirror import local_folder, opened
from xalign_ray.work.run_folder import EXPORT, RATES, STUDY
from xalign_ray.work.storage import quoted

_ANOTHER_MACHINE = 0.005  # of a score

_HINT = "Give the `xalign study` or `xalign tune` that made it again: it writes it anew and repeats no finished cell."
_CELL = frozenset({"name", "kind", "label", "folder", "state", "chosen"})
_ENGLISH = "english"

Source = tuple[str, str, int | None]  # label, a run's name or an encoder's path, and the pretraining step


def find_runs(names: Sequence[str]) -> list[Run]:
    """The runs in the order of their names; one that is named twice once.

    Of a study these are its pretraining runs with the scores of its cells, and the study's labels.
    The scores of trials are joined to the runs that they began from. A score that two sources have counts once.

    Args:
        names: folders of runs and of studies, bundles, CSV files and mteb's results.

    Raises:
        ConfigError: there is no such folder.
        DataError: a folder is no run, a file of it is damaged, or two sources differ in a score.
    """
    check_names(names)
    runs, foreign = dict[str, list[Run]](), dict[str, list[Run]]()
    for name in names:
        if is_bundle(folder := local_folder(name)):
            runs[name] = _from_bundle(folder)
        elif is_foreign(folder):
            foreign[name] = read_foreign(folder)
        else:
            runs[name] = _from_study(folder) if (folder / STUDY).is_file() else [read_run(folder)]
    sources = {**runs, **foreign}
    labels = {run.label for of_source in sources.values() for run in of_source if not _is_given(run)}
    for name, of_source in sources.items():  # another program's encoder with the name of one of ours is another column
        sources[name] = [
            replace(run, label=f"{run.label} (given)") if _is_given(run) and run.label in labels else run
            for run in of_source
        ]
    return join_trials(_with_distinct_labels(join_sources(sources)))


def read_runs(names: Sequence[str]) -> pd.DataFrame:
    """One long frame of all scores of the runs in `find_runs`, a row a score: see `score_frame`."""
    return score_frame(label_runs(find_runs(names)))


def _is_given(run: Run) -> bool:
    """Whether it is an encoder that another program scored, or one without a recipe in a bundle."""
    return bool(run.label) and not run.study


def check_names(names: Sequence[str]) -> None:
    """Raises ConfigError if one of the folders is not there."""
    for name in names:
        if not (path := opened(name)).is_file():
            check_folder(path)


def join_trials(runs: Sequence[Run]) -> list[Run]:
    """The runs, each with the scores of the trials among them that were tuned from its encoder.

    A run without a recipe or a seed is a trial, or an evaluation of another encoder. Its scores go to the run and step
    that they name, or to the command that made the encoder; where that is not among the runs of its label, all scores
    of one encoder become one run, with the recipe of the run or that beside the encoder if it is still there. A run or
    score that is found twice counts once. Labels keep their order.
    """
    joined_runs: dict[tuple[str, Path], Run] = {}
    trials: dict[Source, list[pd.DataFrame]] = defaultdict(list)
    studies: dict[Source, Mapping[str, Any] | None] = {}
    for run in runs:
        if "recipe" in run.config or run.given_seed is not None or run.scores.empty or _is_given(run):
            label_and_folder = (run.label, run.folder.resolve())
            joined_runs[label_and_folder] = _with(joined_runs.get(label_and_folder, run), [run.scores])
            continue
        sources = [
            (run.label, run.made_by or name or encoder, None if run.made_by else step)
            for name, encoder, step in run.scores[["run", "encoder", "step"]].itertuples(index=False)
        ]
        for source in dict.fromkeys(sources):
            trials[source].append(run.scores.loc[[other == source for other in sources]])
            studies[source] = run.study
    joined = []
    for run in joined_runs.values():
        steps = {run.log.last_step, *run.scores.step}
        sources = [(run.label, run.made_by, None)] if run.made_by else [(run.label, run.name, step) for step in steps]
        joined.append(_with(run, [frame for source in sources for frame in trials.pop(source, [])]))
    recipes = {run.name: run.config for run in joined_runs.values()}
    joined += [_as_run(source, scores, recipes, studies[source]) for source, scores in trials.items()]
    labels = list(dict.fromkeys(run.label for run in runs))
    return sorted(joined, key=lambda run: labels.index(run.label))


def _with(run: Run, scores: Iterable[pd.DataFrame]) -> Run:
    return replace(run, scores=pd.concat([run.scores, *scores], ignore_index=True).drop_duplicates())


def _as_run(
    source: Source,
    scores: Sequence[pd.DataFrame],
    recipes: Mapping[str, Mapping[str, Any]],
    study: Mapping[str, Any] | None,
) -> Run:
    """The encoder of these scores as a run, with its recipe where that is known."""
    label, name, step = source
    first, folder = scores[0].iloc[0], Path(name).parent if Path(name).name == EXPORT else Path(name)
    config = recipes.get(name, {}) if label else {}
    if first.run and not config and Path(first.encoder).name == EXPORT:
        saved = read_saved(Path(first.encoder).parent)
        config = saved if "recipe" in saved else {}
    if first.run and not config:
        folder = Path(f"{name} at step {step}")
    return _with(Run(folder, config, Log(), NO_SCORES, label=label, study=study), scores)


def _from_bundle(path: Path) -> list[Run]:
    """The runs of a bundle; one with a recipe and of no study is labelled by its recipe, as that of a run folder."""
    bundle, runs = read_bundle(path), list[Run]()
    with bundle.reading("the rest"):
        runs = [replace(run, label="") if run.config and not run.study else run for run in bundle.runs]
    if bundle.problems:
        raise DataError(
            f"{path} was changed: {bundle.problems[0]}. `xalign verify {quoted(path)}` names all that differs."
        )
    return runs


def join_sources(sources: Mapping[str, Sequence[Run]]) -> list[Run]:
    """The runs of all sources; sources of one study, such as seeds that ran on different machines, are joined.

    A seed, or an encoder that the study was given, counts once, as the first source has it.

    Raises:
        DataError: two sources have other scores of one seed, or of an encoder that was given; sources of one study
            differ in its cells or in a recipe.
    """
    studies: dict[str, Mapping[str, Any]] = {}
    by_column: dict[tuple[str, str], list[tuple[str, Run]]] = defaultdict(list)
    joined: list[Run] = []
    for source, runs in sources.items():
        earlier, again = {column: list(source_runs) for column, source_runs in by_column.items()}, set[str]()
        for run in runs:
            column = ((run.study or {}).get("name", ""), run.label)
            others = earlier.get(column, []) if run.label else []
            if others and run.study and not _are_alike(run, others[0][1]):
                raise DataError(
                    f"{others[0][0]} and {source} are of one study, and its {run.label} has other settings in each: "
                    "`xalign config diff` shows them. Give one of them."
                )
            same = [pair for pair in others if pair[1].seed == run.seed]
            for other in same:
                _check_scores(source, run, *other)
            if same and run.study:
                again |= {run.label} if run.seed is None else set()
            else:
                by_column[column].append((source, run))
                joined.append(run)
        for name, study in studies_of(runs).items():
            studies[name] = _join_declarations(source, study, again, studies[name]) if name in studies else study
    return [replace(run, study=studies[run.study["name"]]) if run.study else run for run in joined]


def _are_alike(run: Run, other: Run) -> bool:
    """Whether two runs differ in nothing but seed, workers and places; an encoder that was given has no recipe."""
    if not run.config or not other.config or run.column == other.column:
        return True
    return _settings(run.config) == _settings(other.config)


def _settings(config: Mapping[str, Any]) -> Any:
    settings = {key: value for key, value in config.items() if key not in RUN_KEYS | {*NOT_OF_A_COLUMN}}
    return _without_paths(settings | {"train": settings["train"] | {"per_device_batch_size": None}})


def _check_scores(source: str, run: Run, other: str, known: Run) -> None:
    """Raises DataError where common scores differ, or two sources of a study have other ones.

    Machines differ in the last digits: an encoder that a study was given may so differ by a sentence or two.
    """
    tolerance = _ANOTHER_MACHINE if run.study and run.seed is None else 0.0
    keys, facts = [*KEY, "language", "test_set", "seed", "step"], ["value", "n", "chance"]
    first, second = (
        {row[: len(keys)]: row[len(keys) :] for row in each.scores[keys + facts].itertuples(index=False, name=None)}
        for each in (known, run)
    )
    differs = any(
        abs(value - second[key][0]) > tolerance or tuple(others) != second[key][1:]
        for key, (value, *others) in first.items()
        if key in second
    )
    if differs or (run.study and first.keys() != second.keys()):
        what = run.label if run.seed is None else f"seed {run.seed} of {run.label}"
        raise DataError(f"{other} and {source} both have {what}, with other scores. Give one of them.")


def _without_paths(value: Any) -> Any:
    """A value of JSON; whatever path of a machine stands in it is as any other."""
    if isinstance(value, Mapping):
        return {key: _without_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    return PATHS if isinstance(value, str) and value.startswith(PATHS) else value


def _declared(study: Mapping[str, Any]) -> Mapping[str, Any]:
    """What all sources of a study declare alike: its tasks, and the words of each command."""
    declared = study.get("study", {})
    commands = {
        f"`command` of {encoder['label']}": re.split(r"[\s=]+", encoder["command"])
        for encoder in declared.get("encoders", ())
        if encoder.get("command") and encoder["label"]  # without a label the command is its label
    }
    return _without_paths({key: declared.get(key) for key in ("evaluations", "finetunings")} | commands)


def _join_declarations(
    source: str, study: Mapping[str, Any], again: Collection[str], first: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The study.json as if all had run together; `again` are labels that the first has already."""
    before = _declared(first)
    for key, declared in _declared(study).items():
        if before.get(key, declared) != declared:
            raise DataError(f"{source}: its study {study['name']} declares other {key} than the sources before it.")
    named = {cell["name"] for cell in first["cells"]}
    cells = [entry for entry in study["cells"] if entry["label"] not in again and entry["name"] not in named]
    seeds = [entry.get("seeds", {}) for entry in (first, study)]
    return {
        **first,
        "labels": list(dict.fromkeys([*first["labels"], *study["labels"]])),
        "seeds": {label: sorted({*seeds[0].get(label, ()), *seeds[1].get(label, ())}) for label in seeds[0] | seeds[1]},
        "cells": [*first["cells"], *cells],
    }


def _from_study(folder: Path) -> list[Run]:
    check_files(folder, (read_manifest(folder) or {}).get("files", {}), _HINT)
    study = read_json(folder / STUDY, _HINT, "name", "baseline", "labels", "cells")
    if not all(isinstance(cell, dict) and cell.keys() >= _CELL for cell in study["cells"]):
        raise DataError(f"{folder / STUDY} is damaged: a cell lacks one of {', '.join(sorted(_CELL))}. {_HINT}")
    if (folder / RATES).is_file():
        study["rates"] = read_json(folder / RATES, _HINT, "metric", "languages", "tried", "chosen")
    # Labels with a model a language have the English of the zero-shot model, as in PPA's tables of translate-train.
    without_english: dict[Any, dict[str, None]] = defaultdict(dict)
    for cell in study["cells"]:
        if (cell.get("training") or "").endswith(PER_LANGUAGE):
            without_english[_row_of(cell)][cell["label"]] = None
    of_models = Counter(
        encoder["label"] or encoder["model"]
        for encoder in study.get("study", {}).get("encoders", ())
        if encoder.get("model") and encoder.get("languages")
    )
    runs = list[Run]()
    for cell in study["cells"]:
        path, what = opened(folder / local_folder(cell["folder"] or "")), {"label": cell["label"], "study": study}
        what["made_by"] = cell.get("made_by")
        if cell["kind"] != "pretraining" and cell["state"] == "finished" and cell["chosen"]:
            run = replace(read_run(path), config={}, **what)
            if of_models[cell["label"]] > 1:  # models for different languages share it: together they are one encoder
                run = replace(run, scores=run.scores.assign(run=None, encoder=run.label))
            runs.append(run)
            for label in without_english.get(_row_of(cell), ()) if cell.get("training") == _ENGLISH else ():
                english = run.scores.loc[run.scores.language == cell["train_language"]]
                runs.append(replace(run, label=label, scores=english))
        elif cell["kind"] == "pretraining" and path.is_dir() and cell["state"] not in ("waiting", "failed"):
            if cell["label"] not in study["labels"]:
                continue  # others begin from it; it is none of the study's encoders
            # What else was ever evaluated in its folder is not of this study.
            seed = {"given_seed": cell["seed"]} if what["made_by"] else {}
            runs.append(replace(read_run(path), scores=NO_SCORES, **seed, **what))
    order = {label: number for number, label in enumerate(study["labels"])}
    return sorted(join_trials(runs), key=lambda run: order.get(run.label, len(order)))


def _row_of(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    return cell.get("encoder"), cell.get("task"), cell.get("train_language")


def _with_distinct_labels(runs: Sequence[Run]) -> list[Run]:
    """Columns of two studies that have one label and are not of the same runs get the study's name."""
    several = set()
    for label, of_label in columns_of([run for run in runs if run.study]).items():
        folders: dict[str, set[Path]] = defaultdict(set)
        for run in of_label:
            folders[run.study["name"]].add(run.folder.resolve())  # type: ignore[index]
        several |= {label} if len({frozenset(languages) for languages in folders.values()}) > 1 else set()
    return [
        replace(run, label=f"{run.label} ({run.study['name']})") if run.study and run.label in several else run
        for run in runs
    ]
