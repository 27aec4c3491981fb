"""Text classification: any table of texts and labels, and XNLI, PAWS-X, MLDoc, SIB-200, MasakhaNEWS and AfriSenti."""

from __future__ import annotations

import ast
import csv
import itertools
import logging
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from xalign_ray.errors import DataError
from xalign_ray.models.tokenized import Features, Inputs
from xalign_ray.tasks.task import Measure, Metric, ReplaceWord, TunedTask, accuracy
from xalign_ray.tasks.task_files import (
    LANGUAGE,
    SPLIT,
    column_in,
    is_table,
    name_language,
    plain_language,
    read_lines,
    read_rows,
)

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder


LABEL = "label"  # the column of the label in most data sets of the hub
LONGEST_TEXT = 128  # pieces; PPA's and XTREME's
Row = tuple[int, str, tuple[str, ...], str]  # line, key, texts, label

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LabelledText:
    """One text with a label, or a pair of texts."""

    key: str  # equal in a file and in its translation
    texts: tuple[str, ...]  # one or two
    languages: tuple[str, ...]  # of each text
    label: str  # a class of the task

    @property
    def gold(self) -> str:
        return self.label


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a table are read, by name; others are left alone."""

    texts: tuple[str, ...]  # one or two
    label: str
    key: str | None = None  # equal in a translation's row; without it that is the number of the row
    language: str | None = None  # rows of other languages than the file's are left out
    header: bool = True  # the file's first line has the names; if not, it may have exactly these columns in this order
    quoted: bool = False  # fields may be quoted as in CSV, and then hold tabs and line ends

    @property
    def names(self) -> tuple[str, ...]:
        """Of all that are read."""
        return tuple(name for name in (self.key, *self.texts, self.label, self.language) if name)


class ClassificationTask(TunedTask[LabelledText]):
    """A task with one label for a text or a pair. Its files are tables, or `rows` reads them."""

    head = "AutoModelForSequenceClassification"
    longest = LONGEST_TEXT
    layouts: ClassVar[Sequence[Columns]]  # of its tables: the first whose header is there, else the one without one
    spellings: ClassVar[Mapping[str, str]] = {}  # other spellings of classes
    translations_keep_labels: ClassVar[bool] = True  # if not, a translation may have another label than its original

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        """The rows of a table whose columns are parted by tabs; DataError where no layout or number of columns fits."""
        if is_table(path):
            yield from self._rows_of_table(path)
            return
        lines = read_lines(path)
        header = lines[0].split("\t") if lines else []
        named = next((one for one in self.layouts if set(one.names) <= set(header)), None)
        columns = named or next((one for one in self.layouts if not one.header), None)
        if columns is None:
            raise DataError(f"{path}, line 1: not a header with the columns {', '.join(self.layouts[0].names)}.")
        names = header if named else columns.names
        hint = "" if named else "; XTREME's own test files lack the label: take those of the data set itself"
        numbers, first, below = itertools.count(), (2 if named else 1), lines[bool(named) :]
        rows = csv_cells(path, below, first, "\t") if columns.quoted else _cells(below, first)
        for line, cells in rows:
            if len(cells) != len(names):
                raise DataError(
                    f"{path}, line {line}: {len(cells)} columns; {len(names)} were expected, with "
                    f"{', '.join(columns.names)}{hint}."
                )
            row = dict(zip(names, cells, strict=True))
            if columns.language is None or row[columns.language].strip() == language:
                key = row[columns.key].strip() if columns.key else str(next(numbers))
                written = (row[name] if columns.quoted else _unquote(row[name]) for name in columns.texts)
                texts = tuple(text.strip() for text in written)
                yield line, key, texts, row[columns.label].strip()

    def _rows_of_table(self, path: Path) -> Iterator[Row]:
        rows = read_rows(path)
        there = set(rows[0]) if rows else set()
        fitting = [one for one in self.layouts if set(one.texts) <= there and {one.label, LABEL} & there]
        if not fitting:
            wanted = " or ".join(dict.fromkeys(", ".join((*one.texts, one.label)) for one in self.layouts))
            raise DataError(f"{path} has not the columns {wanted}; it has {', '.join(sorted(there)) or 'no rows'}.")
        columns = fitting[0]
        label = column_in(path, rows, (columns.label, LABEL))
        for number, row in enumerate(rows, 1):
            key = str(row[columns.key]) if columns.key and columns.key in there else str(number - 1)
            yield number, key, tuple((row[name] or "").strip() for name in columns.texts), str(row[label]).strip()

    def read(self, path: Path, language: str) -> list[LabelledText]:
        """One side of a pair may be empty, as in some machine translations; a class without a row is warned about."""
        examples: dict[str, LabelledText] = {}
        for line, key, texts, written in self.rows(path, language):
            label = self.spellings.get(written, written)
            if label not in self.classes:
                raise DataError(f"{path}, line {line}: the label {label!r} is none of {', '.join(self.classes)}.")
            if not any(texts):
                raise DataError(f"{path}, line {line}: there is no text.")
            if key in examples:
                raise DataError(f"{path}: two rows have the id {key}.")
            examples[key] = LabelledText(key, texts, (language,) * len(texts), label)
        if not examples:
            raise DataError(f"{path} holds no example.")
        if missing := sorted(set(self.classes) - {example.label for example in examples.values()}):
            log.warning("%s: no row has the label %s; other files may", path, ", ".join(missing))
        return list(examples.values())

    def features(
        self, inputs: Inputs, examples: Sequence[LabelledText], classes: Sequence[str]
    ) -> list[list[Features]]:
        """An input of at most 128 pieces for each example; of a pair the longer text is cut first."""
        pieces = iter(inputs.piece_texts([text for example in examples for text in example.texts]))
        room = inputs.room(self.longest)
        found = []
        for example in examples:
            first, *others = (next(pieces) for _ in example.texts)
            if others:
                left, right = longest_first(len(first), len(others[0]), room - len(inputs.middle))
                row = inputs.pair(first[:left], others[0][:right], example.languages)
            else:
                row = inputs.single(first[:room], example.languages[0])
            found.append([row | {"labels": classes.index(example.label)}])
        return found

    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[str]:
        found = tuned.forward([one for (one,) in features], lambda output: output.logits.argmax(dim=-1))
        return [tuned.classes[int(index)] for index in found]

    def from_gold(self, key: str, gold: str, language: str) -> LabelledText:
        return LabelledText(key, (), (language,), gold)

    def measure(self, examples: Sequence[LabelledText], predicted: Sequence[str]) -> dict[str, Measure]:
        return {self.metric: accuracy([example.label for example in examples], predicted)}

    def switch(self, english: LabelledText, other: LabelledText) -> list[LabelledText]:
        if len(english.texts) < 2:
            return super().switch(english, other)
        if self.translations_keep_labels and english.label != other.label:
            raise DataError(
                f"{self.name}: example {english.key} is {english.label} in {english.languages[0]} and {other.label} in "
                f"{other.languages[0]}; the training files are not translations of each other row by row."
            )
        return [
            replace(english, texts=(one.texts[0], two.texts[1]), languages=(one.languages[0], two.languages[1]))
            for one, two in ((other, english), (english, other))
        ]

    def replace_words(self, example: LabelledText, replace_word: ReplaceWord) -> LabelledText:
        return replace(example, texts=tuple(replace_running_words(text, replace_word) for text in example.texts))


def _cells(lines: Sequence[str], first: int) -> Iterator[tuple[int, list[str]]]:
    return enumerate((line.split("\t") for line in lines), first)


def csv_cells(path: Path, lines: Sequence[str], first: int, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The columns of each row, which may hold line ends, and the number of its first line.

    Raises:
        DataError: a quote is not closed.
    """
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        line = first + reader.line_num
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}, line {line}: a quoted field is malformed ({error}).") from None
        if cells is None:
            return
        yield line, cells


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many pieces of two texts are kept in this room: the longer one is cut until both are equally long.

    Hugging Face's tokenizers call it `longest_first`. Of an odd room the longer text has one more, the second of
    equals.
    """
    if first + second <= room:
        return first, second
    kept = min(first, second, room // 2)
    return (room - kept, kept) if first > second else (kept, room - kept)


def replace_running_words(text: str, replace_word: ReplaceWord) -> str:
    """Running text with each word replaced: what white space parts, without the punctuation around it, which stays."""

    def replace_core(match: re.Match[str]) -> str:
        token = match[0]
        letters = [place for place, sign in enumerate(token) if unicodedata.category(sign)[0] not in "PS"]
        if not letters:
            return token
        begin, end = letters[0], letters[-1] + 1
        return token[:begin] + replace_word(token[begin:end]) + token[end:]

    return re.sub(r"\S+", replace_core, text)


def _unquote(cell: str) -> str:
    """Undoes CSV's quotes, which XTREME's script puts around a text that holds quotes: `"a ""b"" c"` is `a "b" c`."""
    inner = cell[1:-1]
    quoted = len(cell) > 1 and cell[0] == cell[-1] == '"' and '""' in inner and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if quoted else cell


_NO_CONSENSUS = "-"  # the gold label of SNLI's and MultiNLI's pairs that annotators did not agree on
OFFICIAL_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")


class XnliTask(ClassificationTask):
    """XNLI: whether a hypothesis follows from a premise.

    Files are XTREME's `dev-de.tsv`, the translations `multinli.train.de.tsv`, and XNLI's own `xnli.test.tsv`.

    Pairs without a gold label (`-`) are left out with their number, as is usual for SNLI and MultiNLI.
    """

    name = "xnli"
    metrics = (Metric("xnli_accuracy", "Inference (XNLI)", "pairs whose inference was predicted right"),)
    classes = ("contradiction", "entailment", "neutral")
    spellings: ClassVar = {"contradictory": "contradiction"}  # in the training files
    file_names = ("{split}-{language}.tsv", "multinli.train.en.tsv", "xnli.test.tsv")
    patterns = (
        re.compile(rf"{SPLIT}-{LANGUAGE}\.tsv"),  # XTREME
        re.compile(rf"multinli\.(?P<split>train)\.{LANGUAGE}\.tsv"),  # XNLI's machine translations, and their original
        re.compile(r"(?P<language>xnli)\.(?P<split>dev|test)\.tsv"),  # XNLI itself: all languages in one file
    )
    layouts = (
        Columns(texts=("sentence1", "sentence2"), label="gold_label", language="language"),
        Columns(texts=("sentence1", "sentence2"), label="gold_label"),
        Columns(texts=("sentence1", "sentence2"), label="label"),
        Columns(texts=("premise", "hypo"), label="label"),
        Columns(texts=("premise", "hypothesis"), label="label", header=False),
    )

    def languages_of(self, code: str, path: Path) -> Collection[str]:
        return OFFICIAL_LANGUAGES if code == "xnli" else super().languages_of(code, path)

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        without = 0
        for row in super().rows(path, language):
            if row[-1] == _NO_CONSENSUS:
                without += 1
            else:
                yield row
        if without:
            log.warning("%s: %d pairs without a gold label (-) are left out", path, without)


XNLI = XnliTask()


_NO_SENTENCE = "NS"  # stands for a sentence that the translators left out


class PawsxTask(ClassificationTask):
    """PAWS-X: whether two sentences of nearly the same words mean the same.

    Files are XTREME's `dev-de.tsv`, or PAWS-X's own `de/dev_2k.tsv`.

    Labels of translations are not always the English ones (27 of the first 1500 German rows, as published). Rows
    without a sentence (`NS`) are kept, as XTREME keeps them, so that scores can stand beside published ones.
    """

    name = "pawsx"
    metrics = (Metric("pawsx_accuracy", "Paraphrases (PAWS-X)", "pairs correctly said to be paraphrases or not"),)
    classes = ("0", "1")
    translations_keep_labels = False
    file_names = ("{split}-{language}.tsv", "en/dev_2k.tsv")
    patterns = (
        re.compile(rf"{SPLIT}-{LANGUAGE}\.tsv"),  # XTREME
        re.compile(rf"{LANGUAGE}/(?:translated_)?{SPLIT}(?:_2k)?\.tsv"),  # PAWS-X itself
    )
    layouts = (
        Columns(texts=("sentence1", "sentence2"), label="label", key="id"),
        Columns(texts=("sentence1", "sentence2"), label="label", header=False),
    )

    def read(self, path: Path, language: str) -> list[LabelledText]:
        examples = super().read(path, language)
        if without := sum(_NO_SENTENCE in example.texts for example in examples):
            log.info("%s: %d of %d pairs lack a sentence (NS); kept, as XTREME does", path, without, len(examples))
        return examples


PAWSX = PawsxTask()


class SibTask(ClassificationTask):
    """SIB-200: topics of single sentences of Flores, seven classes.

    Files are `eng_Latn/train.tsv` and so on; rows of all languages are joined by `index_id`.
    """

    name = "sib"
    metrics = (Metric("sib_accuracy", "Topics of sentences (SIB-200)", "sentences whose topic was predicted right"),)
    classes = ("entertainment", "geography", "health", "politics", "science/technology", "sports", "travel")
    file_names = ("eng_Latn/{split}.tsv",)
    patterns = (re.compile(rf"(?P<language>[a-z]{{3}}_[A-Z][a-z]{{3}})/{SPLIT}\.tsv"),)
    layouts = (Columns(texts=("text",), label="category", key="index_id"),)

    def languages_of(self, code: str, path: Path) -> Sequence[str]:
        """The language of a Flores code, with its script only where it is not the usual one."""
        return (plain_language(code) or name_language(code, path),)


SIB = SibTask()


class MasakhanewsTask(ClassificationTask):
    """MasakhaNEWS: topics of news in African languages, seven classes, from headline and text.

    Files are `eng/train.tsv` and so on, as published: quoted fields that may hold line ends.
    """

    name = "masakhanews"
    metrics = (
        Metric("masakhanews_accuracy", "Topics of news (MasakhaNEWS)", "news texts whose topic was predicted right"),
    )
    classes = ("business", "entertainment", "health", "politics", "religion", "sports", "technology")
    file_names = ("{language}/{split}.tsv", "eng/train.tsv")
    patterns = (re.compile(rf"{LANGUAGE}/{SPLIT}\.tsv"),)
    layouts = (Columns(texts=("headline", "text"), label="category", quoted=True),)

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        """A row's one text is its headline and, after a blank, the article."""
        for line, key, texts, label in super().rows(path, language):
            yield line, key, (" ".join(" ".join(texts).split()),), label


