"""Tagged words: parts of speech (UD), by accuracy and F1, and named entities, by F1 over spans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from xalign_ray.derive.tasks import IOB2, find_scheme, reorder_tags
from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Measure, Metric, accuracy
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT, read_lines
from xalign_ray.tasks.token_classification import (
    OUTSIDE,
    Sentence,
    TaggingTask,
    count_spans,
    measure_spans,
    say_form,
    seqeval0_spans,
    seqeval1_spans,
    strict_spans,
)
from xalign_ray.vocabulary.words import BLANKS

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
)  # fmt: skip
_SKIPPED_ID = re.compile(r"[1-9][0-9]*-[1-9][0-9]*|[0-9]+\.[1-9][0-9]*")  # multiword ranges 1-2, empty nodes 1.1


class PosTask(TaggingTask):
    """Part-of-speech tagging with the 17 universal tags: accuracy over words, and F1 of seqeval's two versions.

    Files are `en.train.conllu`, `en_ewt-ud-train.conllu`, XTREME's `train-en.tsv` or MasakhaPOS's `swa/train.txt`.

    Those of dev and test are named alike. Columns are found by looking at them, but for CoNLL-U's.

    XTREME and the authors of ALIGN-MLM score tags without B- and I- by seqeval, in two versions that differ by a few
    tenths. Each has its own metric; neither is an accuracy. Both equal the library (tests/peers/test_seqeval.py).
    """

    name = "pos"
    metrics = (
        Metric("pos_accuracy", "Parts of speech", "part-of-speech tags right, fine-tuned on English only"),
        Metric(
            "pos_f1_seqeval0", "Parts of speech, F1 (XTREME)",
            "F1 over chunks of equal tags, as seqeval 0.0.12 cuts them for XTREME",
        ),
        Metric(
            "pos_f1_seqeval1", "Parts of speech, F1 (ALIGN-MLM)",
            "F1 over chunks of equal tags, as seqeval 1.2.2 cuts them for ALIGN-MLM's authors",
        ),
    )  # fmt: skip
    classes = UPOS
    file_names = ("{language}.{split}.conllu", "en_ewt-ud-train.conllu", "train-en.tsv", "swa/train.txt")
    patterns = (
        re.compile(rf"{LANGUAGE}\.{SPLIT}\.conllu"),  # the embedded world: de.test.conllu
        re.compile(rf"{LANGUAGE}_\w+-ud-{SPLIT}\.conllu"),  # Universal Dependencies: de_pud-ud-test.conllu
        re.compile(rf"{SPLIT}-{LANGUAGE}\.tsv"),  # XTREME: dev-de.tsv
        re.compile(rf"{LANGUAGE}/{SPLIT}\.txt"),  # MasakhaPOS: swa/dev.txt
    )

    def words_and_tags(self, path: Path) -> list[list[tuple[str, str]]]:
        if path.suffix != ".conllu":
            return super().words_and_tags(path)
        sentences: list[list[tuple[str, str]]] = [[]]
        for number, line in enumerate(read_lines(path), 1):
            where = f"{path}, line {number}"
            if not line.strip(BLANKS):
                sentences.append([])
            elif row := _read_conllu(line, where, len(sentences[-1])):
                sentences[-1].append((row[0], self.read_tag(row[1], where)))
        return sentences

    def read_tag(self, tag: str, where: str) -> str:
        if tag not in UPOS:
            raise DataError(f"{where}: {tag!r} is not one of the parts of speech {', '.join(UPOS)}.")
        return tag

    def measure(self, examples: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> dict[str, Measure]:
        gold = [tag for sentence in examples for tag in sentence.tags]
        return {
            "pos_accuracy": accuracy(gold, [tag for tags in predicted for tag in tags]),
            "pos_f1_seqeval0": measure_spans(examples, predicted, seqeval0_spans),
            "pos_f1_seqeval1": measure_spans(examples, predicted, seqeval1_spans),
        }


def _read_conllu(line: str, where: str, place: int) -> tuple[str, str] | None:
    columns = line.split("\t")
    if line.startswith("#"):
        return None
    if len(columns) != 10:
        raise DataError(f"{where}: {len(columns)} columns; CoNLL-U has 10, separated by tabs.")
    if _SKIPPED_ID.fullmatch(columns[0]):
        return None
    if columns[0] != str(place + 1):
        raise DataError(f"{where}: word id {columns[0]!r}; {place + 1} was expected.")
    return columns[1], columns[3]


POS = PosTask()


_SPLIT = r"(?P<split>train|dev|val|test)"
_TAG = re.compile(r"O|[BIESLU]-\S+")
_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?:")


class NerTask(TaggingTask):
    """Named entities (WikiAnn, PAN-X, Universal NER, MasakhaNER): F1 over spans by seqeval, lenient and strict.

    Files are XTREME's `dev-de.tsv`, WikiAnn's `de/val.conllu`, Universal NER's `.iob2`, MasakhaNER's `swa/dev.txt`.

    Their columns are found by looking at them, as `tagged_columns` says. Tags in IOB1, such as CoNLL-2003's own, in
    BIOES or in BILOU are read as IOB2: every name then begins with B-.

    The kinds of names are those of the training file: a test file that has others, such as MasakhaNER's DATE for a
    model of PAN-X, is refused.
    """

    name = "ner"
    untagged_hint = " XTREME's own test files lack the tag: take those of WikiAnn."
    metrics = (
        Metric("ner_f1", "Names (NER)", "F1 over names by seqeval's default mode, as XTREME"),
        Metric("ner_f1_strict", "Names (NER), strict IOB2", "F1 over names by seqeval's strict mode for IOB2"),
    )
    file_names = ("{split}-{language}.tsv", "en/train.conllu", "en_ewt-ud-train.iob2", "swa/train.txt")
    patterns = (
        re.compile(rf"{LANGUAGE}/{_SPLIT}(?:\.conllu)?"),  # WikiAnn, a folder a language: de/val.conllu, de/dev
        re.compile(rf"(?:\w+_)?{LANGUAGE}/{_SPLIT}\.(?:txt|bio|iob)"),  # MasakhaNER: swa/dev.txt
        re.compile(rf"{LANGUAGE}_\w+-ud-{_SPLIT}\.iob2"),  # Universal NER: de_pud-ud-test.iob2
        re.compile(rf"{_SPLIT}-{LANGUAGE}\.tsv"),  # XTREME: dev-de.tsv
        re.compile(rf"{LANGUAGE}-{_SPLIT}"),  # what XTREME makes them of: de-dev
    )

    def read(self, path: Path, language: str) -> list[Sentence]:
        """The sentences of a file, tagged in IOB2. The prefix `en:` that PAN-X puts before each word is left out."""
        sentences = super().read(path, language)
        scheme = find_scheme([sentence.tags for sentence in sentences])
        if scheme is not None and scheme != IOB2:
            say_form(self.name, path, f"tags in {scheme.name} are read as IOB2")
            sentences = [
                replace(one, tags=tuple(reorder_tags(one.tags, range(len(one.tags)), IOB2))) for one in sentences
            ]
        prefix = _PREFIX.match(sentences[0].words[0])
        if not prefix or not all(word.startswith(prefix[0]) for sentence in sentences for word in sentence.words):
            return sentences
        return [replace(one, words=tuple(word.removeprefix(prefix[0]) for word in one.words)) for one in sentences]

    def read_tag(self, tag: str, where: str) -> str:
        if not _TAG.fullmatch(tag):
            raise DataError(f"{where}: {tag!r} is no tag of IOB, BIOES or BILOU, such as O, B-PER or I-PER.")
        return tag

    def classes_of(self, examples: Iterable[Sentence]) -> tuple[str, ...]:
        """O, then B- and I- of every kind of name that occurs, even if only one of the two does."""
        kinds = sorted({tag[2:] for sentence in examples for tag in sentence.tags if tag != OUTSIDE})
        return (OUTSIDE, *(f"{mark}-{kind}" for kind in kinds for mark in "BI"))

    def check(self, examples: Sequence[Sentence], classes: Sequence[str], path: Path) -> None:
        """Refuses a file without a name, too."""
        super().check(examples, classes, path)
        if not count_spans([sentence.tags for sentence in examples], strict_spans):
            raise DataError(f"{path} has no name at all: there is nothing to score. Leave that language out.")

    def measure(self, examples: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> dict[str, Measure]:
        return {
            "ner_f1": measure_spans(examples, predicted, seqeval1_spans),
            "ner_f1_strict": measure_spans(examples, predicted, strict_spans),
        }


NER = NerTask()
