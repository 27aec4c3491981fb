"""Training sets of fine-tuning: English, its translations, or English code-switched; and checks before it starts."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from xalign_ray.config.fields import Float, Frozen
from xalign_ray.errors import DataError
from xalign_ray.models.open import Opened, open_encoder
from xalign_ray.sources.language_id import codes_in_name
from xalign_ray.sources.records import list_reasons
from xalign_ray.tasks.task import Files, ReplaceWord, TunedTask
from xalign_ray.tasks.task_files import read_entries
from xalign_ray.vocabulary.dictionary import look_up_form

Unit = Sequence[Any]  # examples that always share a batch
PER_LANGUAGE = "_per_language"  # ends the name of a training with a model a language


class Training(Frozen):
    """A training set.

    `english` is zero-shot; `translated` is the translations without English; `translate_train` is English and the
    translations; `sentence_switch` is the two mixed pairs of an example and its translation and nothing else (PPA,
    section 2.3); `word_switch` replaces words of English by a dictionary, anew in every epoch.
    """

    kind: Literal["english", "translated", "translate_train", "sentence_switch", "word_switch"] = "english"
    languages: Annotated[
        tuple[str, ...], Field(description="of the translations; all that have a training file if none")
    ] = ()
    dictionaries: Annotated[
        tuple[str, ...], Field(description="of `word_switch`: in any form, two languages in each name, as en-de.txt")
    ] = ()
    share: Annotated[Float, Field(gt=0, le=1, description="of the words that a dictionary has, replaced")] = 0.5
    per_language: Annotated[
        bool,
        Field(description="a model for each language, trained on it and tested on it alone (translate-train of PPA)"),
    ] = False

    @model_validator(mode="after")
    def _has_dictionaries_to_switch_words(self) -> Training:
        if bool(self.dictionaries) != (self.kind == "word_switch"):
            raise ValueError("dictionaries is for word_switch, which needs at least one, and for nothing else")
        if self.per_language and not self.has_translations:
            raise ValueError(f"per_language is for training on translations; {self.kind} has none")
        return self

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.kind}{PER_LANGUAGE}" if self.per_language else self.kind

    @property
    def has_translations(self) -> bool:
        """Whether training files of other languages are read."""
        return self.kind not in ("english", "word_switch")

    @property
    def models(self) -> tuple[Training, ...]:
        """What each model is trained on: all of it, or one of its languages, which must be named."""
        if not self.per_language:
            return (self,)
        return tuple(self.model_copy(update={"languages": (language,)}) for language in self.languages)


@dataclass(frozen=True)
class TrainingSet:
    """The examples; `units` reads the files, a translation at a time. They must exist."""

    task: TunedTask[Any]
    found: Mapping[str, Path]  # files of the `train` split, by language
    english: str  # the language that is fine-tuned on; not English where another one is
    training: Training
    most: int | None  # examples of its file that are used, from the first; all if None
    seed: int  # of all random choices
    files: list[Path] = field(init=False)  # that are read: English and its translations
    lexicon: Mapping[str, Sequence[Sequence[str]]] = field(init=False)  # of words to switch; empty if words stay
    # By language, once it was joined: originals without a translation, and translations of none of them.
    unpaired: dict[str, tuple[int, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        read = [self.english, *(self._translations() if self.training.has_translations else ())]
        object.__setattr__(self, "files", [self.found[language] for language in read])
        object.__setattr__(self, "lexicon", _read_dictionaries(self.training.dictionaries, self.english))

    def units(self) -> Iterator[Unit]:
        """From the first; DataError if a file is malformed, or a translation of nothing in English."""
        english, kind = self.read(), self.training.kind
        if kind in ("english", "translate_train", "word_switch"):  # whose words `switcher` replaces
            yield from ((example,) for example in english)
        if self.training.has_translations:
            for original, translation in self.join(english):
                yield self.task.switch(original, translation) if kind == "sentence_switch" else (translation,)

    def examples(self) -> Iterator[Any]:
        return (example for unit in self.units() for example in unit)

    @property
    def unit_size(self) -> int:
        """Examples of a unit: a batch has fewer units by this factor (PPA: 16 pairs, 32 rows)."""
        return 2 if self.training.kind == "sentence_switch" else 1

    def switcher(self, epoch: int, unit: int) -> ReplaceWord:
        """What becomes of a word in an epoch and a unit, both by number."""
        rng = random.Random(f"word_switch/{self.seed}/{epoch}/{unit}")

        def replace_word(word: str) -> str:
            by_language = self.lexicon.get(look_up_form(word, self.english))
            if by_language is None or rng.random() >= self.training.share:
                return word
            return rng.choice(rng.choice(by_language))  # a language first, then one of its synonyms (DICT, 2.2)

        return replace_word

    def read(self) -> Sequence[Any]:
        """The examples in English."""
        return self.task.read(self.found[self.english], self.english)[: self.most]

    def join(self, examples: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """(original, translation) pairs, language by language; what has no other half is left out and counted."""
        for language in self._translations():
            path = self.found[language]
            translations = {example.key: example for example in self.task.read(path, language)}
            pairs = [(example, translations[example.key]) for example in examples if example.key in translations]
            if not pairs:
                raise DataError(f"{path} shares no example with {self.found[self.english]}; is it its translation?")
            beyond = 0 if self.most else len(translations) - len(pairs)  # pairs beyond `most` are left out on purpose
            self.unpaired[language] = len(examples) - len(pairs), beyond
            yield from pairs

    def _translations(self) -> list[str]:
        name, languages = self.task.name, sorted(self.found)
        wanted = self.training.languages or tuple(code for code in languages if code != self.english)
        if missing := sorted(set(wanted) - set(languages)):
            raise DataError(
                f"{name}: no training file in {', '.join(missing)}; there are files in {', '.join(languages)}."
            )
        if not wanted:
            raise DataError(f"{name}: {self.training.kind} needs training files in languages beside {self.english}.")
        return list(wanted)


def _read_dictionaries(paths: Sequence[str], source: str) -> dict[str, list[list[str]]]:
    """Translations of each word by its look-up form, a list a language, of files whose names hold two languages.

    Raises:
        DataError: a name does not hold these two languages, or a file holds no word of `source` with a translation.
    """
    translations: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        codes = codes_in_name(path)
        if len(codes) != 2 or source not in codes:
            raise DataError(
                f"{path}: its name does not say {source} and another language. Call it {source}-de.txt, "
                f"terms.{source}-de.tsv or so."
            )
        at, left_out, words = codes.index(source), Counter[str](), 0
        for record in read_entries(Path(path), left_out):
            word, translation = record.words[at], record.words[1 - at]
            if word == translation:
                left_out["translated by itself"] += 1
            elif " " in word:
                left_out["term of several words"] += 1
            else:
                translations[look_up_form(word, source)][codes[1 - at]].append(translation)
                words += 1
        if not words:
            raise DataError(
                f"{path} holds no word of {source} to switch; set aside: {list_reasons(left_out) or 'none'}."
            )
    return {word: list(languages.values()) for word, languages in translations.items()}


@dataclass(frozen=True)
class TuningFiles:
    """The files of a fine-tuning, found by their names; none is opened.

    Attributes:
        task: that they are of.
        train_language: that is fine-tuned on.
        found: all files, by split, then language.
        tested: the split that each language is scored on.
    """

    task: TunedTask[Any]
    train_language: str
    found: Files
    tested: Mapping[str, str]

    @classmethod
    def find(
        cls,
        task: TunedTask[Any],
        folders: Sequence[Path],
        languages: Sequence[str] | None,
        train_language: str,
    ) -> TuningFiles:
        """Looks for the files in all folders; DataError if one is missing. Arguments as of `tune_task`."""
        return cls(task, train_language, *task.find_all(folders, languages, train_language))

    @property
    def dev(self) -> Path:
        """The file that chooses the epoch."""
        return self.found["dev"][self.train_language]

    @property
    def targets(self) -> tuple[str, ...]:
        """The languages that have a training and a test file, but for that which is trained on."""
        return tuple(code for code in self.tested if code in self.found["train"] and code != self.train_language)

    def spoken(self, training: Training) -> set[str]:
        """The languages that an encoder with language embeddings must have one for."""
        translations = (training.languages or self.found["train"]) if training.has_translations else ()
        tested = (name for language in self.tested for name in self.task.speaks(language))
        return {self.train_language, *translations, *tested}

    def training_set(self, training: Training, most: int | None, seed: int) -> TrainingSet:
        """The examples that are trained on."""
        return TrainingSet(self.task, self.found["train"], self.train_language, training, most, seed)

    def check_contents(self, training: Training, most: int | None) -> str:
        """Reads the files, so that one that cannot be scored is refused before anything is trained.

        Returns:
            A sentence on training examples that are left out because they have no answer or translation; empty if
            there are none.

        Raises:
            DataError: a file is malformed, or cannot be scored by the head that is trained.
        """
        task, training_set = self.task, self.training_set(training, most, 0)
        examples = list(training_set.examples())
        classes, lost = task.classes_of(examples), sum(not example.gold for example in examples)
        scored = {self.dev: self.train_language}
        scored |= {self.found[split][language]: language for language, split in self.tested.items()}
        for path, language in scored.items():
            task.check(task.read(path, language), classes, path)
        left_out = [f"{lost} of {len(examples)} training examples have no answer and are left out"] if lost else []
        for language, (originals, translations) in training_set.unpaired.items():
            if originals:
                left_out.append(
                    f"{originals} of the examples in {self.train_language} have no translation in {language}"
                )
            if translations:
                left_out.append(f"{translations} of those in {language} translate none of them and are left out")
        return f"{task.name}: {'; '.join(left_out)}." if left_out else ""


def head_pooling(opened: Opened) -> str | None:
    """The pooling of a transformers head that equals the one in an encoder's files; None if there is none.

    Only ModernBERT's heads have it as an option, `classifier_pooling`, for texts and answers.
    """
    pooling = opened.sentences.pooling
    return pooling if opened.config["model_type"] == "modernbert" and pooling in ("mean", "cls") else None


def note_pooling(encoder: str, name: str) -> str:
    """A sentence on how fine-tuning treats a local Sentence Transformers folder's pooling and prompt; empty for others.

    Args:
        name: of the encoder, for the reader.
    """
    if not Path(encoder).is_dir():
        return ""
    opened = open_encoder(encoder)
    files = opened.sentences
    if not files.pooling:
        return ""
    behind = f" behind the prompt {files.prompt!r}" if files.prompt else ""
    made = f"{name} makes sentence vectors by {files.pooling} pooling{behind}."
    if head_pooling(opened):
        return f"{made} Heads for texts pool in the same way{', without the prompt' if files.prompt else ''}."
    return f"{made} Fine-tuning uses neither: a head of transformers is put on the encoder, as its model class does it."
