"""Text classification: one label for a text or a pair, in tables and in MLDoc's files."""

from __future__ import annotations

import ast
import itertools
import logging
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from xalign_ray.errors import DataError
from xalign_ray.models.tokenized import Features, Inputs
from xalign_ray.tasks.task import ReplaceWord, TunedTask, check_keys
from xalign_ray.tasks.task_files import is_table, read_lines, read_table

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder


LONGEST_TEXT = 128  # pieces; PPA's and XTREME's
Row = tuple[str, str, tuple[str, ...], str]  # file and line, key, texts, label

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


class ClassificationTask(TunedTask[LabelledText]):
    """A task with one label for a text or a pair. Its files are tables, or `rows` reads them.

    Attributes:
        texts: the columns of one or two texts, as `read_table` takes them.
        label: the column of the label; in a table that lacks it, `label`.
        key: the column that is equal in a translation's row; without it that is the number of the row.
        language: in a table that has it, the column of the language: rows of others than the file's are left out.
        quoted: whether cells are quoted as in CSV.
        joined: whether the texts are parts of one.
        spellings: other spellings of classes.
        unlabelled: the label of rows that are left out, with a warning.
        translations_keep_labels: if not, a translation may have another label than its original.
    """

    head = "AutoModelForSequenceClassification"
    longest = LONGEST_TEXT
    texts: ClassVar[tuple[str, ...]]
    label: ClassVar[str] = "label"
    key: ClassVar[str] = ""
    language: ClassVar[str] = ""
    quoted: ClassVar[bool] = False
    joined: ClassVar[bool] = False
    spellings: ClassVar[Mapping[str, str]] = {}
    unlabelled: ClassVar[str] = ""
    translations_keep_labels: ClassVar[bool] = True

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        """The rows of a table, see `read_table`."""
        label, number = f"{self.label}|label", itertools.count()
        as_written = self.quoted or is_table(path)
        optional = [column for column in (self.key, self.language) if column]
        for where, row in read_table(path, (*self.texts, label), optional, self.quoted):
            if row.get(self.language, language).strip() == language:
                texts = [row[name] if as_written else _unquote(row[name]) for name in self.texts]
                texts = [" ".join(" ".join(texts).split())] if self.joined else [text.strip() for text in texts]
                key = row[self.key] if self.key in row else next(number)
                yield where, str(key).strip(), tuple(texts), str(row[label]).strip()

    def read(self, path: Path, language: str) -> list[LabelledText]:
        """One side of a pair may be empty, as in some machine translations; a class without a row is warned about."""
        examples, without = [], 0
        for where, key, texts, written in self.rows(path, language):
            if self.unlabelled and written == self.unlabelled:
                without += 1
                continue
            label = self.spellings.get(written, written)
            if label not in self.classes:
                raise DataError(f"{where}: the label {label!r} is none of {', '.join(self.classes)}.")
            if not any(texts):
                raise DataError(f"{where}: there is no text.")
            examples.append(LabelledText(key, texts, (language,) * len(texts), label))
        check_keys(path, examples)
        if without:
            log.warning("%s: %d rows with the label %s are left out", path, without, self.unlabelled)
        if missing := sorted(set(self.classes) - {example.label for example in examples}):
            log.warning("%s: no row has the label %s; other files may", path, ", ".join(missing))
        return examples

    def features(
        self, inputs: Inputs, examples: Sequence[LabelledText], classes: Sequence[str]
    ) -> list[list[Features]]:
        """An input of at most 128 pieces for each example; of a pair the longer text is cut first."""
        pieces = iter(inputs.piece_texts([text for example in examples for text in example.texts]))
        room = inputs.room(self.longest)
        rows = []
        for example in examples:
            first, *others = (next(pieces) for _ in example.texts)
            if others:
                left, right = longest_first(len(first), len(others[0]), room - len(inputs.middle))
                row = inputs.pair(first[:left], others[0][:right], example.languages)
            else:
                row = inputs.single(first[:room], example.languages[0])
            rows.append([row | {"labels": classes.index(example.label)}])
        return rows

    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[str]:
        chosen = tuned.forward([feature for (feature,) in features], lambda output: output.logits.argmax(dim=-1))
        return [tuned.classes[int(index)] for index in chosen]

    def from_gold(self, key: str, gold: str, language: str) -> LabelledText:
        return LabelledText(key, (), (language,), gold)

    def switch(self, english: LabelledText, other: LabelledText) -> list[LabelledText]:
        if len(english.texts) < 2:
            return super().switch(english, other)
        if self.translations_keep_labels and english.label != other.label:
            raise DataError(
                f"{self.name}: example {english.key} is {english.label} in {english.languages[0]} and {other.label} in "
                f"{other.languages[0]}; the training files are not translations of each other row by row."
            )
        return [
            replace(english, texts=(left.texts[0], two.texts[1]), languages=(left.languages[0], two.languages[1]))
            for left, two in ((other, english), (english, other))
        ]

    def replace_words(self, example: LabelledText, replace_word: ReplaceWord) -> LabelledText:
        return replace(example, texts=tuple(replace_running_words(text, replace_word) for text in example.texts))


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many pieces of two texts are kept in this room: the longer one is cut until both are equally long.

    Hugging Face's tokenizers call it `longest_first`. Of an odd room the longer text has one more, the second of
    equals.
    """
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (room - shorter, shorter) if first > second else (shorter, room - shorter)


def replace_running_words(text: str, replace_word: ReplaceWord) -> str:
    """Running text with each word replaced: what white space parts, without the punctuation around it, which stays."""

    def replace_core(match: re.Match[str]) -> str:
        token = match[0]
        letters = [at for at, sign in enumerate(token) if unicodedata.category(sign)[0] not in "PS"]
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


# May end a sentence: a mark behind a word of two letters or more (not "U.S. "), or one of Chinese and Japanese.
_MARK = re.compile(r"\w\w[.!?][\"')\]]*\s+|[\u3002\uff01\uff1f]")


class MldocTask(ClassificationTask):
    """News of Reuters (RCV1 and RCV2) as MLDoc's generate_documents.py writes them: a label, a tab and a text.

    Attributes:
        headline: whether a text is cut to its first sentence, as MLDoc's script leaves out the headline. In a file that
            a user wrote with headlines as texts, that is the headline (DICT's MLDOC-H).
    """

    headline: ClassVar[bool] = False

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        """Documents of two languages do not translate each other: no key is of both."""
        for number, line in enumerate(read_lines(path), 1):
            where, (label, tab, text) = f"{path}, line {number}", line.partition("\t")
            if not tab:
                raise DataError(
                    f"{where}: not a label, a tab and a text: {line[:40]!r}. The texts are Reuters' (RCV1, RCV2): "
                    "write this file with MLDoc's generate_documents.py from your own copy."
                )
            words = " ".join(_decode(text, where).split())
            yield where, f"{language}/{number}", (_first_sentence(words) if self.headline else words,), label.strip()


def _first_sentence(text: str) -> str:
    """Up to a mark that no small letter follows ("Inc. fell"), or up to any mark in a text without capitals."""
    has_capitals = text != text.lower()
    for mark in _MARK.finditer(text):
        if not (has_capitals and text[mark.end() : mark.end() + 1].islower()):
            return text[: mark.end()].rstrip()
    return text


def _decode(text: str, where: str) -> str:
    r"""The text of a row: under Python 3 MLDoc's script writes it as that language spells bytes, `b'na\xc3\xafve'`."""
    if not re.fullmatch(r"b(['\"]).*\1", text.strip(), re.DOTALL):
        return text
    try:
        return ast.literal_eval(text.strip()).decode("utf-8")
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{where}: the text's escapes cannot be read ({error}).") from None
