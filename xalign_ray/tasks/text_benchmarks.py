"""Labelled texts: inference, paraphrases, topics, sentiment (XNLI, PAWS-X, SIB-200, MasakhaNEWS, AfriSenti, MLDoc)."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Metric
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT, name_language, plain_language, read_lines
from xalign_ray.tasks.text_classification import ClassificationTask, Columns, LabelledText, Row, log

OFFICIAL_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")


class XnliTask(ClassificationTask):
    """XNLI: whether a hypothesis follows from a premise.

    Files are XTREME's `dev-de.tsv`, the translations `multinli.train.de.tsv`, and XNLI's own `xnli.test.tsv`.
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
        Columns(texts=("premise", "hypo"), label="label"),
        Columns(texts=("premise", "hypothesis"), label="label", header=False),
    )

    def languages_of(self, code: str, path: Path) -> Collection[str]:
        return OFFICIAL_LANGUAGES if code == "xnli" else super().languages_of(code, path)


XNLI = XnliTask()


_NO_SENTENCE = "NS"  # stands for a sentence that the translators left out


class PawsxTask(ClassificationTask):
    """PAWS-X: whether two sentences of nearly the same words mean the same.

    Files are XTREME's `dev-de.tsv`, or PAWS-X's own `de/dev_2k.tsv`.

    Labels of translations are not always those of the English (27 of the first 1500 German rows, as published). Rows
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
        """The language of a Flores code; its script is said only where it is not the language's usual one."""
        return (plain_language(code) or name_language(code, path),)


SIB = SibTask()


class MasakhanewsTask(ClassificationTask):
    """MasakhaNEWS: topics of news in African languages, seven classes, told by headline and text.

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

    Files are `hau/train.tsv`, or those of the shared task, `ha_train.tsv`. There is no English: tune on a language.

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
