"""Topics of news in African languages (MasakhaNEWS): seven classes; accuracy over headline and text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from xalign_ray.tasks.task import Metric
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT
from xalign_ray.tasks.text_classification import ClassificationTask, Columns, Row


class MasakhanewsTask(ClassificationTask):
    """Files are `eng/train.tsv` and so on, as MasakhaNEWS publishes them: quoted fields that may hold line ends."""

    name = "masakhanews"
    metrics = (
        Metric("masakhanews_accuracy", "Topics of news (MasakhaNEWS)", "news texts whose topic was predicted right"),
    )
    classes = ("business", "entertainment", "health", "politics", "religion", "sports", "technology")
    file_names = ("{language}/{split}.tsv", "eng/train.tsv")
    patterns = (re.compile(rf"{LANGUAGE}/{SPLIT}\.tsv"),)
    layouts = (Columns(texts=("headline", "text"), label="category", quoted=True),)

    def rows(self, path: Path, language: str) -> Iterator[Row]:
        """A row's one text is its headline and, after a blank, the article."""
        for line, key, texts, label in super().rows(path, language):
            yield line, key, (" ".join(" ".join(texts).split()),), label


MASAKHANEWS = MasakhanewsTask()
