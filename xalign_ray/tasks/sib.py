"""Topics of single sentences (SIB-200, Flores sentences): seven classes; accuracy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import langcodes

from xalign_ray.tasks.task import Metric
from xalign_ray.tasks.task_files import SPLIT, name_language
from xalign_ray.tasks.text_classification import ClassificationTask, Columns


class SibTask(ClassificationTask):
    """Files are `eng_Latn/train.tsv` and so on; rows of all languages are joined by `index_id`."""

    name = "sib"
    metrics = (Metric("sib_accuracy", "Topics of sentences (SIB-200)", "sentences whose topic was predicted right"),)
    classes = ("entertainment", "geography", "health", "politics", "science/technology", "sports", "travel")
    file_names = ("eng_Latn/{split}.tsv",)
    patterns = (re.compile(rf"(?P<language>[a-z]{{3}}_[A-Z][a-z]{{3}})/{SPLIT}\.tsv"),)
    layouts = (Columns(texts=("text",), label="category", key="index_id"),)

    def languages_of(self, code: str, path: Path) -> Sequence[str]:
        """The language of a Flores code; its script is said only where it is not the language's usual one."""
        name = name_language(code.replace("_", "-"), path)
        language = langcodes.Language.get(name)
        usual = langcodes.Language.get(language.language or name).maximize().script
        return (name.replace(f"-{language.script}", "") if language.script == usual else name,)


SIB = SibTask()
