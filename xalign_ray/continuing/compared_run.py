"""Comparison of a continued run with its base: comparison.json, evaluations of both, and the closing lines."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from xalign_ray.config.saved import open_saved
from xalign_ray.continuing.bound import find_mixture
from xalign_ray.continuing.comparison import BaseComparison, compare_with_base, verdict_of
from xalign_ray.continuing.files import read_tests
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.continuing.recipe import Continuation
from xalign_ray.continuing.sentence_scores import SentenceScores
from xalign_ray.continuing.sentence_sets import Change, PairSet, SentenceSet
from xalign_ray.errors import DataError
from xalign_ray.exports import export_run, open_data
from xalign_ray.planning.estimate import read_prices
from xalign_ray.results.continued import THE_TEST, Continued, comparison_text, read_continued
from xalign_ray.results.page import PAGE
from xalign_ray.results.run import RETRIEVAL, read_log
from xalign_ray.tasks.retrieval import RetrievalTask
from xalign_ray.tasks.scores import Score, average_languages, write_scores
from xalign_ray.tasks.task import LAST, right_key, write_rows
from xalign_ray.track.destinations import open_command, resolve_uri, runs_page
from xalign_ray.work.artifacts import finished_run, hash_value, read_json, whole_manifest, write_json
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import fetch_checkpoint, local_folder
from xalign_ray.work.run_folder import CARD, EVALUATION, EXPORT, PREDICTIONS, SCORES, RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import quoted, shown_path

METRIC_OF = {"retrieval": "retrieval_accuracy", "retrieval_csls": "retrieval_accuracy_csls"}
TestAndKept = tuple[Sequence[SentenceSet], Sequence[SentenceSet]]
TEST = "test"  # the split of a run's own test, and the name of its evaluation


def compare_run(continuation: Continuation, run: Path, trust: bool = False) -> None:
    """Compares a run with its base, unless that is done.

    The kept files that were named once are part of the run: a later command without `keep` leaves them, and another
    margin changes verdicts alone. With `lose_at_most` the export is replaced by a mixture (see `continuing/bound.py`),
    and scores of the one before are removed.
    """
    before, lines = read_continued(run), continuation.lines
    if before is None or (lines.keep and not _is_of(before, lines, run)):
        _compare(continuation, run, trust)
    elif before.margin != lines.margin:
        path = RunFolder(run).comparison
        comparison = json.loads(path.read_text(encoding="utf-8"))
        for row in comparison["rows"]:
            row["verdict"] = verdict_of(row["measure"], row["low"], row["high"], lines.margin)
        named = {"keep": tuple(before.keep), "lose_at_most": (before.bound or {}).get("lose_at_most")}
        command = lines.model_copy(update=named).command
        with open_job(run, "comparison"):
            write_json(path, comparison | {"margin": lines.margin, "command": command})


def _is_of(before: Continued, lines: FiveLines, run: Path) -> bool:
    """Whether a comparison is of these kept files and this bound, and of the export that lies in the run."""
    bound, export = before.bound or {}, whole_manifest(RunFolder(run).export) or {}
    share = bound.get("share", 1.0)
    return (
        before.keep == [*lines.keep]
        and bound.get("lose_at_most") == lines.lose_at_most
        and export.get("merge", 1.0) == share
    )


def halves(sets: TestAndKept, number: int) -> TestAndKept:
    """Every second sentence of the test and of each kept set, from `number` (0 or 1) on."""
    of_test, of_kept = ([measured.half(number) for measured in part] for part in sets)
    return of_test, of_kept


def _export_within(
    continuation: Continuation, run: Path, old: SentenceScores, sets: TestAndKept, trust: bool
) -> dict[str, Any] | None:
    """Exports the mixture of trained weights and base that gains most within the bound; None where there is none."""
    lines, folder = continuation.lines, RunFolder(run)
    replaced = "merge" in (whole_manifest(folder.export) or {})
    if lines.lose_at_most is None and not replaced:
        return None
    with open_job(run, "export"):
        recipe, fingerprint = open_saved(run)
        prepared, facts = open_data(run), {"fingerprint": fingerprint}
        fetch_checkpoint(run)

        def replace_export(share: float | None) -> None:
            # These are of the old one, and a kill comes at any time.
            folder.comparison.unlink(missing_ok=True)
            if (run / EVALUATION).is_dir():
                say(f"{shown_path(run / EVALUATION)} is removed: its scores are of the export that is replaced.")
                shutil.rmtree(run / EVALUATION)
            export_run(recipe, prepared, run, facts, trust=trust, merge=share)

        if lines.lose_at_most is None:
            return replace_export(None)
        for left in run.glob(".mixture-*"):  # of a command that was killed
            shutil.rmtree(left)
        margin = lines.lose_at_most

        def score(share: float) -> BaseComparison:
            say(f"Merging {100 * share:g}% of the trained weights with {100 - 100 * share:g}% of {old.encoder}.")
            with tempfile.TemporaryDirectory(prefix=".mixture-", dir=run) as out:
                mixture = export_run(recipe, prepared, run, facts, None, Path(out) / EXPORT, trust, merge=share)
                return compare_with_base(old, str(mixture), *sets, recipe.config.languages, margin=margin)

        chosen = find_mixture(score, margin)
        if replaced or chosen["share"] < 1:
            replace_export(chosen["share"])
        return chosen


def _compare(continuation: Continuation, run: Path, trust: bool) -> None:
    base, config = open_saved(run)[0].config.model.init_from, continuation.recipe.config
    lines, data = continuation.lines, continuation.data
    assert base is not None, "a continued run begins from an encoder"
    say(f"Comparing {shown_path(run)} with {base} on the test.")
    folder, tests = RunFolder(run), read_tests(run)
    if not tests and (config.data.tests or (config.data.parallel and config.data.test_fraction)):
        again = f"xalign prepare {quoted(folder.config)}"
        raise DataError(f"The data that {shown_path(run)} was trained on are gone, and its test. {again} makes both.")
    is_search = any(getattr(rows, "key_prompt", None) is not None for rows in config.streams)
    of_test = [PairSet.of(pairs, is_kept=False, is_search=is_search) for pairs in tests]
    sets, old = (of_test, data.kept), SentenceScores(base)
    bound = _export_within(continuation, run, old, halves(sets, 0), trust)
    if bound:
        sets = halves(sets, 1)
    comparison = compare_with_base(old, str(folder.export), *sets, config.languages, margin=lines.margin)
    log, prices = read_log(folder.events), list(read_prices(lines.price).values())
    during = log.points.loc[(log.points.series == RETRIEVAL) & (log.points.language != "")].sort_values("step")
    facts = {
        "base": base,
        "run": run.name,
        "steps": (finished_run(run) or {}).get("steps", config.train.max_steps),
        "seconds": log.seconds,
        "device_hours": log.seconds * config.parallel.workers / 3600,
        "price": prices[0] if len(prices) == 1 else None,
        "methods": [continuation.tree["extends"].removeprefix("continue/")],
        "keep": [*lines.keep],
        "margin": lines.margin,
        "bound": bound,
        "command": lines.command,
        "during": {language: points.value.tolist() for language, points in during.groupby("language", sort=False)},
    }
    with open_job(run, "comparison"):
        write_evaluations(run, comparison.changes, base)
        write_comparison(folder.comparison, comparison, facts)


def write_comparison(path: Path, comparison: BaseComparison, facts: Mapping[str, Any]) -> None:
    """Writes comparison.json.

    Args:
        facts: of the run, as `results.continued.Continued` has them.
    """
    write_json(path, {**facts, "rows": [asdict(row) for row in comparison.rows], "notes": [*comparison.notes]})


def write_evaluations(run: Path, changes: Sequence[Change], base: str) -> None:
    """Writes the retrieval of a run and of its base as evaluations: of the test, and of each kept split.

    Beside each scores.json is what `report` pairs two encoders by: how many of a pair's sentences find each other.
    """
    export = RunFolder(run).export
    config = read_json(export / "config.json", "Export the run again.", "xalign_recipe", "xalign_fingerprint")
    facts = {key: config.get(f"xalign_{key}") for key in ("objective", "seed", "step")}
    name = f"{config['xalign_recipe'].replace('/', '-')}-{config['xalign_fingerprint'][:8]}"
    yours = {"run": name, "encoder": str(export), **facts}
    of_base = {"run": None, "encoder": base, **dict.fromkeys(facts)}
    of_pairs = [(change, change.of.pairs) for change in changes if isinstance(change.of, PairSet)]
    for number, (root, origin) in enumerate(((RunFolder(run).base, of_base), (run, yours))):
        shutil.rmtree(RunFolder(root).evaluation(TEST), ignore_errors=True)
        for split in dict.fromkeys(pairs.split for _, pairs in of_pairs):
            folder = RunFolder(root).evaluation(TEST if split == THE_TEST else f"kept-{split}")
            scores, digits = list[Score](), defaultdict[str, dict[str, str]](dict)
            for change, pairs in of_pairs:
                if pairs.split != split or not change.items:
                    continue
                values, metric = change.items[number], METRIC_OF[change.measure]
                score = Score(
                    **origin,
                    task=RetrievalTask.name,
                    split=TEST if split == THE_TEST else split,
                    language=change.of.language,
                    layer=LAST,
                    metric=metric,
                    value=float(values.mean()),
                    chance=1 / len(pairs),
                    n=len(pairs),
                    test_set=hash_value([[*texts] for texts in pairs.texts]),
                )
                scores.append(score)
                digits[score.language][right_key(metric, LAST)] = "".join(str(round(2 * value)) for value in values)
            for language, rows in digits.items():
                write_rows(folder / PREDICTIONS / f"{language}.jsonl", rows)
            write_scores(folder / SCORES, [*scores, *average_languages(scores)])


def closing_lines(run: Path) -> str:
    """The table of a compared run, and where its encoder, card, report and MLflow page are."""
    comparison = read_continued(run)
    assert comparison is not None, "a finished run has been compared"
    folder, config = RunFolder(run), open_saved(run)[0].config
    paths = {
        "encoder": shown_path(folder.export),
        "card": shown_path(folder.export / CARD),
        "report": shown_path(folder.report / PAGE),
    }
    if config.track.mlflow != "off":
        uri = resolve_uri(config.track.mlflow, local_folder(config.output))
        paths["MLflow"], _, page = open_command(uri, runs_page(uri, config.track.experiment)).partition(", then ")
        paths |= {"": page} if page else {}
    table = comparison_text(comparison, shutil.get_terminal_size().columns if sys.stdout.isatty() else 80)
    return "\n".join([table, "", *(f"{name:<8} {path}" for name, path in paths.items())])
