"""What a task is fine-tuned on: English, its translations, or English code-switched by sentences or by words."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xalign_ray.data.sources.formats import read
from xalign_ray.data.sources.records import Entry
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.tasks.task import ReplaceWord, TunedTask

Unit = Sequence[Any]  # examples that always share a batch


@dataclass(frozen=True, slots=True)
class Training:
    """What is fine-tuned on, beside English.

    Attributes:
        kind: "english" (zero-shot), "translate_train" (English and the translations, as the papers' baselines),
            "sentence_switch" (PPA, section 2.3: the two mixed pairs of an example and its translation instead of the
            translated pair), or "word_switch" (words of English replaced by a dictionary, anew in every epoch).
        languages: of the translations; all that have a training file if none are named.
        dictionaries: MUSE files called SOURCE-TARGET.txt, of `word_switch`.
        share: of the words that a dictionary has, how many are replaced.
    """

    kind: str = "english"
    languages: tuple[str, ...] = ()
    dictionaries: tuple[str, ...] = ()
    share: float = 0.5

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"training.kind is '{self.kind}'; it must be one of {', '.join(KINDS)}.")
        if not 0 < self.share <= 1:
            raise ConfigError(f"training.share is {self.share}; it must be above 0 and at most 1.")
        if bool(self.dictionaries) != (self.kind == "word_switch"):
            raise ConfigError(
                "training.dictionaries is for word_switch, which needs at least one, and for nothing else."
            )


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """What is trained on; files are read where `units` is called, a translation at a time.

    Attributes:
        units: of examples, from the first.
        files: whose content decides what the units are.
        unit_size: examples of a unit: so many times fewer units make a batch (PPA: 16 pairs, 32 rows).
        switcher: what becomes of a word in an epoch and a unit, both by number; None if words stay.
    """

    units: Callable[[], Iterable[Unit]]
    files: Sequence[Path]
    unit_size: int = 1
    switcher: Callable[[int, int], ReplaceWord] | None = None

    def examples(self) -> Iterator[Any]:
        """Those of all units."""
        for unit in self.units():
            yield from unit


@dataclass(frozen=True, slots=True)
class _Source:
    """What all kinds begin with: the files of the `train` split, and which of them is the one in English."""

    task: TunedTask[Any]
    files: Mapping[str, Path]
    english: str
    most: int | None
    training: Training
    seed: int

    def read(self) -> Sequence[Any]:
        """The examples of the one in English."""
        return self.task.read(self.files[self.english], self.english)[: self.most]

    def translations(self) -> list[str]:
        """The languages of translations.

        Raises:
            DataError: a file is missing.
        """
        name, found = self.task.name, sorted(self.files)
        wanted = self.training.languages or tuple(code for code in found if code != self.english)
        if missing := sorted(set(wanted) - set(found)):
            raise DataError(f"{name}: no training file in {', '.join(missing)}; there are files in {', '.join(found)}.")
        if not wanted:
            raise DataError(f"{name}: {self.training.kind} needs training files in languages beside {self.english}.")
        return list(wanted)

    def join(self, examples: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """(original, translation) pairs, language by language; an original without a translation is left out there.

        Raises:
            DataError: a file shares no example with the one in English.
        """
        for language in self.translations():
            path = self.files[language]
            translations = {example.key: example for example in self.task.read(path, language)}
            pairs = [(one, translations[one.key]) for one in examples if one.key in translations]
            if not pairs:
                raise DataError(f"{path} shares no example with {self.files[self.english]}; is it its translation?")
            yield from pairs

    def all_files(self) -> list[Path]:
        """English and its translations."""
        return [self.files[language] for language in (self.english, *self.translations())]


def load_training(
    task: TunedTask[Any], files: Mapping[str, Path], english: str, training: Training, most: int | None, seed: int
) -> TrainingSet:
    """Finds what is trained on.

    Args:
        task: whose files they are.
        files: of the `train` split, by language.
        english: the language that is fine-tuned on; not English where another one is.
        training: what is made of it.
        most: examples of its file that are used, from the first; all if None.
        seed: of what is random.

    Raises:
        DataError: a file is missing; where units are read: malformed, or a translation of nothing in English.
    """
    return KINDS[training.kind](_Source(task, files, english, most, training, seed))


def _plain(source: _Source) -> TrainingSet:
    return TrainingSet(lambda: ((example,) for example in source.read()), [source.files[source.english]])


def _translated(source: _Source) -> TrainingSet:
    def units() -> Iterator[Unit]:
        english = source.read()
        yield from ((example,) for example in english)
        yield from ((translation,) for _, translation in source.join(english))

    return TrainingSet(units, source.all_files())


def _switched_sentences(source: _Source) -> TrainingSet:
    def units() -> Iterator[Unit]:
        return (source.task.switch(*pair) for pair in source.join(source.read()))

    return TrainingSet(units, source.all_files(), unit_size=2)


def _switched_words(source: _Source) -> TrainingSet:
    lexicon = _read_dictionaries(source.training.dictionaries, source.english)

    def switcher(epoch: int, number: int) -> ReplaceWord:
        rng = random.Random(f"word_switch/{source.seed}/{epoch}/{number}")

        def replace_word(word: str) -> str:
            by_language = lexicon.get(word) or lexicon.get(word.lower())
            if by_language is None or rng.random() >= source.training.share:
                return word
            return rng.choice(rng.choice(by_language))  # a language first, then one of its synonyms (DICT, 2.2)

        return replace_word

    return replace(_plain(source), switcher=switcher)


KINDS: dict[str, Callable[[_Source], TrainingSet]] = {
    "english": _plain,
    "translate_train": _translated,
    "sentence_switch": _switched_sentences,
    "word_switch": _switched_words,
}


def _read_dictionaries(paths: Sequence[str], source: str) -> dict[str, list[list[str]]]:
    """Translations of each word, a list a language, of files called SOURCE-TARGET.txt."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        first, _, second = Path(path).name.split(".")[0].partition("-")
        if first != source or not second:
            raise DataError(f"{path}: word_switch takes dictionaries called {source}-TARGET.txt, as {source}-de.txt.")
        for entry in read("muse", [path], (first, second)):
            if isinstance(entry, Entry) and entry.words[0] != entry.words[1]:
                found[entry.words[0]][second].append(entry.words[1])
    return {word: list(languages.values()) for word, languages in found.items()}
