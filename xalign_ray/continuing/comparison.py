"""Compares an encoder with the one that it was continued from, on the same sentences: scores and comparison.json.

A row is a measure in a language. `retrieval` is the share of pairs whose sentences find each other by cosine, the mean
of both directions; `retrieval_csls` is the same by CSLS; `mlm_loss` is in nats a masked token; `drift` is 1 - the mean
cosine of a sentence's vector with the base's vector of it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.language_codes import ENGLISH, name_of_pair
from xalign_ray.config.saved import open_saved
from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.continuing.recipe import ROOT, THE_TEST, Continuation, as_sentences, read_tests, read_text
from xalign_ray.continuing.sentence_scores import Numbers, SentenceScores, Text
from xalign_ray.errors import DataError
from xalign_ray.models.nearest import find_translations, thin, unit_rows
from xalign_ray.planning.estimate import read_prices
from xalign_ray.results.continued import comparison_text, read_continued
from xalign_ray.results.difference import MeanEstimate, accuracy_gain, holm_intervals, ratio
from xalign_ray.results.page import PAGE
from xalign_ray.results.run import RETRIEVAL, read_log
from xalign_ray.tasks.retrieval import MAX_PAIRS, RetrievalTask, TranslatedSentences
from xalign_ray.tasks.scores import Score, average_languages, write_scores
from xalign_ray.tasks.task import LAST, right_key, write_rows
from xalign_ray.track.destinations import open_command, resolve_uri, runs_page
from xalign_ray.work.artifacts import finished_run, hash_value, read_json, write_json
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import local_folder
from xalign_ray.work.run_folder import CARD, PREDICTIONS, SCORES, RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import quoted, shown_path

NOTHING_KEPT = (
    "Nothing says what was forgotten: no pairs or text of languages that were not trained were kept out. "
    "Name some with --keep."
)
MEASURES = {
    "retrieval": "translations found by cosine, mean of both directions",
    "retrieval_csls": "translations found by CSLS, mean of both directions",
    "mlm_loss": "masked-LM loss, nats a masked token; lower is better",
    "drift": "1 - mean cosine of the sentence vectors with the base's; has no verdict",
}
METRIC_OF = {"retrieval": "retrieval_accuracy", "retrieval_csls": "retrieval_accuracy_csls"}
_TEST = "test"  # the split of a run's own test, and the name of its evaluation
Verdict = Literal["gained", "kept", "lost", "unclear"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measure in one language.

    Attributes:
        measure: one of `MEASURES`.
        language: a code; of pairs that have no English sentence, both codes, such as "de-fr".
        trained: whether the run was trained on it.
        base, yours: the value of each encoder.
        difference: yours - base.
        low, high: its 95 % interval over sentences, which allows for all rows of the measure; null of fewer than two.
        verdict: as `verdict_of` reads it off the interval; null of drift.
        detectable: the smallest difference that these sentences could have shown: half of the interval's width.
        count: pairs or sentences.
        split: the file or folder that they are from.
    """

    measure: str
    language: str
    trained: bool
    base: float
    yours: float
    difference: float
    low: float | None = None
    high: float | None = None
    verdict: Verdict | None = None
    detectable: float | None = None
    count: int
    split: str


@dataclass(frozen=True)
class PairScores:
    """What one measure of retrieval is of both encoders: per pair of sentences 0, 0.5 or 1, `[N]` each."""

    measure: str
    pairs: TranslatedSentences
    base: NDArray[np.float64]
    yours: NDArray[np.float64]


@dataclass(frozen=True)
class BaseComparison:
    """All rows, sentences on what is not in them, and the scores of each pair of the tests and of what was kept."""

    rows: Sequence[Row]
    notes: Sequence[str]
    of_pairs: Sequence[PairScores] = ()


