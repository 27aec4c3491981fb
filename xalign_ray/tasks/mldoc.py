"""Topics of news (MLDoc: Reuters RCV1 and RCV2 in eight languages), of whole texts or of headlines; accuracy."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Files
from xalign_ray.tasks.task_files import find_split_files, name_language, read_lines
from xalign_ray.tasks.text_classification import (
    ClassificationTask,
    LabelledText,
    check_examples,
    check_label,
    make_example,
)

LANGUAGES = {
    "chinese": "zh", "english": "en", "french": "fr", "german": "de", "italian": "it", "japanese": "ja",
    "russian": "ru", "spanish": "es", "spanish-latam": "es-419",
}  # fmt: skip
_NAMES = (
    re.compile(r"(?P<language>[a-z]{2,}(?:-[A-Za-z0-9]+)*)\.(?P<split>train|dev|test)(?:\.1000)?"),  # MLDoc's script
    re.compile(r"mldoc\.(?P<split>train|dev|test)(?:1000)?\.(?P<language>[a-z]{2,3})"),  # LASER's
)
_INDEX = re.compile(r"\w+-\w+")
_BYTES = re.compile(r"b(['\"]).*\1", re.DOTALL)
# May end a sentence: a mark behind a word of two letters or more (not "U.S. "), or one of Chinese and Japanese.
_MARK = re.compile(r"\w\w[.!?][\"')\]]*\s+|[\u3002\uff01\uff1f]")


class MldocTask(ClassificationTask):
    """Files are what MLDoc's generate_documents.py writes of your own RCV1 and RCV2: `english.train.1000`,
    `german.dev`; the `.1000` training sets are read, which published scores are of. The two corpora may not be
    redistributed.
    """

    def find(self, folders: Sequence[Path]) -> Files:
        return find_split_files(folders, _NAMES, "MLDoc", ("english.train.1000", "german.dev"), _languages_of)

    def read(self, path: Path, language: str) -> list[LabelledText]:
        examples = []
        for number, line in enumerate(read_lines(path), 1):
            label, tab, text = line.partition("\t")
            if not tab and _INDEX.fullmatch(line.strip()):
                raise DataError(
                    f"{path}, line {number}: a document's id without its text; the texts are Reuters' (RCV1, RCV2), "
                    "so write this file with MLDoc's generate_documents.py from your own copy."
                )
            if not tab:
                raise DataError(f"{path}, line {number}: not a label, a tab and a text: {line[:40]!r}.")
            label = check_label(label.strip(), path, number, self.classes)
            text = " ".join(_decode(text, path, number).split())
            # Documents of two languages do not translate each other, so that no key is of both.
            examples.append(make_example(path, number, f"{language}/{number}", (text,), language, label))
        return check_examples(path, examples, self.classes)


class HeadlineTask(MldocTask):
    """The first sentence of each document, for MLDoc's script leaves out the headline; of a file that a user wrote with
    headlines as texts, the headline (DICT's MLDOC-H).
    """

    def read(self, path: Path, language: str) -> list[LabelledText]:
        return [replace(one, texts=(_first_sentence(one.texts[0]),)) for one in super().read(path, language)]


def _languages_of(name: str, path: Path) -> Sequence[str]:
    return (LANGUAGES.get(name) or name_language(name, path),)


def _first_sentence(text: str) -> str:
    """Up to a mark that no small letter follows ("Inc. fell"), or up to any mark in a text without capitals."""
    has_capitals = text != text.lower()
    for mark in _MARK.finditer(text):
        if not (has_capitals and text[mark.end() : mark.end() + 1].islower()):
            return text[: mark.end()].rstrip()
    return text


def _decode(text: str, path: Path, number: int) -> str:
    r"""The text of a row: under Python 3 MLDoc's script writes it as that language spells bytes, `b'na\xc3\xafve'`."""
    if not _BYTES.fullmatch(text.strip()):
        return text
    try:
        return ast.literal_eval(text.strip()).decode("utf-8")
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{path}, line {number}: the text's escapes cannot be read ({error}).") from None


_CLASSES = ("CCAT", "ECAT", "GCAT", "MCAT")
MLDOC = MldocTask(
    name="mldoc",
    title="topics of news",
    example="{language}.{split}",
    metric="mldoc_accuracy",
    classes=_CLASSES,
)
MLDOC_H = HeadlineTask(
    name="mldoc_h",
    title="topics of headlines",
    example="{language}.{split}",
    metric="mldoc_h_accuracy",
    classes=_CLASSES,
)
