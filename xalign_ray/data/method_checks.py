"""Refuses data on which a recipe's method would silently be another one: no words found, no links, no negatives."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer

from xalign_ray.config.choices import PAIRS, TEXT
from xalign_ray.config.schema import RunConfig
from xalign_ray.data.counted import pairs_of_row
from xalign_ray.data.prepared import Prepared
from xalign_ray.errors import DataError

MIN_COVERAGE = 0.01  # of a language's words that a dictionary must find, or that must be aligned
MIN_PAIRS = 2  # a step, on average: of fewer, most steps hold one at most
_SHOWN = 5  # words of an example


def check_method(config: RunConfig, prepared: Prepared) -> None:
    """Refuses prepared data that a stream or loss of the recipe can make nothing of.

    Raises:
        DataError: with what was found, an example, and the word of `allow` with which it is taken.
    """
    checks = {"low_coverage": _low_coverage, "unaligned_pairs": _unaligned, "single_pair_steps": _single_pairs}
    for allowed, check in checks.items():
        found = next(check(config, prepared), None)
        if found and allowed not in config.allow:
            raise DataError(f"{found} If it is meant, set allow to [{allowed}].")


def _low_coverage(config: RunConfig, prepared: Prepared) -> Iterator[str]:
    streams = [stream.kind for stream in config.streams if stream.needs_dictionary]
    losses = [loss.kind for loss in config.objectives if loss.needs_dictionary]
    counts = prepared.manifest["dictionary"]
    without = counts.get("pairs_trained_without_pieces", 0)
    usable = counts.get("pairs_trained", 0)
    if losses and usable < MIN_COVERAGE * (usable + without):
        yield (
            f"objective {losses[0]}: of {usable + without:,} trained pairs of the dictionaries {usable:,} can be "
            "written in the tokenizer's pieces. Take a tokenizer that has their scripts."
        )
    trained = [one for one in config.data.dictionaries if one.split == "train"]
    for language in dict.fromkeys(code for one in trained for code in one.languages):
        pool = prepared.manifest["pools"].get(f"{TEXT}{language}") if streams else None
        if pool is None:
            continue
        words, known = pool["counts"].get("words", 0), pool["counts"].get("words_in_dictionary", 0)
        if known < MIN_COVERAGE * words:
            entries = ", ".join(itertools.islice(_entries(prepared, language), _SHOWN))
            yield (
                f"stream {streams[0]}: the dictionaries find {known:,} of {words:,} words of {language} "
                f"({known / words:.2%}), so that it would be plain masked LM there. The text has "
                f"{', '.join(_words(prepared, f'{TEXT}{language}'))}; the dictionaries have {entries or 'none'}. Look "
                "whether the tokenizer cuts words as they do, and whether the languages are not exchanged."
            )


def _unaligned(config: RunConfig, prepared: Prepared) -> Iterator[str]:
    streams = [stream.kind for stream in config.streams if stream.needs_alignment]
    for name, pool in prepared.manifest["pools"].items() if streams else ():
        links, words = pool["counts"].get("links", 0), pool["counts"].get("words", 0)
        if name.startswith(PAIRS) and links < MIN_COVERAGE * words:
            yield (
                f"stream {streams[0]}: the {pool['examples']:,} pairs of {name.removeprefix(PAIRS)} have {links:,} "
                f"links between {words:,} words, so that nothing would be exchanged. They have words such as "
                f"{', '.join(_words(prepared, name))}. Look at the alignment file, or set the corpus's align to hmm."
            )


def _single_pairs(config: RunConfig, prepared: Prepared) -> Iterator[str]:
    losses = [loss.kind for loss in config.objectives if loss.over_step]
    rows = config.train.global_batch_size
    pairs = rows * pairs_of_row(config, prepared)[0] if rows else config.train.pairs_per_step
    if losses and pairs < MIN_PAIRS:
        yield (
            f"objective {losses[0]} tells a pair from the others of its global step, and a step holds {pairs:.2g} "
            f"pairs on average, so that most have no other. Raise train.global_batch_size (it is {rows})."
        )


def _entries(prepared: Prepared, language: str) -> Iterator[str]:
    """Words of a language in the dictionaries."""
    listed: list[Any] = json.loads((prepared.folder / "entries.json").read_text(encoding="utf-8"))
    number = prepared.languages.index(language)
    return (word for code, word in listed if code == number)


def _words(prepared: Prepared, pool: str) -> list[str]:
    """The first words of a pool, as the tokenizer cuts them."""
    rows = prepared.first_rows(pool, 1)
    tokenizer = Tokenizer.from_file(str(prepared.tokenizer_folder / "tokenizer.json"))
    ends = list(itertools.accumulate(rows.word_length[:_SHOWN].tolist()))
    pieces = rows.pieces.tolist()
    return [tokenizer.decode(pieces[begin:end]).strip(" \u2581") for begin, end in zip([0, *ends], ends, strict=False)]