MASAKHANEWS = MasakhanewsTask()


SHARED_TASK_CODES = {"kr": "rw", "dz": "arq", "ma": "ary"}  # the shared task's own codes, where they are others


class AfrisentiTask(ClassificationTask):
    """AfriSenti (SemEval-2023 task 12): sentiment of tweets in African languages, three classes.

    Files are `hau/train.tsv`, or the shared task's `ha_train.tsv`. There is no English: tune on a language.

    A macro F1, by which the shared task ranked, is not computed.
    """

    name = "afrisenti"
    metrics = (Metric("afrisenti_accuracy", "Sentiment (AfriSenti)", "tweets whose sentiment was predicted right"),)
    classes = ("negative", "neutral", "positive")
    file_names = ("{language}/{split}.tsv", "hau/train.tsv", "ha_train.tsv")
    patterns = (
        re.compile(rf"{LANGUAGE}/{SPLIT}\.tsv"),
        re.compile(rf"{LANGUAGE}_{SPLIT}\.tsv"),
        re.compile(rf"{SPLIT}/{LANGUAGE}_(?:train|dev|test)\.tsv"),
    )
    layouts = (Columns(texts=("tweet",), label="label"),)

    def languages_of(self, code: str, path: Path) -> Collection[str]:
        return super().languages_of(SHARED_TASK_CODES.get(code, code), path)