def compare_with_base(
    base: str,
    trained: str,
    tests: Sequence[TranslatedSentences],
    kept: Sequence[TranslatedSentences] = (),
    texts: Sequence[Kept] = (),
    trained_languages: Collection[str] | None = None,
    cache: Path | None = None,
    device: str = "auto",
    margin: float = 1.0,
) -> BaseComparison:
    """Scores both encoders, each opened once at most, on the same sentences.

    Args:
        base: folder or hub id of the encoder that was continued.
        trained: folder or hub id of what became of it.
        tests: pairs that were held out of training.
        kept: pairs of languages that must not get worse.
        texts: sentences of languages that must not get worse.
        trained_languages: those of the run. What is in these alone counts as trained; if None, `tests` do.
        cache: folder where the base's numbers are kept, for the next comparison with it.
        device: a torch device; "auto" is the GPU where there is one.
        margin: the loss, in points, below which something is kept; of a masked-LM loss in hundredths of a nat.

    Raises:
        DataError: an encoder cannot be opened, or yields values that are not finite.
    """
    from xalign_ray.models.inference import pick_device

    old = SentenceScores(base, None, cache, device)
    new = SentenceScores(trained, old.rule, None, device)
    tests, kept = [pairs.thinned() for pairs in tests], [pairs.thinned() for pairs in kept]
    forgotten = [*map(Kept.of_pairs, kept), *texts]
    vectors = _Vectors.of(old, new, [*tests, *kept], forgotten)
    rows, of_pairs = list[_Estimated](), list[PairScores]()
    for pairs, is_test in [*((pairs, True) for pairs in tests), *((pairs, False) for pairs in kept)]:
        is_trained = is_test if trained_languages is None else set(pairs.languages) <= {*trained_languages}
        say(f"Comparing {len(pairs):,} pairs of {pairs.split} ({name_of_pair(*pairs.languages)}).")
        found = [*_scores_of_pairs(pairs, vectors, str(pick_device(device)))]
        rows += [_retrieval_row(one, is_trained) for one in found]
        of_pairs += found
    known = {*(trained_languages or ())}
    rows += [_drift_row(sentences, vectors, known) for sentences in forgotten]
    notes = [] if forgotten else [NOTHING_KEPT]
    if forgotten and (why := _why_no_losses(old, new)):
        notes = [f"There is no masked-LM loss of what was kept: {why}."]
    elif forgotten:
        say(f"Comparing masked-LM losses of {len(forgotten)} kept files or pairs of languages.")
        rows += [_loss_row(sentences, old, new, known) for sentences in forgotten]
    notes = [f"Sentence vectors: {old.rule.words}.", *notes]
    return BaseComparison([*_judged(rows, margin)], notes, of_pairs)


def write_comparison(path: Path, found: BaseComparison, facts: Mapping[str, Any]) -> None:
    """Writes comparison.json.

    Args:
        facts: of the run, as `results.continued.Continued` has them.
    """
    write_json(path, {**facts, "rows": [asdict(row) for row in found.rows], "notes": [*found.notes]})


@dataclass(frozen=True)
class Kept:
    """What drift and the masked-LM loss of a language are measured on."""

    language: str
    texts: Sequence[Text]
    split: str

    def __len__(self) -> int:
        return len(self.texts)

    def are_in(self, languages: Collection[str]) -> bool:
        """Whether all are in one of these languages."""
        return {language for _, language in self.texts} <= {*languages}

    @classmethod
    def of_pairs(cls, pairs: TranslatedSentences) -> Kept:
        """Those that are not English; all if none is."""
        name = name_of_pair(*pairs.languages)
        asked = [code for code in pairs.languages if code != ENGLISH] or pairs.languages
        return cls(name, [text for side in _sides(pairs) for text in side if text[1] in asked], pairs.split)

    @classmethod
    def of_text(cls, language: str, sentences: Sequence[str], split: str) -> Kept:
        """At most MAX_PAIRS, evenly spaced."""
        chosen = [(sentences[index], language) for index in thin(len(sentences), MAX_PAIRS)]
        return cls(language, chosen, split)


@dataclass(frozen=True)
class _Vectors:
    """The vectors of both encoders, a row for each distinct text."""

    index: Mapping[Text, int]
    base: Numbers
    yours: Numbers

    @classmethod
    def of(
        cls,
        old: SentenceScores,
        new: SentenceScores,
        pairs: Sequence[TranslatedSentences],
        sentences: Sequence[Kept],
    ) -> _Vectors:
        """Encodes each distinct text once with each encoder: English sentences stand in the pairs of many languages."""
        texts = [side for one in pairs for side in _sides(one)] + [one.texts for one in sentences]
        distinct = [*dict.fromkeys(chain.from_iterable(texts))]
        say(f"Comparing {len(distinct):,} sentences: vectors of {old.encoder}, then of {new.encoder}.")
        index = {text: number for number, text in enumerate(distinct)}
        return cls(index, old.vectors(distinct), new.vectors(distinct))

    def take(self, texts: Sequence[Text]) -> tuple[Numbers, Numbers]:
        """Those of some texts, of the base and of yours: `[N, D]` each."""
        rows = [self.index[text] for text in texts]
        return self.base[rows], self.yours[rows]


def _sides(pairs: TranslatedSentences) -> list[Sequence[Text]]:
    return [[(text, code) for text in texts] for code, texts in zip(pairs.languages, pairs.texts, strict=True)]


_Estimated = tuple[Row, MeanEstimate | None]


def _scores_of_pairs(pairs: TranslatedSentences, vectors: _Vectors, device: str) -> Iterator[PairScores]:
    first, second = map(vectors.take, _sides(pairs))
    for measure, csls in (("retrieval", False), ("retrieval_csls", True)):
        base, yours = (
            find_translations(*both, pairs.numbers, csls=csls, device=device)
            for both in zip(first, second, strict=True)
        )
        yield PairScores(measure, pairs, base, yours)


