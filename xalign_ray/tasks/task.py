"""Base classes of evaluations, with and without a fine-tuned head: files, features, predictions, metrics."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from xalign_ray.config.language_codes import ENGLISH as ENGLISH
from xalign_ray.config.language_codes import check_language
from xalign_ray.errors import DataError
from xalign_ray.models.open import open_encoder
from xalign_ray.models.tokenized import LONGEST_INPUT, Features, Inputs
from xalign_ray.tasks.scores import Score, average_languages, origin_of
from xalign_ray.tasks.task_files import (
    DOWNLOAD,
    MAX_NAMED,
    choose_languages,
    example_of,
    find_tables,
    matching_files,
    name_language,
    name_others,
    name_pattern,
    split_of,
)
from xalign_ray.work.artifacts import hash_file, write_atomic
from xalign_ray.work.status_line import say

if TYPE_CHECKING:  # of what imports torch, which names, files and metrics do without
    from xalign_ray.models.inference import Encoder
    from xalign_ray.models.vectors import SentenceVectors

SHARE, COSINE, PREMIUM, CORRELATION = "0 to 1", "-1 to 1", "1 is as English", "rank correlation, -1 to 1"
LAST = "last"  # the layer of a sentence vector as a user gets it
Files = Mapping[str, Mapping[str, Path]]  # split, then language
ReplaceWord = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric of one file."""

    value: float  # in [0, 1], a cosine in [-1, 1]
    chance: float | None  # score of a majority or random baseline on this very file
    n: int  # number of things scored


@dataclass(frozen=True, slots=True)
class Metric:
    """Facts that a reader of a score needs."""

    name: str
    title: str  # for tables
    meaning: str  # in a sentence, without the unit
    unit: str = SHARE  # of things that came out right, or CORRELATION with it; COSINE and PREMIUM describe an encoder
    higher_is_better: bool | None = True  # None where neither end is better
    by: str = ""  # how a task of several metrics computes it
    of_tuned_head: bool = False  # `<name>_supervised` where the head was tuned on the tested language


def right_key(metric: str, layer: object) -> str:
    """The key of a score's `right_ones` among the predictions of its language."""
    return f"{metric} {layer}"


def right_ones(right: Iterable[bool]) -> str:
    """Which things came out right, a digit each, as a file of predictions has it."""
    return "".join("01"[bool(is_right)] for is_right in right)


def write_rows(path: Path, rows: Mapping[str, Any]) -> None:
    """Predictions by key, a JSON object a line."""
    lines = (json.dumps({"key": key, "prediction": prediction}) for key, prediction in rows.items())
    write_atomic(path, "".join(f"{line}\n" for line in lines))


