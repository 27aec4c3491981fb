"""Natural language inference (XNLI): whether a hypothesis follows from a premise; accuracy."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from xalign_ray.tasks.task import Metric
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT
from xalign_ray.tasks.text_classification import ClassificationTask, Columns

OFFICIAL_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")


class XnliTask(ClassificationTask):
    """Files are XTREME's `dev-de.tsv`, the translations `multinli.train.de.tsv`, and XNLI's own `xnli.test.tsv`."""

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
