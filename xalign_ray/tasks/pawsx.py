"""Paraphrases (PAWS-X): whether two sentences of nearly the same words mean the same; accuracy."""

from __future__ import annotations

import re
from pathlib import Path

from xalign_ray.tasks.task import Metric
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT
from xalign_ray.tasks.text_classification import ClassificationTask, Columns, LabelledText, log

_NO_SENTENCE = "NS"  # stands for a sentence that the translators left out


class PawsxTask(ClassificationTask):
    """Files are XTREME's `dev-de.tsv`, or PAWS-X's own `de/dev_2k.tsv`.

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