AFRISENTI = AfrisentiTask()


MLDOC_LANGUAGES = {
    "chinese": "zh", "english": "en", "french": "fr", "german": "de", "italian": "it", "japanese": "ja",
    "russian": "ru", "spanish": "es", "spanish-latam": "es-419",
}  # fmt: skip
# May end a sentence: a mark behind a word of two letters or more (not "U.S. "), or one of Chinese and Japanese.
_MARK = re.compile(r"\w\w[.!?][\"')\]]*\s+|[\u3002\uff01\uff1f]")


class MldocTask(ClassificationTask):
    """MLDoc: topics of news of Reuters (RCV1 and RCV2) in eight languages.

    Files are what MLDoc's generate_documents.py writes of your own RCV1 and RCV2: `english.train.1000`,
    `german.dev`; the `.1000` training sets are read, which published scores are of. The two corpora may not be
    redistributed.
    """

    name = "mldoc"
    metrics = (Metric("mldoc_accuracy", "Topics of news (MLDoc)", "news texts whose topic was predicted right"),)
    classes = ("CCAT", "ECAT", "GCAT", "MCAT")
    file_names = ("{language}.{split}", "english.train.1000", "german.dev")
    patterns = (
        re.compile(rf"(?P<language>[a-z]{{2,}}(?:-[A-Za-z0-9]+)*)\.{SPLIT}(?:\.1000)?"),  # MLDoc's script
        re.compile(rf"mldoc\.{SPLIT}(?:1000)?\.(?P<language>[a-z]{{2,3}})"),  # LASER's
    )

    def languages_of(self, code: str, path: Path) -> Collection[str]:
        return super().languages_of(MLDOC_LANGUAGES.get(code, code), path)

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        """A label, a tab and a text. Documents of two languages do not translate each other: no key is of both."""
        for number, line in enumerate(read_lines(path), 1):
            label, tab, text = line.partition("\t")
            if not tab and re.fullmatch(r"\w+-\w+", line.strip()):
                raise DataError(
                    f"{path}, line {number}: a document's id without its text; the texts are Reuters' (RCV1, RCV2), "
                    "so write this file with MLDoc's generate_documents.py from your own copy."
                )
            if not tab:
                raise DataError(f"{path}, line {number}: not a label, a tab and a text: {line[:40]!r}.")
            words = _decode(text, path, number).split()
            yield number, f"{language}/{number}", (" ".join(words),), label.strip()


