"""Topics of news (MLDoc: Reuters RCV1 and RCV2 in eight languages), of whole texts or of headlines; accuracy."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Metric
from xalign_ray.tasks.task_files import SPLIT, read_lines
from xalign_ray.tasks.text_classification import ClassificationTask, Row

LANGUAGES = {
    "chinese": "zh", "english": "en", "french": "fr", "german": "de", "italian": "it", "japanese": "ja",
    "russian": "ru", "spanish": "es", "spanish-latam": "es-419",
}  # fmt: skip
# May end a sentence: a mark behind a word of two letters or more (not "U.S. "), or one of Chinese and Japanese.
_MARK = re.compile(r"\w\w[.!?][\"')\]]*\s+|[\u3002\uff01\uff1f]")


class MldocTask(ClassificationTask):
    """Files are what MLDoc's generate_documents.py writes of your own RCV1 and RCV2: `english.train.1000`,
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
        return super().languages_of(LANGUAGES.get(code, code), path)

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
    """The first sentence of each document, for MLDoc's script leaves out the headline; of a file that a user wrote with
    headlines as texts, the headline (DICT's MLDOC-H).
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
