"""Part-of-speech tagging with the 17 universal tags (UD): accuracy over words, and XTREME's F1 over runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from xalign_ray.tasks.spans import runs
from xalign_ray.tasks.tagged import UPOS, Sentence, find_tagged_files, read_tagged
from xalign_ray.tasks.tagging_task import TaggingTask, measure_spans
from xalign_ray.tasks.task import Files, Measure


class PosTask(TaggingTask):
    """Files are `en.train.conllu`, `en_ewt-ud-train.conllu` or XTREME's `train-en.tsv`, and so for dev and test.

    XTREME calls seqeval on tags without B- and I-, whose F1 is of runs and is no accuracy: each has its own name here.
    """

    def find(self, folders: Sequence[Path]) -> Files:
        return find_tagged_files(tuple(folders))

    def read(self, path: Path, language: str) -> list[Sentence]:
        return read_tagged(path, language)

    def measure(self, sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> dict[str, Measure]:
        gold = [tag for sentence in sentences for tag in sentence.tags]
        said = [tag for tags in predicted for tag in tags]
        return {
            "pos_accuracy": Measure(token_accuracy(gold, said), majority_share(gold), len(gold)),
            "pos_f1_runs": measure_spans(sentences, predicted, runs),
        }


def token_accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Share of words whose tag was predicted."""
    return sum(right == said for right, said in zip(gold, predicted, strict=True)) / len(gold)


def majority_share(gold: Sequence[str]) -> float:
    """Accuracy of saying the most frequent tag of this very set for every word: the chance level."""
    return Counter(gold).most_common(1)[0][1] / len(gold)


POS = PosTask(
    name="pos", title="parts of speech", example="{language}.{split}.conllu", metric="pos_accuracy", classes=UPOS
)