class Task(ABC):
    """An evaluation; one object a task, listed in the registry. Its metrics have names of their own."""

    name: ClassVar[str]  # for users; with the module where it is theirs: my_tasks.mood
    metrics: ClassVar[tuple[Metric, ...]]
    needs_data: ClassVar[bool] = True
    takes_prompt: ClassVar[bool] = False  # whether `evaluate` takes a text to put before each sentence
    keeps_predictions: ClassVar[bool] = False  # whether `evaluate` takes a folder for them

    @abstractmethod
    def evaluate(
        self, encoder: str, data: Path | None, languages: Sequence[str] | None = None, device: str = "auto"
    ) -> list[Score]:
        """The scores of an encoder, or of a fine-tuned folder, in each language and as a mean over them.

        Args:
            encoder: folder or hub id.
            data: file or folder; None only for a task that does not need it.
            languages: those to score; all that are found if None.
            device: a torch device; "auto" is the GPU where there is one.

        Raises:
            DataError: files are missing or malformed, or the encoder is not one for this task or for a language.
        """

    def check_data(self, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:  # noqa: ARG002
        """Refuses data that cannot be scored, before anything is trained.

        Returns:
            The languages that occur in it; none where they are not looked for.

        Raises:
            DataError: files are missing or malformed.
        """
        return ()

    def measure_again(self, score: Score, rows: Mapping[str, Any]) -> Measure | None:
        """A score from the predictions of its language, by their key; None where they lack it.

        Here from which of the things that it counts came out right: `right_ones` below the key of the score.
        """
        right = rows.get(right_key(score.metric, score.layer))
        return Measure(right.count("1") / len(right), score.chance, len(right)) if isinstance(right, str) else None

    def score_of(
        self, encoder: Encoder, split: str, language: str, metric: str, measure: Measure, **where: Any
    ) -> Score:
        """The score of an encoder in one language, with its origin; `where` are layer, pooling and test_set."""
        what = {"split": split, "language": language, "metric": metric, **asdict(measure), **where}
        return Score(**origin_of(vars(encoder.model.config), encoder.inputs.encoder), task=self.name, **what)


class SentenceTask(Task):
    """A task of sentence vectors, as a user of the encoder's folder gets them; layer is "last"."""

    takes_prompt = True

    def evaluate(
        self,
        encoder: str,
        data: Path | None,
        languages: Sequence[str] | None = None,
        device: str = "auto",
        prompt: str | None = None,
        **kept: Path | None,
    ) -> list[Score]:
        """See `Task.evaluate`; `prompt` is put before each sentence, by default the one in the encoder's files.

        A task that keeps predictions writes them into the folder `predictions`.
        """
        from xalign_ray.models.vectors import SentenceVectors

        assert data is not None
        spoken, test = self.read(data, languages)  # before the encoder is opened, which may take minutes
        vectors = SentenceVectors(open_encoder(encoder), device, prompt)
        say(f"Sentence vectors: {vectors.rule.words}.")
        vectors.encoder.inputs.check_languages(spoken)
        scores = [*self.score_all(vectors, test, **kept)]
        return scores + average_languages(scores)

    def check_data(self, data: Path, languages: Sequence[str] | None = None) -> Collection[str]:
        """Reads all that is scored."""
        return self.read(data, languages)[0]

    @abstractmethod
    def read(self, data: Path, languages: Sequence[str] | None) -> tuple[Collection[str], Any]:
        """The languages that occur in the data, and what `score_all` takes of it.

        Raises:
            DataError: see `check_data`.
        """

    @abstractmethod
    def score_all(self, vectors: SentenceVectors, test: Any, **kept: Any) -> Iterator[Score]:
        """The scores of each language; `test` comes from `read`."""

    def scores_of(
        self,
        vectors: SentenceVectors,
        split: str,
        language: str,
        test_set: str,
        measures: Mapping[str, Measure],
        **where: Any,
    ) -> Iterator[Score]:
        """The scores of an encoder's own vectors in one language; `where` may name another layer or pooling."""
        of_rule = {"layer": LAST, "pooling": vectors.rule.pooling, "vectors": vectors.rule.words, "test_set": test_set}
        for metric, measure in measures.items():
            yield self.score_of(vectors.encoder, split, language, metric, measure, **of_rule | where)


class Example(Protocol):
    """One thing that is labelled in a file. Its key is the same in a file and in that file's translation."""

    @property
    def key(self) -> str: ...

    @property
    def gold(self) -> Any: ...


E = TypeVar("E", bound=Example)


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> Measure:
    """Share of labels that were predicted; chance is the share of the most frequent label of this very set."""
    right = sum(label == other for label, other in zip(gold, predicted, strict=True))
    return Measure(right / len(gold), Counter(gold).most_common(1)[0][1] / len(gold), len(gold))


def check_keys(path: Path, examples: Sequence[Example]) -> None:
    """Refuses a file without an example, and examples of one key."""
    if not examples:
        raise DataError(f"{path} holds no example.")
    key, count = Counter(example.key for example in examples).most_common(1)[0]
    if count > 1:
        raise DataError(f"{path}: two rows have the id {key}.")


class TunedTask(Task, Generic[E]):
    """A task that a head is fine-tuned for. The first of its metrics decides between epochs and settings.

    The facts of a task are attributes of its class, or arguments: so each row of `benchmarks.yaml` is a task.

    Attributes:
        head: name of an Auto class of transformers.
        longest: pieces of an input, as `features` makes it.
        classes: of the head; none if the training file names them, or there are none.
        files: names of its files, see `name_pattern`. One without `{split}` is of the split that is a word in it, else
            a test set; one without a language is English.
        lent: names of files of other tasks, which a model can be trained and chosen on, and which are not scored.
        codes: languages of codes in names that are no language codes; "" is that of names without a code.
        same_heads: tasks whose fine-tuned models this one scores too.
    """

    head: ClassVar[str]
    longest: ClassVar[int] = LONGEST_INPUT
    classes: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]]
    lent: ClassVar[tuple[str, ...]] = ()
    codes: ClassVar[Mapping[str, str | Sequence[str]]] = {}
    same_heads: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)
        vars(self)["classes"] = tuple(map(str, self.classes))  # as files have them: a label 0 is "0"

    @property
    def metric(self) -> str:
        """The name of the one that decides."""
        return self.metrics[0].name

    @property
    def model_class(self) -> Any:
        """The Auto class that opens an encoder with the task's head."""
        import transformers

        return getattr(transformers, self.head)

    @abstractmethod
    def read(self, path: Path, language: str) -> list[E]:
        """The labelled examples of a file; DataError if there is none, or a row is malformed (file and line named)."""

    @abstractmethod
    def features(self, inputs: Inputs, examples: Sequence[E], classes: Sequence[str]) -> list[list[Features]]:
        """The inputs that each example is trained and scored on, with labels; one that is too long becomes several."""

    @abstractmethod
    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[Any]:
        """The model's prediction for each example, from its features, in the form of its `gold`."""

    def measure(self, examples: Sequence[E], predicted: Sequence[Any]) -> dict[str, Measure]:
        """All metrics of these predictions; here the accuracy."""
        return {self.metric: accuracy([example.gold for example in examples], predicted)}

    def from_gold(self, key: str, gold: Any, language: str) -> E:  # noqa: ARG002
        """An example with only its gold, by which `measure` scores a kept prediction without its file.

        The values of its metrics are right. Their chance levels, which need the text, are not.

        Args:
            key: of the example.
            gold: as a file of predictions has it.
            language: as `find` names it.
        """
        raise DataError(f"{self.name} cannot score a kept prediction: give it a method `from_gold`.")

    def check(self, examples: Sequence[E], classes: Sequence[str], path: Path) -> None:
        """Refuses examples that cannot be scored, before anything is trained. A task that takes all has no check.

        Args:
            classes: of the head.
            path: their file, for messages.

        Raises:
            DataError: in a sentence.
        """

    @abstractmethod
    def replace_words(self, example: E, replace_word: ReplaceWord) -> E:
        """The example with each of its words replaced by what `replace_word` makes of it; labels stay."""

    def switch(self, english: E, other: E) -> list[E]:  # noqa: ARG002
        """Both code-switched examples made of an example of two sides and its translation (PPA, section 2.3)."""
        raise DataError(
            f"{self.name} has examples of one text, so no sentence of them can be switched; train on translate_train "
            "or word_switch instead."
        )

    def classes_of(self, examples: Iterable[E]) -> tuple[str, ...]:  # noqa: ARG002
        """The head's classes, for tasks whose training examples name them."""
        return self.classes

    def languages_of(self, parts: Mapping[str, str], path: Path) -> Collection[str]:
        """The languages of a file, by the parts of its name."""
        code = parts.get("language", "")
        codes = self.codes.get(code, code or ENGLISH)
        return [name_language(code_of_file, path) for code_of_file in ([codes] if isinstance(codes, str) else codes)]

    def speaks(self, language: str) -> Sequence[str]:
        """The languages that occur in a file of this language, as `find` names it."""
        return (language,)

    def canonical(self, language: str) -> str:
        """A requested language, as `find` names it."""
        return check_language(language)

    def find(self, folders: Sequence[Path]) -> Files:
        """The task's files in these folders, by split, then language. Looks at names, opens none.

        Raises:
            DataError: a folder is missing, there is nothing in any (what there is instead is named), or two files are
                the same split of one language.
        """
        files: dict[str, dict[str, Path]] = {"train": {}, "dev": {}, "test": {}}
        names = [*dict.fromkeys((*self.lent, *self.files))]
        examples = [*map(example_of, names[:MAX_NAMED])]
        for folder in folders:
            if not folder.is_dir():
                raise DataError(
                    f"{folder} is not a folder; give the folder of {self.name} files such as {examples[0]}, or of "
                    f"Hugging Face data sets. {DOWNLOAD}"
                )
            named = (
                (language, split_of(parts.get("split") or name), path)
                for name, parts, path in matching_files(folder, names, self.codes)
                for language in self.languages_of(parts, path)
            )
            for language, split, path in (*find_tables(folder), *named):
                if not (known_path := files[split].setdefault(language, path)).samefile(
                    path
                ):  # a README may name it too
                    raise DataError(f"{path} and {known_path} are both {split} of {language}; keep one.")
        if not any(files.values()):
            where = ", ".join(map(str, folders))
            raise DataError(
                f"{where}: no {self.name} files; they are called {', '.join(examples)}.{name_others(files, folders)}"
            )
        return files

    def find_all(
        self, folders: Sequence[Path], languages: Sequence[str] | None, train_language: str
    ) -> tuple[Files, dict[str, str]]:
        """Files of a fine-tuning, and the split that each language is scored on; all must exist."""
        files = self.find(folders)
        for split in ("train", "dev"):
            if train_language not in files[split]:
                name = example_of((*self.lent, *self.files)[0], split, train_language)
                raise DataError(
                    f"{', '.join(map(str, folders))}: no {split} file in {train_language}, such as {name}; {self.name} "
                    f"needs it.{name_others(files, folders)}"
                )
        return files, self.choose_tested(files, languages, train_language, folders)

    def choose_tested(
        self, found: Files, asked: Sequence[str] | None, tuned_on: str, folders: Sequence[Path]
    ) -> dict[str, str]:
        """The split that each language is scored on: all languages from English, else only the one tuned on itself.

        A language without a test file is scored on its dev file, the `split` of its score.
        """
        lent, where = [name_pattern(name) for name in {*self.lent} - {*self.files}], ", ".join(map(str, folders))
        splits = {
            language: split
            for split in ("dev", "test")
            for language, path in found[split].items()
            if not any(pattern.fullmatch(path.name) for pattern in lent)
        }
        if lent and not splits:
            examples = ", ".join(map(example_of, self.files))
            raise DataError(
                f"{where}: no file to score {self.name} on, such as {examples}; other tasks score the others."
            )
        if tuned_on == ENGLISH:
            return {language: splits[language] for language in choose_languages(splits, asked, where, self.canonical)}
        if others := sorted(set(asked or ()) - {tuned_on}):
            raise DataError(
                f"A model fine-tuned on {tuned_on} is scored on {tuned_on} only, not on {', '.join(others)}; zero-shot "
                "scores are those of a model fine-tuned on English."
            )
        return {language: splits[language] for language in choose_languages(splits, [tuned_on], where, self.canonical)}

    def evaluate(
        self, encoder: str, data: Path | None, languages: Sequence[str] | None = None, device: str = "auto"
    ) -> list[Score]:
        """The metrics of a fine-tuned folder; one made elsewhere will do where its head has exactly these classes."""
        from xalign_ray.models.inference import Encoder

        assert data is not None
        tuned = Encoder.open(open_encoder(encoder), device, self.model_class)
        is_ours = getattr(tuned.model.config, "xalign_task", None) in {self.name, *self.same_heads}
        if not is_ours and (not self.classes or set(tuned.classes) != set(self.classes)):
            raise DataError(f"{encoder} has no head for {self.name}; fine-tune it first (xalign tune).")
        files = self.find([data])
        tested = self.choose_tested(files, languages, tuned.tuned_on, [data])
        tuned.inputs.check_languages({name for language in tested for name in self.speaks(language)})
        return self.score(tuned, files, tested)

    def score(
        self, tuned: Encoder, found: Files, tested: Mapping[str, str], predictions: Path | None = None
    ) -> list[Score]:
        """The metrics of a fine-tuned model in each language, and for each split their mean over its languages.

        Into the folder `predictions` goes `<language>.jsonl`: a line an example, its key, the prediction and the gold.

        Args:
            tested: the split of each language that is scored.
        """
        suffix = "" if tuned.tuned_on == ENGLISH else "_supervised"
        scores = []
        for language, split in tested.items():
            path = found[split][language]
            examples = self.read(path, language)
            self.check(examples, tuned.classes, path)
            predicted = self.predict(tuned, self.features(tuned.inputs, examples, tuned.classes))
            test_set = hash_file(path)
            for metric, measure in self.measure(examples, predicted).items():
                scores.append(self.score_of(tuned, split, language, metric + suffix, measure, test_set=test_set))
            if predictions:
                pairs = zip(examples, predicted, strict=True)
                rows = (
                    {"key": example.key, "prediction": prediction, "gold": example.gold}
                    for example, prediction in pairs
                )
                lines = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
                write_atomic(predictions / f"{language}.jsonl", lines)
        return scores + average_languages(scores)
