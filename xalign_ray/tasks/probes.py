"""Alignment score: is the nearest word of the other language a translation, in the raw input embeddings?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xalign_ray.errors import DataError
from xalign_ray.tasks.hf_encoder import AUTO, Encoder
from xalign_ray.tasks.nearest import Indices, nearest_cosine, nearest_csls, unit_rows
from xalign_ray.tasks.scores import ALL_LANGUAGES, Score, average_languages, score_by
from xalign_ray.tasks.task_files import choose_languages
from xalign_ray.tasks.word_pairs import (
    DICTIONARY_PAIRS,
    WordPair,
    WordPairs,
    read_exported_pairs,
    read_muse_pairs,
    shared_words,
)

TASK = "alignment"
LAYER = "embedding_table"
RANDOM_PAIRS = 10_000


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words of one language that have a vector.

    Attributes:
        words: `N` distinct words, sorted.
        vectors: `[N, D]`, the language's vector added.
        row: where each word stands.
    """

    words: tuple[str, ...]
    vectors: NDArray[np.float32]
    row: Mapping[str, int]


def evaluate_alignment(
    encoder_folder: str,
    data: Path | None = None,
    languages: Sequence[str] | None = None,
    batch_size: int = 64,  # noqa: ARG001 - the signature of every task; nothing is batched here
    device: str = AUTO,
) -> list[Score]:
    """Precision@1 of word translation by cosine and CSLS, on trained, held-out and untrained pairs; the
    collapse monitor.

    For each source word (English where the pair has it) the nearest among all distinct words of the target language in
    the dictionary, all pairs together; it is right if it is any of the word's translations in the same part.
    A word's vector is the mean of its pieces' raw embedding rows, plus the language's vector in models
    with language embeddings, as ALIGN-MLM's authors do; that moves all candidates alike. A source word without any
    known piece counts as wrong, so that n does not depend on the encoder. Source words that are their own translation
    (names, loans: 39 % of MUSE's en-de test words) are not asked, because both sides are one row of the table in every
    encoder, untrained ones too; they stay candidates. Chance is the mean share of candidates that are right.

    `mean_cosine_random` is the mean cosine of random pairs of embedding rows: near 1 means that the table collapsed,
    which the alignment loss has no term against.

    Args:
        encoder_folder: folder or hub id.
        data: a MUSE file or a folder of them; None scores the pairs that the run itself wrote beside its export. With
            files, each pair is labelled by its languages and source word: trained; held out, if training had a
            dictionary of these languages but neither word in any (pairs of which it saw one are not asked); untrained,
            if training had dictionaries, but none of these languages. All pairs are held out of an encoder whose run
            had no dictionary.
        languages: target languages; all that are found if None.
        batch_size: unused.
        device: a torch device; "auto" is the GPU where there is one.

    Raises:
        DataError: no dictionary, a malformed line, a language that the encoder has no embedding for.
    """
    encoder = Encoder.open(encoder_folder, device)
    pairs = _read_pairs(Path(encoder_folder), data)
    both = pairs.all
    targets = {pair.target_language for pair in both}
    chosen = choose_languages(targets, languages, data or Path(encoder_folder) / DICTIONARY_PAIRS)
    encoder.inputs.check_languages(
        {*chosen, *(pair.source_language for pair in both if pair.target_language in chosen)}
    )
    scores = list(_score_pairs(encoder, pairs, chosen))
    return [*scores, *average_languages(scores), mean_cosine_random(encoder)]


def translation_precision(nearest: Sequence[str | None], golds: Sequence[frozenset[str]]) -> float:
    """Share of words whose nearest candidate is one of their translations; None is never right."""
    return sum(word in gold for word, gold in zip(nearest, golds, strict=True)) / len(golds)