class HeadlineTask(MldocTask):
    """MLDoc on the first sentence of each document, for MLDoc's script leaves out the headline.

    Of a file that a user wrote with headlines as texts it is the headline (DICT's MLDOC-H).
    """

    name = "mldoc_h"
    metrics = (Metric("mldoc_h_accuracy", "Topics of headlines (MLDoc)", "headlines whose topic was predicted right"),)

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        for number, key, (text,), label in super().rows(path, language):
            yield number, key, (_first_sentence(text),), label


def _first_sentence(text: str) -> str:
    """Up to a mark that no small letter follows ("Inc. fell"), or up to any mark in a text without capitals."""
    has_capitals = text != text.lower()
    for mark in _MARK.finditer(text):
        if not (has_capitals and text[mark.end() : mark.end() + 1].islower()):
            return text[: mark.end()].rstrip()
    return text


def _decode(text: str, path: Path, number: int) -> str:
    r"""The text of a row: under Python 3 MLDoc's script writes it as that language spells bytes, `b'na\xc3\xafve'`."""
    if not re.fullmatch(r"b(['\"]).*\1", text.strip(), re.DOTALL):
        return text
    try:
        return ast.literal_eval(text.strip()).decode("utf-8")
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{path}, line {number}: the text's escapes cannot be read ({error}).") from None


MLDOC, MLDOC_H = MldocTask(), HeadlineTask()
