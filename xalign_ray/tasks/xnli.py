"""Natural language inference (XNLI): whether a hypothesis follows from a premise; accuracy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from xalign_ray.tasks.task import Files
from xalign_ray.tasks.task_files import find_split_files, name_language
from xalign_ray.tasks.text_classification import ClassificationTask, Columns, LabelledText, read_table

OFFICIAL_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")
_LANGUAGE = r"(?P<language>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)"
_NAMES = (
    re.compile(rf"(?P<split>train|dev|test)-{_LANGUAGE}\.tsv"),  # XTREME
    re.compile(rf"multinli\.(?P<split>train)\.{_LANGUAGE}\.tsv"),  # XNLI's machine translations, and their original
    re.compile(r"(?P<language>xnli)\.(?P<split>dev|test)\.tsv"),  # XNLI itself: all languages in one file
)
_LAYOUTS = (
    Columns(texts=("sentence1", "sentence2"), label="gold_label", language="language"),
    Columns(texts=("premise", "hypo"), label="label"),
    Columns(texts=("premise", "hypothesis"), label="label", header=False),
)
_SPELLINGS = {"contradictory": "contradiction"}  # in the training files


class XnliTask(ClassificationTask):
    """Files are XTREME's `dev-de.tsv`, the translations `multinli.train.de.tsv`, and XNLI's own `xnli.test.tsv`."""

    def find(self, folders: Sequence[Path]) -> Files:
        examples = ("train-en.tsv", "multinli.train.en.tsv", "xnli.test.tsv")
        return find_split_files(folders, _NAMES, "XNLI", examples, _languages_of)

    def read(self, path: Path, language: str) -> list[LabelledText]:
        return read_table(path, language, _LAYOUTS, self.classes, _SPELLINGS)


def _languages_of(name: str, path: Path) -> Sequence[str]:
    return OFFICIAL_LANGUAGES if name == "xnli" else (name_language(name, path),)


XNLI = XnliTask(
    name="xnli",
    title="natural language inference",
    example="{split}-{language}.tsv",
    metric="xnli_accuracy",
    classes=("contradiction", "entailment", "neutral"),
)
