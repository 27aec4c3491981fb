"""Benchmarks of translations by margin: retrieval of FLORES and NTREX (xsim, xsim++), BUCC mining."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xalign_ray.config.language_codes import ENGLISH, check_language, is_language, name_of_pair
from xalign_ray.errors import DataError
from xalign_ray.models.nearest import (
    MARGIN_NEIGHBOURS,
    Indices,
    Mined,
    Vectors,
    are_pairs,
    best_by_margin,
    best_threshold,
    mine_pairs,
    nearest_both_ways,
    unit_rows,
)
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.task import Measure, Metric, SentenceTask
from xalign_ray.tasks.task_files import (
    choose_languages,
    is_table,
    matching_files,
    name_language,
    plain_language,
    read_lines,
    read_table,
)
from xalign_ray.work.artifacts import hash_file, hash_value
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.models.vectors import SentenceVectors

_DEV, _TEST = ("dev", "sample"), ("test", "training")  # XTREME calls BUCC's sample dev, and its training set test
_FLORES = [
    name
    for code in ("{flores}", "{language}")
    for split in ("devtest", "dev")
    for name in (f"{code}.{split}", f"*/{code}.{split}", f"{split}/{code}.(jsonl|parquet)")
]
_HARD = "_to_english_hard"
_BUCC = [f"{up}{{first}}-{{second}}.{part}.[A-Za-z0-9-]+" for up in ("", "*/") for part in (*_DEV, *_TEST)]


_NTREX = ["newstest2019-(src|ref).{language}.txt(.gz|)", "{language}.txt(.gz|)"]


class XsimTask(SentenceTask):
    """Retrieval by ratio margin over 4 neighbours, of English and of each language; 1 less xsim's error.

    A sentence is right if it finds a sentence with its translation's text. Line i translates line i. Chance is
    1 / number of sentences. Where the folder, or one below, holds synthetic English negatives a line, in a file called
    as the English one with `_augmented` behind its code (`eng_Latn_augmented.devtest`, as LASER publishes them),
    `..._to_english_hard` searches these too: 1 less xsim++'s error.
    Reference: xsim of LASER (Heffernan et al. 2022, section 4.2), margin of Artetxe and Schwenk 2019, xsim++ (Chen et
    al. 2023).
    """

    def __init__(self, name: str, title: str, names: Sequence[str], example: str, splits: Sequence[str]) -> None:
        """Reads nothing yet.

        Args:
            name: of the task; its metrics begin with it.
            title: of the benchmark.
            names: of its files, as `task_files.name_pattern` reads them.
            example: of such names, for messages.
            splits: parts of the names of files, in order of preference; all other files are of the last one.
        """
        self.name = name  # type: ignore[misc]
        self.title, self.names, self.example, self.splits = title, names, example, splits
        found = "retrieval of the"
        ends = {
            "": ("", f"{found} translation by margin, both directions"),
            "_to_english": (", to English", f"{found} English translation by margin: 1 less xsim's error"),
            "_from_english": (
                ", from English", f"{found} translation of an English sentence by margin: 1 less xsim's error",
            ),
            _HARD: (
                ", to English with synthetic negatives",
                f"{found} English translation by margin among synthetic negatives: 1 less xsim++'s error",
            ),
        }  # fmt: skip
        self.metrics = tuple(  # type: ignore[misc]
            Metric(f"{name}_accuracy{end}", f"{title}, by margin{where}", meaning)
            for end, (where, meaning) in ends.items()
        )

    def check_data(self, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:
        _, files = self.files(data, languages)
        lengths = {path: len(parallel_sentences(path)) for path in files.values()}
        usual = Counter(lengths.values()).most_common(1)[0][0]
        for path, length in lengths.items():
            if length != usual:
                raise DataError(f"{path} has {length:,} sentences, and others {usual:,}; line i must translate line i.")
        return files

    def score_all(self, vectors: SentenceVectors, data: Path, languages: Sequence[str] | None) -> Iterator[Score]:
        split, files = self.files(data, languages)
        english, hard = parallel_sentences(files[ENGLISH]), _negatives(data, files[ENGLISH])
        of_english = unit_rows(vectors.encode([*english, *hard], ENGLISH))
        numbers_of_english, device = _numbers([*english, *hard]), str(vectors.encoder.model.device)
        errors: list[tuple[float, float]] = []
        for language, path in files.items():
            if language == ENGLISH:
                continue
            texts = parallel_sentences(path)
            of_texts, count = unit_rows(vectors.encode(texts, language)), len(texts)
            numbers = _numbers(texts), numbers_of_english[:count]
            forth, back = right_by_margin(of_texts, of_english[:count], *numbers, device)
            values = {"": (forth + back) / 2, "_to_english": forth, "_from_english": back}
            if hard:
                (places, _), _ = best_by_margin(*nearest_both_ways(of_texts, of_english, MARGIN_NEIGHBOURS, device))
                values[_HARD] = float((numbers_of_english[places] == numbers_of_english[:count]).mean())
            measures = {
                f"{self.name}_accuracy{end}": Measure(value, 1 / (count + len(hard) * (end == _HARD)), count)
                for end, value in values.items()
            }
            searched = [hash_value(hard)] if hard else []
            test_set = hash_value([hash_file(path), hash_file(files[ENGLISH]), *searched])
            yield from self.scores_of(vectors, split, language, test_set, measures)
            errors.append((1 - forth, 1 - back))
        forth, back = np.mean(errors, axis=0)
        say(f"xsim error, mean of {len(errors)} languages: to English {forth:.2%}, from English {back:.2%}.")

    def files(self, data: Path, languages: Sequence[str] | None = None) -> tuple[str, dict[str, Path]]:
        """The split and the file of each language, English with it.

        Raises:
            DataError: there are none, none of English, or none of a language that was asked for.
        """
        files: dict[str, dict[str, Path]] = {split: {} for split in self.splits}
        for name, parts, path in matching_files(data, self.names):
            split = next((split for split in self.splits if split in name), self.splits[-1])
            if (language := plain_language(parts["language"])) and files[split].setdefault(language, path) != path:
                raise DataError(f"{path} and {files[split][language]} are both {split} of {language}; keep one.")
        split = next((split for split in files if files[split]), "")
        if not split:
            raise DataError(f"{data} holds no {self.title} files; they are called {self.example}.")
        if ENGLISH not in files[split]:
            raise DataError(f"{data} holds no {split} file of English, which the others are compared with.")
        chosen = choose_languages(files[split], {*languages, ENGLISH} if languages else None, data)
        if chosen == [ENGLISH]:
            raise DataError(f"{data} holds {self.title} in English alone; it needs another language.")
        return split, {language: files[split][language] for language in chosen}


def _negatives(data: Path, english: Path) -> list[str]:
    """The synthetic English sentences beside a file, or in a folder of `data`; none where there is no file of them."""
    code, _, end = english.name.partition(".")
    name = f"{code}_augmented.{end}"
    found = [path for path in (english.parent / name, *sorted(data.glob(f"*/{name}"))) if path.is_file()]
    return parallel_sentences(found[0]) if found else []


def right_by_margin(
    first: Vectors, second: Vectors, of_first: Indices, of_second: Indices, device: str = "cpu"
) -> tuple[float, float]:
    """Share of the first vectors that find their translation by ratio margin, and of the second.

    Args:
        first, second: of length 1, `[N, D]`; i translates i.
        of_first, of_second: a number for each distinct text, `[N]`.
    """
    (forward, _), (back, _) = best_by_margin(*nearest_both_ways(first, second, MARGIN_NEIGHBOURS, device))
    return float(are_pairs(of_first, of_second, forward).mean()), float(are_pairs(of_second, of_first, back).mean())


def _pair_or_code(name: str) -> str:
    """A language, or two as `name_of_pair` names them."""
    first, dash, second = name.partition("-")
    both = dash and is_language(second) and len(second) < len("Latn")
    return name_of_pair(check_language(first), check_language(second)) if both else check_language(name)


def _numbers(texts: Sequence[str]) -> Indices:
    return np.unique(np.array(texts, dtype=object), return_inverse=True)[1]


def parallel_sentences(path: Path) -> list[str]:
    """The sentences of a file; DataError if one is empty."""
    if is_table(path):
        rows = [row for _, row in read_table(path, ("text|sentence",), ("id",))]
        texts = [str(row["text|sentence"]) for row in sorted(rows, key=lambda row: row.get("id", 0))]
    else:
        texts = read_lines(path)
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise DataError(f"{path}, line {number} is empty; line i of each language translates line i of the others.")
    return texts


class BuccTask(SentenceTask):
    """BUCC: translations mined out of two texts by margin; F1 at the threshold that is best on the dev set.

    As XTREME does it: ratio margin over 4 neighbours, of the candidates of both sides the best in turn, sentences that
    stand twice left out, threshold halfway between two scores. Files are `de-en.dev.de` and `de-en.test.en` with an id
    and a sentence a line, and `de-en.dev.gold` with two ids; BUCC's own `sample` is dev and its `training` test, as in
    XTREME. Without gold pairs of a test set dev itself is scored, and is the `split`.
    """

    name = "bucc"
    metrics = (
        Metric("bucc_f1", "Mined pairs (BUCC), F1", "F1 of mined translations, at the threshold best on dev"),
        Metric("bucc_precision", "Mined pairs (BUCC), precision", "mined translations that are right"),
        Metric("bucc_recall", "Mined pairs (BUCC), recall", "translations that were mined"),
    )

    def check_data(self, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:
        sets = [mining_set for both in bucc_sets(data, languages).values() for mining_set in both]
        return {code for mining_set in sets for code in mining_set.languages if mining_set.places}

    def score_all(self, vectors: SentenceVectors, data: Path, languages: Sequence[str] | None) -> Iterator[Score]:
        for name, (dev, test) in bucc_sets(data, languages).items():
            mined = dev.mine(vectors)
            best = best_threshold(mined, dev.gold_places(), gold_is_whole=True)
            if best is None:
                raise DataError(
                    f"None of the gold pairs of {dev.gold} was mined; the encoder does not align these languages."
                )
            if test.split != dev.split:
                mined = test.mine(vectors)
            else:
                say(f"{data} has no gold pairs of a test set in {name}: dev is scored at the threshold chosen on it.")
            measures = measure_mined(mined, test.gold_places(), best.score)
            say(f"{name}: threshold {best.score:.4f}, F1 on {dev.split} {best.f1:.3f}.")
            test_set = hash_value([hash_file(path) for path in (*test.files, test.gold)])
            yield from self.scores_of(vectors, test.split, name, test_set, measures)


@dataclass(frozen=True)
class MiningSet:
    """Two texts and the pairs among their sentences that translate each other."""

    languages: tuple[str, str]
    split: str
    files: tuple[Path, Path]
    gold: Path

    @cached_property
    def _sides(self) -> list[dict[str, str]]:
        """Sentence by id, of both sides."""
        sides = []
        for path in self.files:
            rows = [line.split("\t", 1) for line in read_lines(path) if line.strip()]
            if bad := next((number for number, row in enumerate(rows, 1) if len(row) < 2), 0):
                raise DataError(f"{path}, row {bad}: not an id and a sentence, parted by a tab.")
            sides.append({name.strip(): text.strip() for name, text in rows})
        return sides

    @cached_property
    def texts(self) -> list[list[str]]:
        """The distinct sentences of both sides, in order; DataError where a line has no id."""
        return [list(dict.fromkeys(side.values())) for side in self._sides]

    @cached_property
    def places(self) -> list[dict[str, int]]:
        """By id, of both sides, its sentence's place in `texts`; below 0, where no mined pair is, if it repeats."""
        places = []
        for side, texts in zip(self._sides, self.texts, strict=True):
            at, counts = {text: number for number, text in enumerate(texts)}, Counter(side.values())
            rows = enumerate(side.items())
            places.append({name: at[text] if counts[text] == 1 else -1 - number for number, (name, text) in rows})
        return places

    def gold_places(self) -> set[tuple[int, int]]:
        """The `places` of each gold pair."""
        pairs = set()
        for number, line in enumerate(read_lines(self.gold), 1):
            names = [name.strip() for name in line.split("\t")]
            if len(names) != 2 or any(name not in at for name, at in zip(names, self.places, strict=True)):
                raise DataError(f"{self.gold}, line {number}: not two ids of {self.files[0]} and {self.files[1]}.")
            pairs.add((self.places[0][names[0]], self.places[1][names[1]]))
        if not pairs:
            raise DataError(f"{self.gold} holds no pair.")
        return pairs

    def mine(self, vectors: SentenceVectors) -> list[Mined]:
        """Mined pairs of places in `texts`, the best first; none of a sentence that stands twice."""
        say(f"{self.split}: mining {len(self.texts[0]):,} and {len(self.texts[1]):,} sentences.")
        first, second = (unit_rows(vectors.encode(*side)) for side in zip(self.texts, self.languages, strict=True))
        device = str(vectors.encoder.model.device)
        return self.keep_single(mine_pairs(*nearest_both_ways(first, second, MARGIN_NEIGHBOURS, device)))

    def keep_single(self, mined: Iterable[Mined]) -> list[Mined]:
        """The mined pairs with a score above 0 whose sentences stand once."""
        once = [{*side.values()} for side in self.places]
        return [pair for pair in mined if pair.score > 0 and pair.first in once[0] and pair.second in once[1]]


