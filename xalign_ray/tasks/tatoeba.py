"""Tatoeba: is the nearest English sentence the translation? Without training, at every layer.

Formulas, and how the papers were read: docs/explanation/methods.md, Evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xalign_ray.errors import DataError
from xalign_ray.tasks.hf_encoder import AUTO, Encoder
from xalign_ray.tasks.nearest import nearest_cosine, nearest_csls
from xalign_ray.tasks.scores import Score, average_languages, score_by
from xalign_ray.tasks.task_files import choose_languages, name_language, read_lines

TASK = "tatoeba"
LAST_LAYERS = 4
_NAME = re.compile(r"tatoeba\.(?P<other>.+)-(?P<english>eng|en)\.(?P<end>.+)")


@dataclass(frozen=True, slots=True)
class PairPaths:
    """The two files of a language: line i of one translates line i of the other."""

    language: str
    other: Path
    english: Path


def evaluate_tatoeba(
    encoder_folder: str,
    data: Path,
    languages: Sequence[str] | None = None,
    batch_size: int = 64,
    device: str = AUTO,
) -> list[Score]:
    """Accuracy of retrieving the English translation, per language and layer, and the mean over languages.

    Vectors are means over real tokens; a sentence of language xx is right if its own English side is the nearest by
    cosine among the English sides of the same pair of files. The headline, layer "last4", is the mean accuracy of the
    last min(4, n) layers (DICT-MLM, Table 1). Chance is 1 / number of pairs. `tatoeba_accuracy_csls` is the same by
    CSLS, `tatoeba_accuracy_cls` by cosine of each layer's first token. Beside them the mean cosine of translations and,
    as `pair_cosine_random`, of each sentence with the translation of the next one.

    Args:
        encoder_folder: folder or hub id.
        data: folder of `tatoeba.<xx>-eng.<xx>` and `tatoeba.<xx>-eng.eng` (LASER), or the same with 2-letter codes.
        languages: those to score; all that are found if None.
        batch_size: sentences at a time.
        device: a torch device; "auto" is the GPU where there is one.

    Raises:
        DataError: files missing, of unequal length, or with empty lines; a language the encoder has no embedding for.
    """
    pairs = find_pairs(data)
    chosen = choose_languages(pairs, languages, data)
    encoder = Encoder.open(encoder_folder, device)
    encoder.inputs.check_languages(["en", *chosen])
    scores = [
        score_by(
            encoder.origin,
            task=TASK,
            split="test",
            language=language,
            layer=layer,
            pooling="cls" if metric.endswith("_cls") else "mean",
            metric=metric,
            value=value,
            chance=None if "cosine" in metric else 1 / n,
            n=n,
        )
        for language in chosen
        for metric, layer, value, n in _score_pair(encoder, pairs[language], batch_size)
    ]
    return scores + average_languages(scores)


def find_pairs(data: Path) -> dict[str, PairPaths]:
    """The pairs of files in a folder, by the language that is not English.

    Raises:
        DataError: there are none, or one side of a pair is missing.
    """
    names = [_NAME.fullmatch(path.name) for path in sorted(data.glob("tatoeba.*"))]
    stems = sorted({(name["other"], name["english"]) for name in names if name})
    if not stems:
        raise DataError(f"{data} holds no Tatoeba files; they are called tatoeba.deu-eng.deu and tatoeba.deu-eng.eng.")
    pairs = {}
    for other, english in stems:
        stem = data / f"tatoeba.{other}-{english}"
        language = name_language(other, stem)
        if language in pairs:
            raise DataError(f"{data} holds {language} twice, also as {stem.name}; keep one.")
        pairs[language] = PairPaths(language, Path(f"{stem}.{other}"), Path(f"{stem}.{english}"))
    return pairs


def read_pair(paths: PairPaths) -> tuple[list[str], list[str]]:
    """The sentences of a language and their English translations, equally many.

    Raises:
        DataError: a side is missing or empty, the sides differ in length, or a line is empty.
    """
    other, english = read_lines(paths.other), read_lines(paths.english)
    if len(other) != len(english) or not other:
        raise DataError(
            f"{paths.other} has {len(other)} lines and {paths.english} has {len(english)}; line i of one must "
            "translate line i of the other."
        )
    for path, lines in ((paths.other, other), (paths.english, english)):
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise DataError(f"{path}, line {number} is empty; remove that line from both sides of the pair.")
    return other, english


def layer_accuracies(
    queries: NDArray[np.float32], candidates: NDArray[np.float32], *, csls: bool = False
) -> list[float]:
    """Share of queries whose nearest candidate by cosine, or by CSLS, has the query's own index, for each layer.

    Args:
        queries: `[layers + 1, N, D]`.
        candidates: `[layers + 1, N, D]`.
        csls: take off what a candidate has in common with all queries.
    """
    gold = np.arange(queries.shape[1])
    nearest = [
        nearest_csls(left, right, left) if csls else nearest_cosine(left, right)
        for left, right in zip(queries, candidates, strict=True)
    ]
    return [float((found == gold).mean()) for found in nearest]


def headline(accuracies: Sequence[float]) -> float:
    """Mean accuracy of the last min(4, n) of n layers; `accuracies[0]` is the embedding layer's and never counts."""
    last = accuracies[1:][-LAST_LAYERS:]
    return sum(last) / len(last)


def layer_cosines(queries: NDArray[np.float32], candidates: NDArray[np.float32], shift: int) -> list[float]:
    """Mean cosine of each query and the candidate `shift` places behind its own, for each layer; 0 are translations.

    Args:
        queries: `[layers + 1, N, D]`.
        candidates: `[layers + 1, N, D]`.
    """
    left, right = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True) for vectors in (queries, candidates))
    return (left * np.roll(right, -shift, axis=1)).sum(axis=-1).mean(axis=1).tolist()


def _score_pair(encoder: Encoder, paths: PairPaths, batch_size: int) -> Iterator[tuple[str, int | str, float, int]]:
    other, english = read_pair(paths)
    texts = ((other, paths.language), (english, "en"))
    left, right = (encoder.pool(*text, ("mean", "cls"), batch_size) for text in texts)
    queries, candidates = left["mean"], right["mean"]
    n, last = len(other), f"last{LAST_LAYERS}"
    for metric, csls in (("tatoeba_accuracy", False), ("tatoeba_accuracy_csls", True)):
        accuracies = layer_accuracies(queries, candidates, csls=csls)
        yield metric, last, headline(accuracies), n
        for layer, accuracy in enumerate(accuracies):
            yield metric, layer, accuracy, n
    for layer, accuracy in enumerate(layer_accuracies(left["cls"], right["cls"])):
        yield "tatoeba_accuracy_cls", layer, accuracy, n
    yield "pair_cosine", last, headline(layer_cosines(queries, candidates, shift=0)), n
    yield "pair_cosine_random", last, headline(layer_cosines(queries, candidates, shift=1)), n
