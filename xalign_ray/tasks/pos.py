"""Part-of-speech tagging with the 17 universal tags (UD): accuracy over words, and F1 of seqeval's two versions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Measure, Metric, accuracy
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT, read_lines
from xalign_ray.tasks.token_classification import Sentence, TaggingTask, measure_spans, seqeval0_spans, seqeval1_spans
from xalign_ray.vocabulary.words import BLANKS

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ",
    "SYM", "VERB", "X",
)  # fmt: skip
_SKIPPED_ID = re.compile(r"[1-9][0-9]*-[1-9][0-9]*|[0-9]+\.[1-9][0-9]*")  # multiword ranges 1-2, empty nodes 1.1


class PosTask(TaggingTask):
    """Files are `en.train.conllu`, `en_ewt-ud-train.conllu`, XTREME's `train-en.tsv` or MasakhaPOS's `swa/train.txt`.

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
