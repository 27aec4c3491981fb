"""Named entities: F1 over spans, read leniently as XTREME does, and strictly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from xalign_ray.tasks.named import find_named_files, name_classes, read_named
from xalign_ray.tasks.spans import lenient_spans, strict_spans
from xalign_ray.tasks.tagged import Sentence
from xalign_ray.tasks.tagging_task import TaggingTask, measure_spans
from xalign_ray.tasks.task import Files, Measure


class NerTask(TaggingTask):
    """Files are XTREME's `dev-de.tsv`, WikiAnn's `de/val.conllu`, Universal NER's `.iob2`, MasakhaNER's `swa/dev.txt`.

    The kinds of names are those of the training file: a test file that has others, such as MasakhaNER's DATE for a
    model of PAN-X, is refused.
    """

    def find(self, folders: Sequence[Path]) -> Files:
        return find_named_files(folders)

    def read(self, path: Path, language: str) -> list[Sentence]:
        return read_named(path, language)

    def classes_of(self, examples: Sequence[Sentence]) -> tuple[str, ...]:
        return name_classes(examples)

    def measure(self, sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> dict[str, Measure]:
        return {
            "ner_f1": measure_spans(sentences, predicted, lenient_spans),
            "ner_f1_strict": measure_spans(sentences, predicted, strict_spans),
        }


NER = NerTask(name="ner", title="named entities", example="{split}-{language}.tsv", metric="ner_f1")
