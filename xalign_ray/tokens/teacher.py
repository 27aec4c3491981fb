"""Vectors of a teacher: `prepare` computes one for each pair, and shards hold them beside the pair's pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from xalign_ray.config.code import package_code
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import Teacher
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.backbone import encoder_values
from xalign_ray.models.hub import fetch_weights
from xalign_ray.models.nearest import mined_negatives, unit_rows
from xalign_ray.models.open import Opened, open_encoder
from xalign_ray.models.vectors import SentenceVectors, vector_files, vector_width
from xalign_ray.shards.rows import PER_INT, Ints, Rows, as_ints, with_negatives
from xalign_ray.sources.stage import InputHashes
from xalign_ray.work.artifacts import stamp_of


class TeacherVectors:
    """An opened teacher.

    Attributes:
        language: of the sentence of a pair that it reads; None for both, to mine hard negatives.
    """

    def __init__(self, path: str, language: str | None) -> None:
        self.language = language
        self._name = path
        self._encoder = SentenceVectors(_fetched(path))

    def columns(self, texts: Sequence[str], side: int) -> dict[str, Ints]:
        """The fields of `Rows` for pairs whose texts the teacher reads, one a pair; a repeated text is read once.

        Args:
            side: which segment of each pair the text is.

        Raises:
            DataError: a vector is not finite, as fp16 holds it.
        """
        distinct = list(dict.fromkeys(texts))
        number = {text: index for index, text in enumerate(distinct)}
        lengths = np.zeros(2 * len(texts), np.int32)
        if not texts:
            return {"segment_vector": lengths, "vector": np.zeros(0, np.int32)}
        vectors = self._encoder.encode(distinct)
        if not np.isfinite(vectors.astype(np.float16)).all():
            raise DataError(
                f"data.teacher {self._name} gives vectors that are not finite in fp16: its weights are damaged, or its "
                "numbers above 65,504. Name another teacher."
            )
        lengths[side::2] = vectors.shape[1] // PER_INT
        return {"segment_vector": lengths, "vector": as_ints(vectors[[number[text] for text in texts]])}

    def hard_negatives(self, rows: Rows, texts: tuple[Sequence[str], Sequence[str]]) -> Rows:
        """The pairs with the pieces of a hard negative of each sentence: see `mined_negatives`."""
        numbered = [{text: number for number, text in enumerate(dict.fromkeys(side))} for side in texts]
        vectors = [unit_rows(self._encoder.encode([*side])) for side in numbered]
        if not texts[0]:
            return rows
        places = [np.array([of[text] for text in side]) for of, side in zip(numbered, texts, strict=True)]
        return with_negatives(
            rows, *mined_negatives(vectors[0], vectors[1], places[0], places[1], self._encoder.device)
        )


def _fetched(path: str) -> Opened:
    """A teacher with its weights on this machine."""
    return open_encoder(fetch_weights(path))


def open_teacher(path: str, language: str | None) -> TeacherVectors:
    """The teacher, opened once a process while its files are unchanged."""
    return _open_teacher(path, language, tuple(map(stamp_of, vector_files(_fetched(path)))))


@lru_cache(maxsize=1)  # a worker keeps it from part to part
def _open_teacher(path: str, language: str | None, _: tuple[tuple[int, ...], ...]) -> TeacherVectors:
    return TeacherVectors(path, language)


def teacher_identity(teacher: Teacher, hashes: InputHashes) -> list[Any]:
    """What its vectors depend on: the content of its files, wherever they lie, and the language that it reads."""
    opened = _fetched(teacher.path)
    files = vector_files(opened)
    named = [path.relative_to(opened.folder).as_posix() for path in files]
    content = dict(zip(named, hashes.of([str(path) for path in files]), strict=True))
    return [package_code("models"), teacher.gives, teacher.language, content]


def facts_of_teacher(teacher: Teacher, records: Sequence[tuple[Any, Mapping[str, Any]]]) -> dict[str, Any]:
    """The teacher's fields of the manifest: the width of a vector, and the most pairs of a row of any part."""
    if teacher.gives == "hard_negatives":
        return {"gives": teacher.gives}
    splits = [record[split] for task, record in records if task.teacher for split in ("trained", "held_out")]
    most = max((split["most_examples"] for split in splits if split), default=0)
    return {"language": teacher.language, "width": vector_width(_fetched(teacher.path)), "most": most}


def check_teacher(config: RunConfig) -> None:
    """Refuses a teacher whose vectors the encoder cannot learn, by config files alone; a hub id is looked at later.

    Raises:
        ConfigError: it is no folder, makes vectors in an unknown way, or of another width than the encoder's.
    """
    teacher = config.data.teacher
    if teacher is None or not (Path(teacher.path).is_dir() or teacher.path.startswith((".", "/"))):
        return
    if not Path(teacher.path).is_dir():
        raise ConfigError(f"data.teacher.path: there is no folder {teacher.path}.")
    try:
        width = vector_width(open_encoder(teacher.path))
    except DataError as error:
        raise ConfigError(f"data.teacher.path: {error}") from None
    if teacher.gives == "hard_negatives":  # its vectors meet no others
        return
    if width % PER_INT:
        raise ConfigError(
            f"data.teacher.path: {teacher.path} makes vectors of {width} numbers; an even number is needed."
        )
    start = config.model.init_from
    values = encoder_values(start) if start and not start.startswith("run:") else None
    learned = config.model.hidden_size if start is None else values and values["hidden_size"]
    if learned and learned != width:
        raise ConfigError(
            f"data.teacher.path: {teacher.path} makes vectors of {width} numbers, and the encoder that learns them has "
            f"{learned}. Take a teacher and an encoder of one width."
        )