def _retrieval_row(found: PairScores, is_trained: bool) -> _Estimated:
    language = name_of_pair(*found.pairs.languages)
    row = _row(found.measure, language, is_trained, found.base.mean(), found.yours.mean(), found.pairs)
    return row, accuracy_gain(found.base, found.yours)


def _drift_row(sentences: Kept, vectors: _Vectors, trained: Collection[str]) -> _Estimated:
    base, yours = map(unit_rows, vectors.take(sentences.texts))
    drift = 1 - (base.astype(np.float64) * yours).sum(axis=1)
    return _row("drift", sentences.language, sentences.are_in(trained), 0.0, drift.mean(), sentences), ratio(drift)


def _loss_row(sentences: Kept, old: SentenceScores, new: SentenceScores, trained: Collection[str]) -> _Estimated:
    (base, labels), (yours, _) = old.losses(sentences.texts), new.losses(sentences.texts)
    means = base.sum() / labels.sum(), yours.sum() / labels.sum()
    row = _row("mlm_loss", sentences.language, sentences.are_in(trained), *means, sentences)
    return row, ratio(yours - base, labels)


def _why_no_losses(old: SentenceScores, new: SentenceScores) -> str:
    if why := old.why_no_losses or new.why_no_losses:
        return why
    changed = "the vocabularies differ, so that the two would predict other pieces"
    return changed if old.tokenizer_hash != new.tokenizer_hash else ""


def _row(
    measure: str, language: str, is_trained: bool, base: float, yours: float, scored: TranslatedSentences | Kept
) -> Row:
    return Row(
        measure=measure,
        language=language,
        trained=is_trained,
        base=float(base),
        yours=float(yours),
        difference=float(yours - base),
        count=len(scored),
        split=scored.split,
    )


def _judged(rows: Sequence[_Estimated], margin: float) -> Iterator[Row]:
    """Gives each row its interval, which allows for all rows of the measure, and its verdict; drift has none."""
    for measure in dict.fromkeys(row.measure for row, _ in rows):
        of_measure = [(row, estimate) for row, estimate in rows if row.measure == measure]
        estimates = [estimate for _, estimate in of_measure if estimate]
        intervals = iter([drift.interval() for drift in estimates] if measure == "drift" else holm_intervals(estimates))
        for row, estimate in of_measure:
            low, high = ends = next(intervals) if estimate else (None, None)
            verdict = verdict_of(measure, *ends, margin)
            detectable = None if low is None or high is None else (high - low) / 2
            yield replace(row, low=low, high=high, verdict=verdict, detectable=detectable)


def verdict_of(measure: str, low: float | None, high: float | None, margin: float) -> Verdict | None:
    """What an interval of a difference says: "kept" where a loss of `margin` points or more is excluded, else
    "unclear"; None of drift.
    """
    if measure == "drift":
        return None
    if low is None or high is None:
        return "unclear"
    worst, best = (-high, -low) if measure == "mlm_loss" else (low, high)
    return "gained" if worst > 0 else "lost" if best < 0 else "kept" if worst > -margin / 100 else "unclear"


# The end of `xalign continue`: the comparison with the base, the report, the lines that are printed.


def closing_lines(run: Path) -> str:
    """The table, where things are, and what to do next."""
    comparison = read_continued(run)
    assert comparison is not None, "a finished run has been compared"
    folder = RunFolder(run)
    paths = {
        "encoder": shown_path(folder.export),
        "card": shown_path(folder.export / CARD),
        "report": shown_path(folder.report / PAGE),
        **_mlflow(run),
    }
    table = comparison_text(comparison, shutil.get_terminal_size().columns if sys.stdout.isatty() else 80)
    return "\n".join([table, "", *(f"{name:<8} {path}" for name, path in paths.items())])


def next_commands(run: Path) -> Sequence[str]:
    """What a user may do with the encoder."""
    export = quoted(RunFolder(run).export)
    return (
        f"xalign evaluate {export} --task retrieval --data PAIRS",
        f"xalign tune {export} --task TASK --data FOLDER",
    )


def compare_run(found: Continuation, run: Path) -> bool:
    """Compares a run with its base, unless that is done; whether it was done now.

    Files to keep that were named once are part of the run: a later command without `keep` changes nothing of them, and
    another margin changes verdicts alone.
    """
    before = read_continued(run)
    if before is None or (found.lines.keep and before.keep != [*found.lines.keep]):
        _compare(found, run)
    elif before.margin != found.lines.margin:
        _judge_again(run, found.lines.model_copy(update={"keep": tuple(before.keep)}))
    else:
        return False
    return True


