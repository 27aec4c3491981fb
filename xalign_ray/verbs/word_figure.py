"""Draws WEAM's figure, how near words lie to their translations in each encoder, with numbers that it cannot show."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from xalign_ray.errors import DataError
from xalign_ray.evaluation import find_encoder
from xalign_ray.models.nearest import Vectors, unit_rows
from xalign_ray.tasks.probes import WordPair, read_word_pairs
from xalign_ray.work.artifacts import write_atomic
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import local_folder, opened
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import shown_path

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder

PAIRS = 20  # as in WEAM's figure
PERPLEXITY = 10  # must be below the number of points, 40
TIE = 1e-6  # a cosine computed in two ways differs by less
FIGURE, TABLE = "word_map.svg", "word_map.csv"


def draw_words(models: Sequence[str], data: Path, out: Path) -> pd.DataFrame:
    """Draws the first 20 pairs of a dictionary for each encoder by t-SNE, and writes and returns the numbers.

    A word is the mean of its pieces' rows in the embedding table, plus the language's vector in models that have one.

    Args:
        models: folders of runs or encoders, or hub ids; a panel each, in this order.
        data: a dictionary, such as the `en-de.frequent.txt` of `xalign data align`.
        out: folder for `word_map.svg` and `word_map.csv`.

    Returns:
        A row an encoder and pair: `model`, `source`, `target`, `cosine`, `reciprocal_rank` (of the target among all
        words of its language in the file, by cosine), and the places `source_x`, `source_y`, `target_x`, `target_y`.

    Raises:
        DataError: the file has fewer than four pairs or more than two languages, or an encoder knows no piece of a
            word that is drawn.
    """
    pairs = read_word_pairs(Path(opened(data)), [])
    if len(pairs) < 4 or len({pair.languages for pair in pairs}) > 1:
        raise DataError(f"{data} must hold at least four pairs of words, of two languages; give one dictionary.")
    shown = {model: shown_path(Path(model)) if Path(model).is_dir() else model for model in models}
    say(f"Drawing words of {', '.join(shown.values())}: loading the models.")
    from xalign_ray.models.inference import Encoder  # torch
    from xalign_ray.models.open import open_encoder
    from xalign_ray.results.charts import COLOURS, Chart, draw_file

    frames = {shown[model]: _measure(Encoder.open(open_encoder(find_encoder(model)[0])), pairs) for model in models}
    numbers = pd.concat(frames, names=["model"]).reset_index("model").reset_index(drop=True)
    styles = {
        language: {"color": COLOURS[number], "marker": "os"[number], "ls": ""}
        for number, language in enumerate(pairs[0].languages)
    }
    panels = {
        f"{model}: cosine {frame.cosine.mean():.2f}, reciprocal rank {frame.reciprocal_rank.mean():.2f}":
        partial(_draw, frame, list(styles.values()))
        for model, frame in frames.items()
    }  # fmt: skip
    chart = Chart("words", "Words and their translations", [], TABLE, styles, panels, size=(5.2, 4.4))
    target = local_folder(out)
    with open_job(target, "word-map", with_run=True):
        write_atomic(target / FIGURE, draw_file(chart))
        write_atomic(target / TABLE, numbers.to_csv(index=False))
    return numbers


def _measure(encoder: Encoder, pairs: Sequence[WordPair]) -> pd.DataFrame:
    """The first 20 pairs of one encoder: cosine, reciprocal rank and places."""
    drawn = pairs[:PAIRS]
    first, second = pairs[0].languages
    encoder.inputs.check_languages([first, second])
    sources = _vectors(encoder, [pair.source for pair in drawn], first)
    targets = _vectors(encoder, [pair.target for pair in drawn], second)
    others = encoder.word_vectors(list(dict.fromkeys(pair.target for pair in pairs)))
    candidates = unit_rows(others[others.any(axis=1)] + encoder.language_vector(second))
    cosine = (sources * targets).sum(axis=1)
    ranks = 1 + (sources @ candidates.T > cosine[:, None] + TIE).sum(axis=1)
    places = _place(np.concatenate([sources, targets]))
    return pd.DataFrame(
        {"source": [pair.source for pair in drawn], "target": [pair.target for pair in drawn],
         "cosine": cosine, "reciprocal_rank": 1 / ranks}
        | {f"{word}_{axis}": places[first : first + len(drawn), number]
           for word, first in (("source", 0), ("target", len(drawn))) for number, axis in enumerate("xy")}
    )  # fmt: skip


def _vectors(encoder: Encoder, words: Sequence[str], language: str) -> Vectors:
    vectors = encoder.word_vectors(words)
    if unknown := [word for word, vector in zip(words, vectors, strict=True) if not vector.any()]:
        raise DataError(
            f"{encoder.inputs.encoder} knows no piece of {', '.join(unknown)} ({language}), which would be drawn; "
            "leave such words out of the file."
        )
    return unit_rows(vectors + encoder.language_vector(language))


def _place(vectors: Vectors) -> Any:
    """t-SNE from the first two principal components, always the same; `[N, D]` to `[N, 2]`."""
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(vectors)


def _draw(frame: pd.DataFrame, styles: Sequence[dict[str, Any]], axes: Any) -> None:
    from xalign_ray.results.charts import LINE

    for row in frame.itertuples():
        axes.plot([row.source_x, row.target_x], [row.source_y, row.target_y], color=LINE, lw=0.8, zorder=1)
    for column, style in zip(("source", "target"), styles, strict=True):
        xs, ys = frame[f"{column}_x"], frame[f"{column}_y"]
        axes.plot(xs, ys, ms=4, **style)
        for word, x, y in zip(frame[column], xs, ys, strict=True):
            axes.annotate(word, (x, y), xytext=(3, 3), textcoords="offset points", fontsize=7, color=style["color"])
    axes.set_xticks([])
    axes.set_yticks([])
