"""Retrieval of translations: Tatoeba, and any pairs of sentences, by cosine and CSLS."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xalign_ray.config.language_codes import ENGLISH, check_language, name_of_pair
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.nearest import (
    Indices,
    Vectors,
    are_pairs,
    nearest_both_ways,
    nearest_cosine,
    nearest_csls,
    thin,
    unit_rows,
)
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.task import (
    COSINE,
    LAST,
    PREMIUM,
    Measure,
    Metric,
    SentenceTask,
    right_key,
    right_ones,
    write_rows,
)
from xalign_ray.tasks.task_files import choose_languages, name_language, read_lines
from xalign_ray.work.artifacts import hash_file, hash_value
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.config.sources import ParallelCorpus
    from xalign_ray.models.vectors import SentenceVectors

LAST_LAYERS = 4
MAX_POOL = 20_000  # sentences of all languages that are searched at once
MAX_PAIRS = 10_000  # of two languages: each sentence is compared with all others
LAST_FOUR = f"last{LAST_LAYERS}"  # the layer of a mean over the last layers' accuracies


@dataclass(frozen=True)
class TranslatedSentences:
    """Sentences in two languages; sentence i of the first translates sentence i of the second.

    Attributes:
        languages: codes of the first and the second sentences.
        first, second: equally many texts.
        split: name of the file or folder that they are from.
    """

    languages: tuple[str, str]
    first: Sequence[str]
    second: Sequence[str]
    split: str

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def numbers(self) -> tuple[Indices, Indices]:
        """A number for each distinct text of the first and of the second sentences: `[N]` each."""
        first, second = (np.unique(np.array(texts, dtype=object), return_inverse=True)[1] for texts in self.texts)
        return first, second

    @property
    def duplicates(self) -> int:
        """Sentences that occur more than once in their language."""
        return sum(len(texts) - len(set(texts)) for texts in self.texts)

    def swapped(self) -> TranslatedSentences:
        """The same pairs with the languages in the other order."""
        language, other_language = self.languages
        return TranslatedSentences((other_language, language), self.second, self.first, self.split)

    def joined(self, other: TranslatedSentences) -> TranslatedSentences:
        """These pairs and others of the same two languages, perhaps in the other order."""
        first, second = (other if other.languages == self.languages else other.swapped()).texts
        split = self.split if other.split == self.split else f"{self.split}, {other.split}"
        return TranslatedSentences(self.languages, [*self.first, *first], [*self.second, *second], split)

    def thinned(self) -> TranslatedSentences:
        """At most MAX_PAIRS, evenly spaced."""
        chosen = thin(len(self), MAX_PAIRS)
        first, second = ([texts[index] for index in chosen] for texts in self.texts)
        return TranslatedSentences(self.languages, first, second, self.split)

    @property
    def texts(self) -> tuple[Sequence[str], Sequence[str]]:
        """The first and the second sentences."""
        return self.first, self.second


def layer_accuracies(
    queries: Vectors,
    candidates: Vectors,
    *,
    csls: bool = False,
    device: str = "cpu",
    numbers: tuple[Indices, Indices] | None = None,
) -> list[float]:
    """Share of queries whose nearest candidate by cosine, or by CSLS, is right, for each layer.

    Args:
        queries, candidates: `[layers + 1, N, D]` each.
        numbers: of the texts of the queries and the candidates; then a copy of the right text is right. Only the
            query's own index is right without them.
    """
    nearest = layer_neighbours(queries, candidates, csls=csls, device=device)
    return [
        float((are_pairs(*numbers, neighbours) if numbers else are_own(neighbours)).mean()) for neighbours in nearest
    ]


def are_own(found: Indices) -> NDArray[np.bool_]:
    """Whether each sentence found its own translation, which has its index: `[N]`."""
    return found == np.arange(len(found))


def layer_neighbours(
    queries: Vectors, candidates: Vectors, *, csls: bool = False, device: str = "cpu"
) -> list[Indices]:
    """The nearest candidate of each query by cosine, or by CSLS, for each layer: `[N]` each."""
    return [
        nearest_csls(left, right, left, device=device) if csls else nearest_cosine(left, right, device)
        for left, right in zip(queries, candidates, strict=True)
    ]


def mean_of_last(layers: Sequence[float]) -> float:
    """The mean of the last 4 layers' accuracies; `layers[0]` is the embedding layer's and never counts."""
    chosen = layers[1:][-LAST_LAYERS:]
    return sum(chosen) / len(chosen)


def layer_cosines(queries: Vectors, candidates: Vectors, shift: int) -> list[float]:
    """Mean cosine of each query and the candidate `shift` places behind its own, for each layer; 0 are translations.

    Both are `[layers + 1, N, D]`.
    """
    left, right = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True) for vectors in (queries, candidates))
    return (left * np.roll(right, -shift, axis=1)).sum(axis=-1).mean(axis=1).tolist()


_NAME = re.compile(r"tatoeba\.(?P<other>.+)-(?P<english>eng|en)\.(?P<end>.+)")
_COSINES = {
    "pair_cosine": 0,
    "pair_cosine_random": 1,
}  # of each sentence with the translation that many places behind its own
_OF_PAPERS = "tatoeba_accuracy_from_english"
_POOLING = {"tatoeba_accuracy_cls": "cls"}  # of the layers of a metric, where it is not the mean
_TATOEBA_TITLE = "Sentence retrieval (Tatoeba)"
PairPaths = tuple[Path, Path]  # line i of the first translates line i of the second, which is English
_Pairs = dict[str, tuple[PairPaths, list[str], list[str]]]  # by language the files, and the sentences of each


class TatoebaTask(SentenceTask):
    """Accuracy of retrieving translations, per language and layer, and the mean over languages.

    Vectors are the encoder's own, see `sentence_rule`; layer is "last". `tatoeba_accuracy` asks each sentence of
    language xx and is right if its own English side is the nearest by cosine among the English sides of the same pair
    of files, as mteb does. `tatoeba_accuracy_from_english` asks the English sentences, as XTREME's code does and so the
    tables of DICT-MLM. `tatoeba_accuracy_csls` is `tatoeba_accuracy` by CSLS. Chance is 1 / number of pairs.

    Also scored is layer "last4", the mean accuracy of the last min(4, n) layers by the mean of tokens (DICT-MLM,
    Table 1), and each layer alone; `tatoeba_accuracy_cls` is by the first token of each layer but the embedding layer,
    where all first tokens are equal. `pair_cosine` is the mean cosine of translations, `pair_cosine_random` that of
    each sentence with the translation of the next one; `tokenization_premium` are the pieces of the sentences for each
    piece of their English translations (Petrov et al. 2023, section 3): what share of the vocabulary a language has.

    Its data is a folder of `tatoeba.<xx>-eng.<xx>` and `tatoeba.<xx>-eng.eng` (LASER), or the same with 2-letter codes,
    of any parallel text; scores name the folder as their split.
    """

    name = "tatoeba"
    keeps_predictions = True
    metrics = (
        Metric("tatoeba_accuracy", _TATOEBA_TITLE, "nearest-neighbour retrieval of the English translation"),
        Metric(
            "tatoeba_accuracy_from_english", f"{_TATOEBA_TITLE}, from English",
            "nearest-neighbour retrieval of the translation of an English sentence, as XTREME",
        ),
        Metric("tatoeba_accuracy_csls", f"{_TATOEBA_TITLE}, CSLS", "retrieval of the English translation by CSLS"),
        Metric(
            "tatoeba_accuracy_cls", f"{_TATOEBA_TITLE}, first token",
            "retrieval of the English translation by cosine of the first token of each layer",
        ),
        Metric(
            "pair_cosine", "Mean cosine of translations", "mean cosine of translated sentences, last layers",
            COSINE, higher_is_better=None,
        ),
        Metric(
            "pair_cosine_random", "Mean cosine of other sentences",
            "the same of sentences that do not translate each other", COSINE, higher_is_better=None,
        ),
        Metric(
            "tokenization_premium", "Pieces for each of English", "pieces of sentences for each of their translations",
            PREMIUM, higher_is_better=None,
        ),
    )  # fmt: skip

    def read(self, data: Path, languages: Sequence[str] | None) -> tuple[Collection[str], tuple[str, _Pairs]]:
        pairs = {language: (paths, *read_pair(paths)) for language, paths in find_pairs(data, languages).items()}
        return [ENGLISH, *pairs], (data.resolve().name, pairs)

    def score_all(
        self, vectors: SentenceVectors, test: tuple[str, _Pairs], predictions: Path | None = None
    ) -> Iterator[Score]:
        (split, pairs), encoder = test, vectors.encoder
        device = str(encoder.model.device)
        for language, (paths, other, english) in pairs.items():
            left, left_layers = vectors.layers(other, language, "mean", "cls")
            right, right_layers = vectors.layers(english, ENGLISH, "mean", "cls")
            by_own_vectors = neighbours_by_metric(left, right, device)
            by_mean = neighbours_by_metric(left_layers["mean"], right_layers["mean"], device)
            right_at = {metric: dict(enumerate(map(are_own, layers))) for metric, layers in by_mean.items()}
            first_token = layer_neighbours(left_layers["cls"], right_layers["cls"], device=device)
            right_at["tatoeba_accuracy_cls"] = dict(enumerate(map(are_own, first_token[1:]), start=1))
            if predictions:
                rows: dict[str, object] = {
                    metric: [layer_hits.tolist() for layer_hits in layers] for metric, layers in by_own_vectors.items()
                }
                for metric, layers in right_at.items():
                    rows |= {right_key(metric, layer): right_ones(hits) for layer, hits in layers.items()}
                write_rows(predictions / f"{language}.jsonl", rows)
            pieces, english_pieces = (sum(map(len, encoder.inputs.piece_texts(texts))) for texts in (other, english))
            measures: list[tuple[str, float, dict[str, Any]]] = [
                ("tokenization_premium", pieces / max(english_pieces, 1), {"layer": None, "pooling": None}),
                *((metric, float(are_own(layer).mean()), {}) for metric, (layer,) in by_own_vectors.items()),
                *((name, layer_cosines(left, right, shift)[0], {}) for name, shift in _COSINES.items()),
            ]
            for metric, layers in right_at.items():
                accuracies = [float(hits.mean()) for hits in layers.values()]
                pooling = _POOLING.get(metric, "mean")
                if pooling == "mean":
                    measures.append((metric, mean_of_last(accuracies), {"layer": LAST_FOUR, "pooling": pooling}))
                for layer, accuracy in zip(layers, accuracies, strict=True):
                    measures.append((metric, accuracy, {"layer": layer, "pooling": pooling}))
            if not vectors.rule.is_own:  # what papers print of encoders that were made for no vector comes first
                measures.sort(
                    key=lambda layer_hits: (layer_hits[0], layer_hits[2].get("layer")) != (_OF_PAPERS, LAST_FOUR)
                )
            test_set = hash_value([*map(hash_file, paths)])
            for metric, value, where in measures:
                measure = Measure(value, 1 / len(other) if metric.startswith("tatoeba_accuracy") else None, len(other))
                yield from self.scores_of(vectors, split, language, test_set, {metric: measure}, **where)

    def measure_again(self, score: Score, rows: Mapping[str, Any]) -> Measure | None:
        """The headline that neighbours give: of sentence i its own translation is candidate i.

        Args:
            rows: by metric the candidate that each sentence found; and of single layers which sentences found theirs.
        """
        layers: list[Any] = [*takewhile(bool, (rows.get(right_key(score.metric, number)) for number in count()))]
        if score.layer == LAST_FOUR and layers:
            accuracies = [hits.count("1") / len(hits) for hits in layers]
            return Measure(mean_of_last(accuracies), 1 / len(layers[0]), len(layers[0]))
        if not str(score.layer).startswith(LAST) or not (stored := rows.get(score.metric)):
            return super().measure_again(score, rows)
        values = np.array(stored)  # of one layer; before 0.1.0 of the last four
        right = (values == np.arange(values.shape[1])).mean(axis=1).tolist()
        return Measure(sum(right) / len(right), 1 / values.shape[1], values.shape[1])


def find_pairs(data: Path, languages: Sequence[str] | None = None) -> dict[str, PairPaths]:
    """The pairs of files in a folder, by the language that is not English, of these languages or of all that are there.

    Raises:
        DataError: there are none, or none of a language that was asked for.
    """
    names = [_NAME.fullmatch(path.name) for path in sorted(data.glob("tatoeba.*"))]
    stems = sorted({(name["other"], name["english"]) for name in names if name})
    if not stems:
        of_xtreme = any(data.glob("*-en.en"))
        hint = " XTREME's copies, de-en.de and de-en.en, have their English lines sorted: take LASER's." * of_xtreme
        raise DataError(
            f"{data} holds no Tatoeba files; they are called tatoeba.deu-eng.deu and tatoeba.deu-eng.eng.{hint}"
        )
    pairs, codes = {}, {other for other, _ in stems}
    for other, english in stems:
        stem = data / f"tatoeba.{other}-{english}"
        language = name_language(other, stem)
        if len(other) == len(language) and language in codes:
            language = other  # LASER has kzj beside dtp, into which ISO 639 has merged it since
        if language in pairs:
            raise DataError(f"{data} holds {language} twice, also as {stem.name}; keep one.")
        pairs[language] = Path(f"{stem}.{other}"), Path(f"{stem}.{english}")
    chosen = choose_languages(pairs, languages, data, lambda code: code if code in pairs else check_language(code))
    return {language: pairs[language] for language in chosen}


def read_pair(paths: PairPaths) -> tuple[list[str], list[str]]:
    """The sentences of a language and their English translations, equally many.

    Raises:
        DataError: a side is missing or empty, the sides differ in length, or a line is empty.
    """
    other, english = map(read_lines, paths)
    if len(other) != len(english) or not other:
        raise DataError(
            f"{paths[0]} has {len(other)} lines and {paths[1]} has {len(english)}; line i of one must "
            "translate line i of the other."
        )
    for path, lines in zip(paths, (other, english), strict=True):
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise DataError(f"{path}, line {number} is empty; remove that line from both sides of the pair.")
    return other, english


def neighbours_by_metric(other: Vectors, english: Vectors, device: str) -> dict[str, list[Indices]]:
    """What each sentence finds at each layer, by the metric that counts it; both are `[layers, N, D]`."""
    return {
        "tatoeba_accuracy": layer_neighbours(other, english, device=device),
        "tatoeba_accuracy_from_english": layer_neighbours(english, other, device=device),
        "tatoeba_accuracy_csls": layer_neighbours(other, english, csls=True, device=device),
    }


TATOEBA = TatoebaTask()


_TITLE = "Sentence retrieval"
_OTHER = "retrieval_other_language"


class RetrievalTask(SentenceTask):
    """Accuracy of retrieving translations, per pair of languages, and the mean over them.

    The headline is layer "last", pooled by the rule in the encoder's Sentence Transformers files, else by the mean over
    tokens, with the prompt of these files before each sentence: these are the vectors that a user gets. Every layer is
    scored too, with the same pooling. `retrieval_accuracy` is the mean of both directions. A result is
    right if it is, by its text, a translation of the query in the test: no sentence that stands twice is wrong because
    its copy was found. Chance is 1 / number of pairs.

    Of several pairs of languages the sentences of all are also searched as one pool, at most `MAX_POOL`:
    `retrieval_accuracy_mixed` is the share of a language's sentences that find a translation in any language first,
    `retrieval_other_language` the share that find a sentence of another language first: 1 less the language bias of Roy
    et al. 2020. Sentences that have a translation in common translate each other.

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
        Metric("retrieval_accuracy_mixed", f"{_TITLE}, all languages mixed", "sentences of all languages are searched"),
        Metric(
            _OTHER, f"{_TITLE}, another language first",
            "the first sentence that is found is of another language than the query, all languages mixed",
        ),
    )  # fmt: skip

    def measure_again(self, score: Score, rows: Mapping[str, Any]) -> Measure | None:
        """From how many of a pair's sentences find each other: 0, 1 or 2, a digit each."""
        hits = rows.get(right_key(score.metric, score.layer))
        return Measure(sum(map(int, hits)) / 2 / len(hits), score.chance, len(hits)) if hits else None

    def read(
        self, data: Path, languages: Sequence[str] | None
    ) -> tuple[Collection[str], dict[str, TranslatedSentences]]:
        sets = read_translations(data, languages)
        return {code for pairs in sets.values() for code in pairs.languages}, sets

    def score_all(self, vectors: SentenceVectors, test: dict[str, TranslatedSentences]) -> Iterator[Score]:
        pool, device = MixedPool(MAX_POOL // (2 * len(test))), str(vectors.encoder.model.device)
        english = lru_cache(maxsize=1)(vectors.layers)  # NTREX and FLORES have one English side for all languages
        for language, pairs in test.items():
            if pairs.duplicates:
                copies = f"{pairs.duplicates:,} of {2 * len(pairs):,} sentences stand in it more than once"
                say(f"{pairs.split} ({language}): {copies}; to find a copy of the translation is right.")
            left, first = vectors.layers(pairs.first, pairs.languages[0])
            right, second = english(tuple(pairs.second), pairs.languages[1])
            pool.add(pairs, left[0], right[0])
            test_set = hash_value([[*texts] for texts in pairs.texts])
            results = [
                *zip([LAST], _values(left, right, pairs, device), strict=True),
                *enumerate(_values(first[vectors.rule.pooling], second[vectors.rule.pooling], pairs, device)),
            ]
            for layer, values in results:
                measures = {metric: Measure(value, 1 / len(pairs), len(pairs)) for metric, value in values.items()}
                yield from self.scores_of(vectors, pairs.split, language, test_set, measures, layer=layer)
        if len(test) > 1:
            split, test_set = next(iter(test.values())).split, hash_value([*pool.places])
            mixed = pool.measures(device)
            own_first = [1 - measures[_OTHER].value for measures in mixed.values()]
            say(f"First hits in the query's own language, of {len(pool.places):,} sentences: {np.mean(own_first):.1%}.")
            for language, measures in mixed.items():
                yield from self.scores_of(vectors, split, language, test_set, measures)


class MixedPool:
    """Sentences of all languages, with the vector of each.

    Attributes:
        places: of each text and its language.
    """

    def __init__(self, most: int) -> None:
        """Holds nothing yet; takes at most `most` pairs of two languages, evenly spaced."""
        self._most = max(1, most)
        self.places: dict[tuple[str, str], int] = {}
        self._vectors: list[NDArray[np.float32]] = []
        self._pairs: list[tuple[int, int]] = []

    def add(self, pairs: TranslatedSentences, first: Vectors, second: Vectors) -> None:
        """Adds pairs, with their vectors, `[N, D]` each."""
        for index in thin(len(pairs), self._most):
            both = [
                self._place(texts[index], code, vectors[index])
                for texts, code, vectors in zip(pairs.texts, pairs.languages, (first, second), strict=True)
            ]
            self._pairs.append((both[0], both[1]))

    def _place(self, text: str, language: str, vector: NDArray[np.float32]) -> int:
        number = self.places.setdefault((text, language), len(self._vectors))
        if number == len(self._vectors):
            self._vectors.append(vector)
        return number

    def measures(self, device: str = "cpu") -> dict[str, dict[str, Measure]]:
        """The metrics of each language's sentences, asked among all others."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components  # half a second

        count, units = len(self._vectors), unit_rows(np.stack(self._vectors))
        nearest, _ = nearest_both_ways(units, units, 2, device)
        items = np.arange(count)
        neighbours = np.where(nearest.places[:, 0] == items, nearest.places[:, 1], nearest.places[:, 0])
        links = coo_array((np.ones(len(self._pairs)), np.array(self._pairs).T), shape=(count, count))
        groups = connected_components(links, directed=False)[1]
        names, codes = np.unique([code for _, code in self.places], return_inverse=True)

        def alike(kinds: Indices) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
            """Whether each sentence and the one that it neighbours are of a kind, and the chance of that."""
            return kinds[neighbours] == kinds, (np.bincount(kinds)[kinds] - 1) / (count - 1)

        (right, chance), (own_language, own_chance) = alike(groups), alike(codes)
        values = {"retrieval_accuracy_mixed": (right, chance), _OTHER: (~own_language, 1 - own_chance)}
        return {
            name: {
                metric: Measure(float(of_each[asked].mean()), float(by_chance[asked].mean()), int(asked.sum()))
                for metric, (of_each, by_chance) in values.items()
            }
            for name, asked in ((name, codes == number) for number, name in enumerate(names.tolist()))
        }


def _values(first: Vectors, second: Vectors, pairs: TranslatedSentences, device: str) -> list[dict[str, float]]:
    """The metrics of each layer; vectors are `[layers, N, D]`."""
    of_first, of_second = pairs.numbers
    values = []
    for csls in (False, True):
        to_second = layer_accuracies(first, second, csls=csls, device=device, numbers=(of_first, of_second))
        to_first = layer_accuracies(second, first, csls=csls, device=device, numbers=(of_second, of_first))
        values.append([*zip(to_second, to_first, strict=True)])
    return [
        {
            "retrieval_accuracy": sum(plain) / 2,
            "retrieval_accuracy_csls": sum(csls) / 2,
            "retrieval_accuracy_to_second": plain[0],
            "retrieval_accuracy_to_first": plain[1],
        }
        for plain, csls in zip(*values, strict=True)
    ]


def read_translations(data: Path, languages: Sequence[str] | None = None) -> dict[str, TranslatedSentences]:
    """The pairs of a file or folder by the name of their languages, English as the second language.

    Args:
        data: a Tatoeba folder, or what `look_at_pairs` reads.
        languages: to score; the languages of the columns, where the data show none.

    Raises:
        DataError: there are none, or none of a language that was asked for.
    """
    if data.is_dir() and any(data.glob("tatoeba.*")):
        translated = [
            TranslatedSentences((code, ENGLISH), *read_pair(paths), data.resolve().name)
            for code, paths in find_pairs(data, languages).items()
        ]
        return {name_of_pair(*corpus_pairs.languages): corpus_pairs for corpus_pairs in translated}
    return _joined(_read_any(data, languages or ()))


def _corpora(data: Path, languages: Sequence[str]) -> list[ParallelCorpus]:
    """The sources in these languages; where the data show none, they are the languages of the columns."""
    from xalign_ray.sources.pair_forms import look_at_pairs

    if wanted := {check_language(code) for code in languages} - {ENGLISH}:
        with suppress(ConfigError):
            corpora = look_at_pairs([str(data)], split="test")
            if wanted <= {code for corpus in corpora for code in corpus.languages}:
                return [corpus for corpus in corpora if wanted & {*corpus.languages}]
    return look_at_pairs([str(data)], languages, split="test")


def _read_any(data: Path, languages: Sequence[str]) -> Iterator[TranslatedSentences]:
    from xalign_ray.sources.pair_forms import read_pairs

    for corpus in _corpora(data, languages):
        pairs = [*read_pairs(corpus)]
        if not pairs:
            raise DataError(f"{data} holds no pairs of {' and '.join(corpus.languages)}.")
        first, second = zip(*pairs, strict=True)
        translated = TranslatedSentences(corpus.languages, first, second, data.name)
        yield translated.swapped() if corpus.languages[0] == ENGLISH != corpus.languages[1] else translated


def _joined(found: Iterator[TranslatedSentences]) -> dict[str, TranslatedSentences]:
    """Joins sets of the same two languages, and keeps at most `MAX_PAIRS` pairs of each, evenly spaced."""
    by_name: dict[str, TranslatedSentences] = {}
    for translated in found:
        name = name_of_pair(*translated.languages)
        before = by_name.get(name)
        by_name[name] = before.joined(translated) if before else translated
    return {name: translated.thinned() for name, translated in by_name.items()}


RETRIEVAL = RetrievalTask()
