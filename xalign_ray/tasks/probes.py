"""Alignment score: is the nearest word of the other language a translation, in the raw input embeddings?"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xalign_ray.errors import DataError
from xalign_ray.models.nearest import Vectors, nearest_cosine, nearest_csls, unit_rows
from xalign_ray.models.open import open_encoder
from xalign_ray.sources.language_id import codes_in_name
from xalign_ray.sources.records import list_reasons
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score, average_languages
from xalign_ray.tasks.task import COSINE, ENGLISH, Measure, Metric, Task, right_key, right_ones, write_rows
from xalign_ray.tasks.task_files import choose_languages, read_entries
from xalign_ray.vocabulary.dictionary import look_up_form
from xalign_ray.work.artifacts import hash_value
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder


# The dictionary pairs that the alignment probe scores: of a run, or of a dictionary in any form.

DICTIONARY_PAIRS = "dictionary_pairs.json"
TRAINED, HELD_OUT, UNTRAINED, DROPPED = "trained", "heldout", "untrained", "dropped"


@dataclass(frozen=True, slots=True)
class WordPair:
    """A word and one of its translations; `source_language` is English where either side is.

    Attributes:
        part: what training saw of it: TRAINED, a dictionary has the source word in these two languages; HELD_OUT, it
            had a dictionary of these two languages, and neither word in any; UNTRAINED, it had dictionaries, but none
            of these two languages; DROPPED, it saw one of the words in another pair: asked only among all pairs.
    """

    source_language: str
    source: str
    target_language: str
    target: str
    part: str = HELD_OUT

    @property
    def languages(self) -> tuple[str, str]:
        return self.source_language, self.target_language

    @property
    def words(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.source_language, self.source), (self.target_language, self.target)


def read_exported_pairs(folder: Path) -> list[WordPair]:
    """The pairs of the run that an export folder comes from, trained and held out."""
    path = folder / DICTIONARY_PAIRS
    if not path.is_file():
        raise DataError(f"{path} is missing: this encoder's run had no dictionary. Give one with --data.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        parts = {TRAINED: content["trained"], HELD_OUT: content["held_out"]}
        return [
            replace(_from_english(pair[:2], pair[2:]), part=part) for part, pairs in parts.items() for pair in pairs
        ]
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); export the run again.") from error


def read_word_pairs(data: Path, trained: Sequence[WordPair]) -> list[WordPair]:
    """The pairs of a dictionary, each with what training saw of it.

    Args:
        data: the folder of a run or of its export, whose held-out and trained pairs are taken as that run had them; a
            folder of MUSE files `<xx>-<yy>.txt` (not of their splits such as en-de.0-5000.txt); or a dictionary in any
            form whose name has its languages, such as `en-de.5000-6500.txt` and `terms.en-de.tsv`.
        trained: the pairs that the encoder was trained on. A pair that another run held out is not held out of this
            encoder if it saw one of the words; where an encoder has no trained pairs, all are held out.

    Raises:
        DataError: no such files; a line of a MUSE file that is not two words (named by file and line).
    """
    trained_languages = {pair.languages for pair in trained}
    sources = {(pair.languages, look_up_form(pair.source, pair.source_language)) for pair in trained}
    seen = {word for pair in trained for word in _look_up_words(pair)}

    def part_of(pair: WordPair) -> str:
        if (pair.languages, look_up_form(pair.source, pair.source_language)) in sources:
            return TRAINED
        # As prepare drops them: a pair that is scored as held out was never trained.
        return DROPPED if seen.intersection(_look_up_words(pair)) else HELD_OUT

    if export := find_export(data):
        pairs = read_exported_pairs(export)
        return [replace(pair, part=part_of(pair)) if pair.part == HELD_OUT else pair for pair in pairs]
    pairs = [pair for path in _dictionary_files(data) for pair in _read_dictionary(path)]
    is_untrained = {pair.languages: bool(trained) and pair.languages not in trained_languages for pair in pairs}
    return [replace(pair, part=UNTRAINED if is_untrained[pair.languages] else part_of(pair)) for pair in pairs]


def find_export(data: Path) -> Path | None:
    """The folder of a run's own pairs, if `data` is a run, its export, or the file of the pairs."""
    folders = (data, RunFolder(data).export, *([data.parent] if data.name == DICTIONARY_PAIRS else []))
    return next((folder for folder in folders if (folder / DICTIONARY_PAIRS).is_file()), None)


def _look_up_words(pair: WordPair) -> list[tuple[str, str]]:
    return [(language, look_up_form(word, language)) for language, word in pair.words]


def _dictionary_files(data: Path) -> list[Path]:
    if data.is_dir():
        if files := [path for path in sorted(data.iterdir()) if _is_muse(path)]:
            return files
        raise DataError(
            f"{data} holds no dictionary. Name a file, a folder of MUSE files such as en-de.txt, or a run that was "
            "trained with a dictionary."
        )
    if not data.is_file() or len(codes_in_name(str(data))) != 2:
        raise DataError(f"{data}: its name does not have its two languages. Call it en-de.txt, terms.en-de.tsv or so.")
    return [data]


