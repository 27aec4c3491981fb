"""Topics of single sentences (SIB-200, Flores sentences): seven classes; accuracy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import langcodes

from xalign_ray.tasks.task import Files
from xalign_ray.tasks.task_files import find_split_files, name_language
from xalign_ray.tasks.text_classification import ClassificationTask, Columns, LabelledText, read_table

# aka_Latn is left out: BCP-47 has one code for it and twi_Latn.
_NAMES = (re.compile(r"(?!aka_)(?P<language>[a-z]{3}_[A-Z][a-z]{3})/(?P<split>train|dev|test)\.tsv"),)
_LAYOUTS = (Columns(texts=("text",), label="category", key="index_id"),)


class SibTask(ClassificationTask):
    """Files are `eng_Latn/train.tsv` and so on; rows of all languages are joined by `index_id`."""

    def find(self, folders: Sequence[Path]) -> Files:
        return find_split_files(folders, _NAMES, "SIB-200", ("eng_Latn/train.tsv",), _languages_of)

    def read(self, path: Path, language: str) -> list[LabelledText]:
        return read_table(path, language, _LAYOUTS, self.classes, {})


def _languages_of(name: str, path: Path) -> Sequence[str]:
    """The language of a Flores code; its script is said only where it is not the language's usual one."""
    code = name_language(name.replace("_", "-"), path)
    language = langcodes.Language.get(code)
    usual = langcodes.Language.get(language.language or code).maximize().script
    return (code.replace(f"-{language.script}", "") if language.script == usual else code,)


SIB = SibTask(
    name="sib",
    title="topics of sentences",
    example="eng_Latn/{split}.tsv",
    metric="sib_accuracy",
    classes=("entertainment", "geography", "health", "politics", "science/technology", "sports", "travel"),
)
