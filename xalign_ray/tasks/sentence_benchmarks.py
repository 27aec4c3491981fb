"""Retrieval of translations by margin: FLORES and NTREX, by xsim and xsim++."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xalign_ray.config.language_codes import ENGLISH
from xalign_ray.errors import DataError
from xalign_ray.models.nearest import (
    MARGIN_NEIGHBOURS,
    Indices,
    Vectors,
    are_pairs,
    best_by_margin,
    nearest_both_ways,
    unit_rows,
)
from xalign_ray.tasks.scores import Score
from xalign_ray.tasks.task import Measure, Metric, SentenceTask
from xalign_ray.tasks.task_files import (
    choose_languages,
    is_table,
    matching_files,
    plain_language,
    read_lines,
    read_table,
)
from xalign_ray.work.artifacts import hash_file, hash_value
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.models.vectors import SentenceVectors

_FLORES = [
    name
    for code in ("{flores}", "{language}")
    for split in ("devtest", "dev")
    for name in (f"{code}.{split}", f"*/{code}.{split}", f"{split}/{code}.(jsonl|parquet)")
]
_HARD = "_to_english_hard"
# The split; the file and the sentences of each language; the synthetic English negatives.
_Test = tuple[str, dict[str, Path], dict[str, list[str]], list[str]]
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
        retrieval = "retrieval of the"
        ends = {
            "": ("", f"{retrieval} translation by margin, both directions"),
            "_to_english": (", to English", f"{retrieval} English translation by margin: 1 less xsim's error"),
            "_from_english": (
                ", from English", f"{retrieval} translation of an English sentence by margin: 1 less xsim's error",
            ),
            _HARD: (
                ", to English with synthetic negatives",
                f"{retrieval} English translation by margin among synthetic negatives: 1 less xsim++'s error",
            ),
        }  # fmt: skip
        self.metrics = tuple(  # type: ignore[misc]
            Metric(f"{name}_accuracy{end}", f"{title}, by margin{where}", meaning)
            for end, (where, meaning) in ends.items()
        )

    def read(self, data: Path, languages: Sequence[str] | None) -> tuple[Collection[str], _Test]:
        split, files = self.files(data, languages)
        texts = {language: parallel_sentences(path) for language, path in files.items()}
        usual = Counter(map(len, texts.values())).most_common(1)[0][0]
        for language, path in files.items():
            if (length := len(texts[language])) != usual:
                raise DataError(f"{path} has {length:,} sentences, and others {usual:,}; line i must translate line i.")
        return files, (split, files, texts, _negatives(data, files[ENGLISH]))

    def score_all(self, vectors: SentenceVectors, test: _Test) -> Iterator[Score]:
        split, files, texts_of, hard = test
        english = texts_of[ENGLISH]
        of_english = unit_rows(vectors.encode([*english, *hard], ENGLISH))
        numbers_of_english, device = _numbers([*english, *hard]), str(vectors.encoder.model.device)
        errors: list[tuple[float, float]] = []
        for language, path in files.items():
            if language == ENGLISH:
                continue
            texts = texts_of[language]
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
    paths = [path for path in (english.parent / name, *sorted(data.glob(f"*/{name}"))) if path.is_file()]
    return parallel_sentences(paths[0]) if paths else []


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


FLORES = XsimTask("flores", "FLORES", _FLORES, "devtest/deu_Latn.devtest, dev/deu_Latn.jsonl", ("devtest", "dev"))
NTREX = XsimTask("ntrex", "NTREX", _NTREX, "newstest2019-ref.deu.txt or deu.txt", ("test",))