def _judge_again(run: Path, lines: FiveLines) -> None:
    """Reads the verdicts off the intervals of a comparison again, by another margin."""
    path = RunFolder(run).comparison
    found = json.loads(path.read_text(encoding="utf-8"))
    for row in found["rows"]:
        row["verdict"] = verdict_of(row["measure"], row["low"], row["high"], lines.margin)
    with open_job(run, "comparison"):
        write_json(path, found | {"margin": lines.margin, "command": lines.command})


def _compare(found: Continuation, run: Path) -> None:
    base = open_saved(run)[0].config.model.init_from
    assert base is not None, "a continued run begins from an encoder"
    say(f"Comparing {shown_path(run)} with {base} on the test.")
    root, tests, data = Path(ROOT), read_tests(run), found.recipe.config.data
    if not tests and (data.tests or (data.parallel and data.test_fraction)):
        again = f"xalign prepare {quoted(RunFolder(run).config)}"
        raise DataError(f"The data that {shown_path(run)} was trained on are gone, and its test. {again} makes both.")
    comparison = compare_with_base(
        base,
        str(RunFolder(run).export),
        tests,
        as_sentences(found.kept, root),
        [Kept.of_text(one.language, [*read_text(one, root)], Path(one.paths[0]).name) for one in found.kept_text],
        found.recipe.config.languages,
        cache=Path(found.recipe.config.output) / "vectors",
        margin=found.lines.margin,
    )
    with open_job(run, "comparison"):
        write_evaluations(run, comparison.of_pairs, base)
        write_comparison(RunFolder(run).comparison, comparison, {"base": base, **_facts(found, run)})


def write_evaluations(run: Path, of_pairs: Sequence[PairScores], base: str) -> None:
    """Writes the retrieval of a run and of its base as evaluations: of the test, and of each split that was kept.

    Beside each scores.json lies what `report` pairs two encoders by: how many of a pair's sentences find each other.
    """
    own = read_json(
        RunFolder(run).export / "config.json", "Export the run again.", "xalign_recipe", "xalign_fingerprint"
    )
    known = {key: own.get(f"xalign_{key}") for key in ("objective", "seed", "step")}
    name = f"{own['xalign_recipe'].replace('/', '-')}-{own['xalign_fingerprint'][:8]}"
    origins = {
        run: {"run": name, "encoder": str(RunFolder(run).export), **known},
        RunFolder(run).base: {"run": None, "encoder": base, **dict.fromkeys(known)},
    }
    for root, origin in origins.items():
        shutil.rmtree(RunFolder(root).evaluation(_TEST), ignore_errors=True)
        for split in dict.fromkeys(one.pairs.split for one in of_pairs):
            folder = RunFolder(root).evaluation(_TEST if split == THE_TEST else f"kept-{split}")
            scores, digits = list[Score](), defaultdict[str, dict[str, str]](dict)
            for one in (one for one in of_pairs if one.pairs.split == split):
                values = one.yours if root == run else one.base
                language, metric = name_of_pair(*one.pairs.languages), METRIC_OF[one.measure]
                where = {"split": _TEST if split == THE_TEST else split, "language": language, "layer": LAST}
                facts = {"value": float(values.mean()), "chance": 1 / len(one.pairs), "n": len(one.pairs)}
                content = hash_value([[*texts] for texts in one.pairs.texts])
                scores.append(
                    Score(**origin, **where, **facts, task=RetrievalTask.name, metric=metric, test_set=content)
                )
                digits[language][right_key(metric, LAST)] = "".join(str(round(2 * value)) for value in values)
            for language, rows in digits.items():
                write_rows(folder / PREDICTIONS / f"{language}.jsonl", rows)
            write_scores(folder / SCORES, [*scores, *average_languages(scores)])


def _facts(found: Continuation, run: Path) -> Mapping[str, Any]:
    config, log = found.recipe.config, read_log(RunFolder(run).events)
    scored = log.points.loc[(log.points.series == RETRIEVAL) & (log.points.language != "")].sort_values("step")
    prices = list(read_prices(found.lines.price).values())
    return {
        "run": run.name,
        "steps": (finished_run(run) or {}).get("steps", config.train.max_steps),
        "seconds": log.seconds,
        "device_hours": log.seconds * config.parallel.workers / 3600,
        "price": prices[0] if len(prices) == 1 else None,
        "methods": [found.tree["extends"].removeprefix("continue/")],
        "keep": [*found.lines.keep],
        "margin": found.lines.margin,
        "command": found.lines.command,
        "during": {language: own.value.tolist() for language, own in scored.groupby("language", sort=False)},
    }


def _mlflow(run: Path) -> dict[str, str]:
    config = open_saved(run)[0].config
    if config.track.mlflow == "off":
        return {}
    uri = resolve_uri(config.track.mlflow, local_folder(config.output))
    command, _, page = open_command(uri, runs_page(uri, config.track.experiment)).partition(", then ")
    return {"MLflow": command, **({"": page} if page else {})}