def _is_muse(path: Path) -> bool:
    """`en-de.txt`, without the parts of it in MUSE's folder."""
    return path.suffix in (".txt", ".tsv") and "." not in path.stem and len(codes_in_name(path.name)) == 2


def _read_dictionary(path: Path) -> list[WordPair]:
    from xalign_ray.sources.formats import NOTED

    left_out: Counter[str] = Counter()
    entries = [*read_entries(path, left_out)]
    counts = Counter({reason: count for reason, count in left_out.items() if not reason.startswith(NOTED)})
    say(f"{path}: {len(entries):,} entries" + (f"; set aside: {list_reasons(counts)}" if counts else ""))
    return [_from_english(*zip(entry.languages, entry.words, strict=True)) for entry in entries]


def _from_english(first: tuple[str, str], second: tuple[str, str]) -> WordPair:
    """A pair of (language, word), from English where either is."""
    return WordPair(*second, *first) if second[0] == ENGLISH else WordPair(*first, *second)


LAYER = "embedding_table"
RANDOM_PAIRS = 10_000
ALL = "all"  # the same words for every encoder, whatever its training saw of them
_PARTS = {
    HELD_OUT: ("held-out pairs", "dictionary pairs that training never saw"),
    TRAINED: ("trained pairs", "dictionary pairs of training"),
    UNTRAINED: (
        "languages without a trained dictionary", "pairs of languages of which training had no dictionary",
    ),
    ALL: ("all pairs", "all dictionary pairs, whatever training saw of them, as ALIGN-MLM scores its types"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of one language that have a vector, sorted: their rows in `[N, D]`, the language's vector added."""

    row: Mapping[str, int]
    vectors: Vectors


class AlignmentTask(Task):
    """Precision@1 of word translation by cosine and CSLS, on trained, held-out, all and untrained pairs; the collapse
    monitor.

    For each source word (English where the pair has it) the nearest among all distinct words of the target language in
    the dictionary, all pairs together; it is right if it is any of the word's translations in the same part.
    A word's vector is the mean of its pieces' raw embedding rows, plus the language's vector in models
    with language embeddings, as ALIGN-MLM's authors do; that moves all candidates alike. A source word without any
    known piece counts as wrong, so that n does not depend on the encoder. Source words that are their own translation
    (names, loans: 39 % of MUSE's en-de test words) are not asked, because both sides are one row of the table in every
    encoder, untrained ones too; they stay candidates. Chance is the mean share of candidates that are right.

    `mean_cosine_random` is the mean cosine of random pairs of embedding rows: near 1 means that the table collapsed,
    which the alignment loss has no term against.

    Its data is a dictionary in any form, a folder of MUSE files, or a run or its export, whose held-out and trained
    pairs are then asked of any encoder; None scores the pairs that the run itself wrote beside its export.
    Languages to score are the target languages.
    """

    name = "alignment"
    needs_data = False
    keeps_predictions = True
    metrics = (
        *(
            Metric(
                f"alignment_{part}{suffix}",
                f"Word translation, {title}{', CSLS' if suffix else ''}",
                "the same by CSLS" if suffix else f"precision@1 by cosine over {meaning}",
            )
            for part, (title, meaning) in _PARTS.items()
            for suffix in ("", "_csls")
        ),
        Metric(
            "mean_cosine_random",
            "Mean cosine of random words",
            "mean cosine of random rows: near 1 means that the embeddings have collapsed",
            COSINE,
            higher_is_better=None,
        ),
    )

    def check_data(self, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:
        """Reads the dictionaries."""
        pairs = read_word_pairs(data, [])
        chosen = choose_languages({pair.target_language for pair in pairs}, languages, data)
        return {code for pair in pairs if pair.target_language in chosen for code in pair.languages}

    def evaluate(
        self,
        encoder: str,
        data: Path | None,
        languages: Sequence[str] | None = None,
        device: str = "auto",
        predictions: Path | None = None,
    ) -> list[Score]:
        """See `Task.evaluate`; into the folder `predictions` goes which words found a translation."""
        from xalign_ray.models.inference import Encoder

        opened, exported = Encoder.open(open_encoder(encoder), device), Path(encoder) / DICTIONARY_PAIRS
        pairs = read_exported_pairs(exported.parent) if data is None or exported.is_file() else []
        if data is not None:
            pairs = read_word_pairs(data, [pair for pair in pairs if pair.part == TRAINED])
        chosen = choose_languages({pair.target_language for pair in pairs}, languages, data or exported)
        asked = {code for pair in pairs if pair.target_language in chosen for code in pair.languages}
        opened.inputs.check_languages(asked)
        split = "dictionary" if data is None or find_export(data) else data.stem
        scores = list(self._score_pairs(opened, pairs, chosen, split, predictions))
        collapse = Measure(mean_cosine_random(opened), None, RANDOM_PAIRS)
        monitor = self.score_of(opened, "vocabulary", ALL_LANGUAGES, "mean_cosine_random", collapse, layer=LAYER)
        return [*scores, *average_languages(scores), monitor]

    def _score_pairs(
        self, encoder: Encoder, pairs: Sequence[WordPair], chosen: Sequence[str], split: str, predictions: Path | None
    ) -> Iterator[Score]:
        shared = {(pair.languages, pair.source) for pair in pairs if pair.source.casefold() == pair.target.casefold()}
        golds: dict[tuple[str, str], dict[str, dict[str, set[str]]]] = defaultdict(lambda: defaultdict(dict))
        for pair in pairs:
            if pair.target_language in chosen and (pair.languages, pair.source) not in shared:
                for part in (pair.part, ALL):
                    golds[pair.languages][part].setdefault(pair.source, set()).add(pair.target)
        lexicons = {code: _lexicon(encoder, pairs, code) for code in {code for names in golds for code in names}}
        kept_words: dict[str, dict[str, str]] = defaultdict(dict)
        for source, target in sorted(golds):
            pair, of = f"{source}-{target}", (lexicons[source], lexicons[target])
            nearest = nearest_words(golds[source, target][ALL], *of, str(encoder.model.device))
            for part in _PARTS:
                if asked := golds[source, target].get(part):
                    questions = hash_value({word: sorted(golds) for word, golds in asked.items()})
                    hits, chance = found_translations(asked, nearest, lexicons[target])
                    for suffix, right in hits.items():
                        name = f"alignment_{part}{suffix}"
                        measure = Measure(sum(right) / len(right), chance, len(right))
                        kept_words[pair][right_key(name, LAYER)] = right_ones(right)
                        where = {"layer": LAYER, "pooling": "mean", "test_set": questions}
                        yield self.score_of(encoder, split, pair, name, measure, **where)
        if predictions:
            for pair, rows in kept_words.items():
                write_rows(predictions / f"{pair}.jsonl", rows)


def nearest_words(
    words: Collection[str], source: Lexicon, target: Lexicon, device: str = "cpu"
) -> dict[str, dict[str, str]]:
    """The nearest target word of each source word that has a vector, by metric suffix."""
    asked, candidates = sorted(source.row.keys() & words), list(target.row)
    if not asked or not candidates:
        return {"": {}, "_csls": {}}
    queries = source.vectors[[source.row[word] for word in asked]]
    nearest = {
        "": nearest_cosine(queries, target.vectors, device),
        "_csls": nearest_csls(queries, target.vectors, source.vectors, device=device),
    }
    return {
        suffix: {word: candidates[row] for word, row in zip(asked, rows, strict=True)}
        for suffix, rows in nearest.items()
    }


def found_translations(
    golds: Mapping[str, set[str]], nearest: Mapping[str, Mapping[str, str]], target: Lexicon
) -> tuple[dict[str, list[bool]], float]:
    """Of each source word, in order, whether its nearest target word is a translation, by metric suffix; and chance."""
    right = sum(len(golds_of_word & target.row.keys()) for word, golds_of_word in golds.items() if word in nearest[""])
    hits = {
        suffix: [golds_of_word.get(word) in golds[word] for word in sorted(golds)]
        for suffix, golds_of_word in nearest.items()
    }
    return hits, right / max(len(target.row), 1) / len(golds)


def mean_cosine_random(encoder: Encoder) -> float:
    """That of 10,000 pairs of different rows of the embedding table, special tokens left out; always the same pairs."""
    table = encoder.embedding_table()
    ordinary = np.setdiff1d(np.arange(len(table)), encoder.inputs.tokenizer.all_special_ids)
    if len(ordinary) < 2:
        raise DataError(f"{encoder.inputs.encoder} has {len(ordinary)} tokens that are not special; two are needed.")
    rng = np.random.default_rng(0)
    left = rng.integers(len(ordinary), size=RANDOM_PAIRS)
    right = (left + rng.integers(1, len(ordinary), size=RANDOM_PAIRS)) % len(ordinary)
    rows = unit_rows(table[ordinary])
    return float((rows[left] * rows[right]).sum(axis=1).mean())


def _lexicon(encoder: Encoder, pairs: Sequence[WordPair], language: str) -> Lexicon:
    words = sorted({word for pair in pairs for code, word in pair.words if code == language})
    vectors = encoder.word_vectors(words)
    nonzero = np.flatnonzero(vectors.any(axis=1))
    return Lexicon(
        {words[index]: row for row, index in enumerate(nonzero)}, vectors[nonzero] + encoder.language_vector(language)
    )


ALIGNMENT = AlignmentTask()