def mean_cosine_random(encoder: Encoder) -> Score:
    """Mean cosine of 10,000 pairs of different rows of the embedding table, special tokens left out; always the same
    pairs."""
    table = encoder.embedding_table()
    tokenizer = encoder.inputs.tokenizer
    ordinary = np.setdiff1d(np.arange(len(table)), tokenizer.all_special_ids)
    if len(ordinary) < 2:
        raise DataError(f"{encoder.inputs.encoder} has {len(ordinary)} tokens that are not special; two are needed.")
    rng = np.random.default_rng(0)
    left = rng.integers(len(ordinary), size=RANDOM_PAIRS)
    right = (left + rng.integers(1, len(ordinary), size=RANDOM_PAIRS)) % len(ordinary)
    rows = unit_rows(table[ordinary])
    return score_by(
        encoder.origin,
        task=TASK,
        split="vocabulary",
        language=ALL_LANGUAGES,
        layer=LAYER,
        pooling=None,
        metric="mean_cosine_random",
        value=float((rows[left] * rows[right]).sum(axis=1).mean()),
        chance=None,
        n=RANDOM_PAIRS,
    )


def _read_pairs(folder: Path, data: Path | None) -> WordPairs:
    if data is None:
        return read_exported_pairs(folder)
    trained = read_exported_pairs(folder).trained if (folder / DICTIONARY_PAIRS).is_file() else ()
    return read_muse_pairs(data, trained)


def _score_pairs(encoder: Encoder, pairs: WordPairs, chosen: Sequence[str]) -> Iterator[Score]:
    both = pairs.all
    shared = shared_words(both)
    names = sorted({(pair.source_language, pair.target_language) for pair in both if pair.target_language in chosen})
    lexicons = {code: _lexicon(encoder, both, code) for code in sorted({code for name in names for code in name})}
    for source, target in names:
        for metric, part in (
            ("alignment_trained", pairs.trained),
            ("alignment_heldout", pairs.held_out),
            ("alignment_untrained", pairs.untrained),
        ):
            asked = [
                pair
                for pair in part
                if (pair.source_language, pair.target_language) == (source, target)
                and (source, target, pair.source) not in shared
            ]
            if not asked:
                continue
            values, chance, n = _score_part(asked, lexicons[source], lexicons[target])
            for suffix, value in values.items():
                yield score_by(
                    encoder.origin,
                    task=TASK,
                    split=pairs.split,
                    language=f"{source}-{target}",
                    layer=LAYER,
                    pooling="mean",
                    metric=metric + suffix,
                    value=value,
                    chance=chance,
                    n=n,
                )


def _score_part(asked: Iterable[WordPair], source: Lexicon, target: Lexicon) -> tuple[dict[str, float], float, int]:
    """Values by metric suffix, chance and number of source words."""
    translations: dict[str, set[str]] = {}
    for pair in asked:
        translations.setdefault(pair.source, set()).add(pair.target)
    golds = [frozenset(translations[word]) for word in sorted(translations)]
    rows = [source.row.get(word) for word in sorted(translations)]
    known = [row for row in rows if row is not None]
    if not known or not target.words:
        return {"": 0.0, "_csls": 0.0}, 0.0, len(golds)
    queries = source.vectors[known]
    found = {
        "": nearest_cosine(queries, target.vectors),
        "_csls": nearest_csls(queries, target.vectors, source.vectors),
    }
    right = [sum(word in target.row for word in gold) for gold, row in zip(golds, rows, strict=True) if row is not None]
    return (
        {suffix: translation_precision(_words(rows, indices, target), golds) for suffix, indices in found.items()},
        sum(right) / len(target.words) / len(golds),
        len(golds),
    )


def _words(rows: Sequence[int | None], nearest: Indices, target: Lexicon) -> list[str | None]:
    """The nearest words put back to the source words that had a vector, None for the others."""
    found = iter(nearest)
    return [None if row is None else target.words[next(found)] for row in rows]


def _lexicon(encoder: Encoder, pairs: Iterable[WordPair], language: str) -> Lexicon:
    both = [word for pair in pairs for word in _words_of(pair)]
    words = sorted({word for code, word in both if code == language})
    vectors = encoder.word_vectors(words)
    known = np.flatnonzero(vectors.any(axis=1))
    kept = tuple(words[index] for index in known)
    shifted = vectors[known] + encoder.language_vector(language)
    return Lexicon(kept, shifted, {word: row for row, word in enumerate(kept)})


def _words_of(pair: WordPair) -> tuple[tuple[str, str], tuple[str, str]]:
    return (pair.source_language, pair.source), (pair.target_language, pair.target)
