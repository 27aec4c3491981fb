"""Paraphrases (PAWS-X): whether two sentences of nearly the same words mean the same; accuracy."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from xalign_ray.tasks.task import Files
from xalign_ray.tasks.task_files import find_split_files
from xalign_ray.tasks.text_classification import ClassificationTask, Columns, LabelledText, read_table

_LANGUAGE = r"(?P<language>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)"
_NAMES = (
    re.compile(rf"(?P<split>train|dev|test)-{_LANGUAGE}\.tsv"),  # XTREME
    re.compile(rf"{_LANGUAGE}/(?:translated_)?(?P<split>train|dev|test)(?:_2k)?\.tsv"),  # PAWS-X itself
)
_LAYOUTS = (
    Columns(texts=("sentence1", "sentence2"), label="label", key="id"),
    Columns(texts=("sentence1", "sentence2"), label="label", header=False),
)
_NO_SENTENCE = "NS"  # stands for a sentence that the translators left out

log = logging.getLogger(__name__)


class PawsxTask(ClassificationTask):
    """Files are XTREME's `dev-de.tsv`, or PAWS-X's own `de/dev_2k.tsv`.

    Labels of translations are not always those of the English (27 of the first 1500 German rows, as published). Rows
    without a sentence (`NS`) are kept, as XTREME keeps them, so that scores can stand beside published ones.
    """

    translations_keep_labels: ClassVar[bool] = False

    def find(self, folders: Sequence[Path]) -> Files:
        return find_split_files(folders, _NAMES, "PAWS-X", ("train-en.tsv", "en/dev_2k.tsv"))

    def read(self, path: Path, language: str) -> list[LabelledText]:
        examples = read_table(path, language, _LAYOUTS, self.classes, {})
        if without := sum(_NO_SENTENCE in example.texts for example in examples):
            log.info("%s: %d of %d pairs lack a sentence (NS); kept, as XTREME does", path, without, len(examples))
        return examples


PAWSX = PawsxTask(
    name="pawsx",
    title="paraphrases",
    example="{split}-{language}.tsv",
    metric="pawsx_accuracy",
    classes=("0", "1"),
)
