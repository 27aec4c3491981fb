"""Sentiment of tweets in African languages (AfriSenti, SemEval-2023 task 12): three classes; accuracy."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from xalign_ray.tasks.task import Metric
from xalign_ray.tasks.task_files import LANGUAGE, SPLIT
from xalign_ray.tasks.text_classification import ClassificationTask, Columns

LANGUAGES = {"kr": "rw", "dz": "arq", "ma": "ary"}  # the shared task's own codes, where they are others


class AfrisentiTask(ClassificationTask):
    """Files are `hau/train.tsv`, or those of the shared task, `ha_train.tsv`. There is no English: tune on a language.

    A macro F1, by which the shared task ranked, is not computed.
    """

    name = "afrisenti"
    metrics = (Metric("afrisenti_accuracy", "Sentiment (AfriSenti)", "tweets whose sentiment was predicted right"),)
    classes = ("negative", "neutral", "positive")
    file_names = ("{language}/{split}.tsv", "hau/train.tsv", "ha_train.tsv")
    patterns = (
        re.compile(rf"{LANGUAGE}/{SPLIT}\.tsv"),
        re.compile(rf"{LANGUAGE}_{SPLIT}\.tsv"),
        re.compile(rf"{SPLIT}/{LANGUAGE}_(?:train|dev|test)\.tsv"),
    )
    layouts = (Columns(texts=("tweet",), label="label"),)

    def languages_of(self, code: str, path: Path) -> Collection[str]:
        return super().languages_of(LANGUAGES.get(code, code), path)


AFRISENTI = AfrisentiTask()
