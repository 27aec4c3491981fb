"""Mines translations out of two monolingual files by margin; a threshold is chosen on dev pairs put among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from xalign_ray.errors import DataError
from xalign_ray.models.nearest import (
    Mined,
    Threshold,
    best_threshold,
    mine_pairs,
    search_both_ways,
    unit_rows,
)
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors
from xalign_ray.sources.open import read_lines
from xalign_ray.work.artifacts import replacing, write_json
from xalign_ray.work.status_line import PartsDone, say

CHUNK = 4096  # sentences that are encoded between two lines of progress
FACTS = "mining.json"

Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Side:
    """Distinct sentences of one language; the first `own` are of the file, the others of dev pairs alone."""

    texts: list[str]
    own: int


def mine_files(
    files: tuple[Path, Path],
    languages: tuple[str, str],
    encoder: str,
    folder: Path,
    neighbours: int,
    dev: Pairs = (),
    threshold: float | None = None,
) -> Path:
    """Writes `mined.<first>-<second>.tsv`: a sentence of each file and their score a row, the best first.

    Memory is that of both sides' sentences and neighbours, and of one block of cosines; vectors lie on the disk. Where
    faiss searches, its index of one side's vectors is in memory too.

    Args:
        files: text, a sentence a line.
        encoder: folder or hub id.
        neighbours: that the mean of a sentence's cosines is of.
        dev: known translations. Their sentences are put among the files', and the threshold is that of the highest F1
            on them.
        threshold: the least score; None takes it from dev.

    Raises:
        DataError: a file has no sentence, the encoder cannot be opened, or no dev pair is found.
    """
    sides = tuple(read_side(path, [pair[number] for pair in dev]) for number, path in enumerate(files))
    opened = SentenceVectors(open_encoder(encoder))
    sizes = " and ".join(f"{len(side.texts):,}" for side in sides)
    say(f"Mining {sizes} sentences on {opened.device}.")
    stores = [folder / f".vectors-{number}.f32" for number in range(2)]
    try:
        vectors = [
            _encode(opened, side.texts, *at)
            for side, at in zip(sides, zip(stores, languages, strict=True), strict=True)
        ]
        say(f"Comparing {sizes} sentences.")
        mined = mine_pairs(*search_both_ways(vectors[0], vectors[1], neighbours, opened.device))
    finally:
        for store in stores:
            store.unlink(missing_ok=True)
    best = _threshold(mined, sides, dev) if threshold is None else None
    least = best.score if best else threshold
    assert least is not None
    chosen = [
        pair for pair in mined if pair.score >= least and pair.first < sides[0].own and pair.second < sides[1].own
    ]
    out = folder / f"mined.{'-'.join(languages)}.tsv"
    _write(out, languages, chosen, sides)
    facts = {"encoder": encoder, "neighbours": neighbours, "threshold": least, "pairs": len(chosen)}
    write_json(folder / FACTS, facts | {"sentences": [side.own for side in sides], "dev": best and asdict(best)})
    if best:
        reached = f"F1 {best.f1:.3f}, precision {best.precision:.3f}, recall {best.recall:.3f}"
        say(f"Threshold {best.score:.4f}: on {len(dev):,} dev pairs {reached}.")
    say(f"{len(chosen):,} pairs of {sides[0].own:,} and {sides[1].own:,} sentences.")
    return out


def read_side(path: Path, dev: Sequence[str]) -> Side:
    """The distinct sentences of a file, then sentences of dev pairs that it lacks; bad lines are counted.

    Raises:
        DataError: the file has no sentence.
    """
    sentences: dict[str, None] = {}
    bad = 0
    for line in read_lines(str(path)):
        if line.fault:
            bad += 1
        elif text := " ".join(line.text.split()):
            sentences[text] = None
    if bad:
        say(f"{path}: {bad:,} lines cannot be read as UTF-8 text and are left out.")
    if not sentences:
        raise DataError(f"{path} holds no sentence.")
    in_file = len(sentences)
    sentences |= dict.fromkeys(" ".join(text.split()) for text in dev)
    return Side([*sentences], in_file)


def _encode(encoder: SentenceVectors, texts: Sequence[str], store: Path, language: str) -> np.ndarray:
    """Vectors of length 1 as a file that is mapped into memory."""
    store.parent.mkdir(parents=True, exist_ok=True)
    begins = range(0, len(texts), CHUNK)
    # Not written through the map: a full disk would end the process without a word.
    with PartsDone(f"encoding {language}", dict.fromkeys(begins, 0), part="chunk") as shown, store.open("wb") as file:
        for begin in begins:
            vectors = unit_rows(encoder.encode(texts[begin : begin + CHUNK], language))
            file.write(np.ascontiguousarray(vectors, np.float32).data)
            shown.add(begin)
    return np.memmap(store, np.float32, "r+").reshape(len(texts), -1)


def _threshold(mined: Sequence[Mined], sides: tuple[Side, ...], dev: Pairs) -> Threshold:
    numbers = [{text: number for number, text in enumerate(side.texts)} for side in sides]
    gold = [tuple(of[" ".join(text.split())] for of, text in zip(numbers, pair, strict=True)) for pair in dev]
    best = best_threshold(mined, gold)  # type: ignore[arg-type]
    if best is None:
        raise DataError(
            "None of the dev pairs was found: the encoder does not align these languages, or sides are exchanged."
        )
    return best


def _write(path: Path, languages: tuple[str, str], mined: Sequence[Mined], sides: tuple[Side, ...]) -> None:
    with replacing(path) as temporary, temporary.open("x", encoding="utf-8", newline="\n") as file:
        file.write("\t".join([*languages, "score"]) + "\n")
        for pair in mined:
            file.write(f"{sides[0].texts[pair.first]}\t{sides[1].texts[pair.second]}\t{pair.score:.6f}\n")
