"""Which words a corpus aligns with each other most often, English stop words left out: a MUSE file in that order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from xalign_ray.config.schema import ParallelCorpus
from xalign_ray.data.sources.formats import read
from xalign_ray.data.sources.records import Pair
from xalign_ray.data.word_alignment.corpus import ALIGNMENT
from xalign_ray.text.blanks import split_words
from xalign_ray.text.look_up import look_up_form
from xalign_ray.work.artifacts import write_atomic

SENTENCES = 100_000  # that are counted: the first of a corpus
PAIRS = 1000  # that are written


def frequent_words(pairs: Iterable[Pair], languages: Sequence[str], count: int = PAIRS) -> list[tuple[str, str]]:
    """Aligned words in lower case, the most frequent first, each word once, of letters only.

    Left out are words that both languages spell alike, and pairs whose English word is a stop word of scikit-learn's.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counted: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        first, second = (
            [look_up_form(word, code) for word in split_words(text)]
            for text, code in zip(pair.texts, languages, strict=True)
        )
        links = (link.partition("-") for link in (pair.alignment or "").split())
        counted.update((first[int(i)], second[int(j)]) for i, _, j in links)
    found: list[tuple[str, str]] = []
    taken: set[tuple[int, str]] = set()
    for words, _ in counted.most_common():
        english = [word for word, code in zip(words, languages, strict=True) if code == "en"]
        is_word = all(map(str.isalpha, words)) and words[0] != words[1] and not ENGLISH_STOP_WORDS.intersection(english)
        if is_word and taken.isdisjoint(enumerate(words)):
            taken |= set(enumerate(words))
            found.append(words)
        if len(found) == count:
            break
    return found


def write_frequent_words(corpus: ParallelCorpus, aligned: Path) -> Path:
    """`aligned/en-de.frequent.txt`, a word and its partner a line, of the folder that `align_corpus` wrote."""
    paths = corpus.paths[:2] if corpus.format == "moses" else corpus.paths
    with (aligned / ALIGNMENT).open(encoding="utf-8") as lines:
        records = zip(read(corpus.format, paths, corpus.languages), lines, strict=False)
        pairs = (replace(record, alignment=line) for record, line in records if isinstance(record, Pair))
        words = frequent_words(islice(pairs, SENTENCES), corpus.languages)
    path = aligned / f"{'-'.join(corpus.languages)}.frequent.txt"
    write_atomic(path, "".join(f"{one} {other}\n" for one, other in words))
    return path