def measure_mined(mined: Sequence[Mined], gold: Collection[tuple[int, int]], threshold: float) -> dict[str, Measure]:
    """The metrics of the pairs from a threshold on."""
    chosen = [(pair.first, pair.second) for pair in mined if pair.score >= threshold]
    right = len(set(gold) & set(chosen))
    precision, recall = right / len(chosen) if chosen else 0.0, right / len(gold)
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    values = {"bucc_f1": f1, "bucc_precision": precision, "bucc_recall": recall}
    return {metric: Measure(value, None, len(gold)) for metric, value in values.items()}


def bucc_sets(data: Path, languages: Sequence[str] | None = None) -> dict[str, tuple[MiningSet, MiningSet]]:
    """The dev and the test set of each pair of languages; both the same where only one has gold pairs.

    Raises:
        DataError: there are none with gold pairs, or none of a language that was asked for.
    """
    files: dict[tuple[str, str], dict[str, dict[str, Path]]] = {}
    for _, parts, path in matching_files(data, _BUCC):
        part, end = path.name.split(".")[1:]
        files.setdefault((parts["first"], parts["second"]), {}).setdefault(part, {})[end] = path
    sets: dict[str, tuple[MiningSet, MiningSet]] = {}
    for (first, second), by_part in files.items():
        complete = {
            part: MiningSet(
                (name_language(first, files["gold"]), name_language(second, files["gold"])),
                part, (files[first], files[second]), files["gold"],
            )
            for part, files in by_part.items()
            if files.keys() >= {first, second, "gold"}
        }  # fmt: skip
        dev, test = ([complete[part] for part in parts if part in complete] for parts in (_DEV, _TEST))
        if dev or test:
            first_file, other = (dev or test)[0], (test or dev)[0]
            sets[name_of_pair(*first_file.languages)] = first_file, other
    if not sets:
        raise DataError(
            f"{data} holds no BUCC set with gold pairs; files are called de-en.dev.de, de-en.dev.en and de-en.dev.gold."
        )
    return {name: sets[name] for name in choose_languages(sets, languages, data, _pair_or_code)}


FLORES = XsimTask("flores", "FLORES", _FLORES, "devtest/deu_Latn.devtest, dev/deu_Latn.jsonl", ("devtest", "dev"))
NTREX = XsimTask("ntrex", "NTREX", _NTREX, "newstest2019-ref.deu.txt or deu.txt", ("test",))
BUCC = BuccTask()
