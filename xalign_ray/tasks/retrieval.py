"""Retrieval of translations in any pairs of sentences, in both directions, by the vectors that a user gets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_ray.config.language_codes import ENGLISH, name_of_pair
from xalign_ray.errors import DataError
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.task import LAST, Measure, Metric, SentenceTask
from xalign_ray.tasks.tatoeba import find_pairs, read_pair
from xalign_ray.tasks.translations import TranslatedSentences, layer_accuracies
from xalign_ray.work.artifacts import hash_value
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.models.nearest import Vectors
    from xalign_ray.tasks.hf_encoder import SentenceVectors

_TITLE = "Sentence retrieval"


class RetrievalTask(SentenceTask):
    """Accuracy of retrieving translations, per pair of languages, and the mean over them.

    The headline is layer "last", pooled as the encoder's Sentence Transformers files say, else by the mean over tokens,
    with the prompt of these files before each sentence: so a user's own vectors find what is counted here. Every layer
    is scored beside it, with the same pooling. `retrieval_accuracy` is the mean of both directions. What is found is
    right if it is, by its text, a translation of the query in the test: no sentence that stands twice is wrong because
    its copy was found. Chance is 1 / number of pairs.

    Its data is any form of pairs that `xalign continue` takes, or a folder of Tatoeba's files. A score is of the
    language that is not English; of both, such as "de-fr", if none is.
    """

    name = "retrieval"
    metrics = (
        Metric("retrieval_accuracy", _TITLE, "nearest-neighbour retrieval of the translation, mean of both directions"),
        Metric(
            "retrieval_accuracy_csls", f"{_TITLE}, CSLS", "retrieval of the translation by CSLS, both directions"
        ),
        Metric(
            "retrieval_accuracy_to_second", f"{_TITLE}, to the second language",
            "the second language's sentences are searched, which is English if one of the two is",
        ),
        Metric(
            "retrieval_accuracy_to_first", f"{_TITLE}, to the first language",
            "the first language's sentences are searched, which is not English if one of the two is",
        ),
    )  # fmt: skip

    def check_data(self, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:
        """Reads all pairs."""
        return {code for pairs in read_translations(data, languages).values() for code in pairs.languages}

    def score_all(self, vectors: SentenceVectors, data: Path, languages: Sequence[str] | None) -> Iterator[Score]:
        for language, pairs in read_translations(data, languages).items():
            yield from self._score_pairs(vectors, language, pairs)

    def _score_pairs(self, vectors: SentenceVectors, language: str, pairs: TranslatedSentences) -> Iterator[Score]:
        if pairs.duplicates:
            copies = f"{pairs.duplicates:,} of {2 * len(pairs):,} sentences stand in it more than once"
            say(f"{pairs.split} ({language}): {copies}; to find a copy of the translation is right.")
        encoder, pooling = vectors.encoder, vectors.pooling
        first, second = (
            encoder.pool([vectors.prompt + text for text in texts], code, (pooling,))[pooling]
            for code, texts in zip(pairs.languages, pairs.texts, strict=True)
        )
        left, right = (vectors.behind(side[-1])[None] for side in (first, second))
        device, test_set = str(encoder.model.device), hash_value([[*texts] for texts in pairs.texts])
        found = [
            *zip([LAST], _values(left, right, pairs, device), strict=True),
            *enumerate(_values(first, second, pairs, device)),
        ]
        for layer, values in found:
            for metric, value in values.items():
                measure = Measure(value, 1 / len(pairs), len(pairs))
                where = {"layer": layer, "pooling": pooling, "test_set": test_set}
                yield self.score_of(encoder, pairs.split, language, metric, measure, **where)


def _values(first: Vectors, second: Vectors, pairs: TranslatedSentences, device: str) -> list[dict[str, float]]:
    """The metrics of each layer; vectors are `[layers, N, D]`."""
    of_first, of_second = pairs.numbers
    found = []
    for csls in (False, True):
        to_second = layer_accuracies(first, second, csls=csls, device=device, numbers=(of_first, of_second))
        to_first = layer_accuracies(second, first, csls=csls, device=device, numbers=(of_second, of_first))
        found.append([*zip(to_second, to_first, strict=True)])
    return [
        {
            "retrieval_accuracy": sum(plain) / 2,
            "retrieval_accuracy_csls": sum(csls) / 2,
            "retrieval_accuracy_to_second": plain[0],
            "retrieval_accuracy_to_first": plain[1],
        }
        for plain, csls in zip(*found, strict=True)
    ]


def read_translations(data: Path, languages: Sequence[str] | None = None) -> dict[str, TranslatedSentences]:
    """The pairs of a file or folder by the name of their languages, English as the second language.

    Args:
        data: a Tatoeba folder, or what `look_at_pairs` reads.
        languages: those to score; of a file whose languages cannot be seen, those of its columns.

    Raises:
        DataError: there are none, or none of a language that was asked for.
    """
    if data.is_dir() and any(data.glob("tatoeba.*")):
        found = [
            TranslatedSentences((code, ENGLISH), *read_pair(paths), data.resolve().name)
            for code, paths in find_pairs(data, languages).items()
        ]
        return {name_of_pair(*one.languages): one for one in found}
    return _joined(_read_any(data, languages or ()))


def _read_any(data: Path, languages: Sequence[str]) -> Iterator[TranslatedSentences]:
    from xalign_ray.sources.pair_forms import look_at_pairs, read_pairs

    for corpus in look_at_pairs([str(data)], languages, split="test"):
        pairs = [*read_pairs(corpus)]
        if not pairs:
            raise DataError(f"{data} holds no pairs of {' and '.join(corpus.languages)}.")
        first, second = zip(*pairs, strict=True)
        found = TranslatedSentences(corpus.languages, first, second, data.name)
        yield found.swapped() if corpus.languages[0] == ENGLISH else found


def _joined(found: Iterator[TranslatedSentences]) -> dict[str, TranslatedSentences]:
    """Those of the same two languages as one; at most `MAX_PAIRS` of each, evenly spaced."""
    by_name: dict[str, TranslatedSentences] = {}
    for one in found:
        name = name_of_pair(*one.languages)
        before = by_name.get(name)
        by_name[name] = before.joined(one) if before else one
    return {name: one.thinned() for name, one in by_name.items()}


RETRIEVAL = RetrievalTask()
