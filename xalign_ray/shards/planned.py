"""Facts of a run from its shards, before it starts: steps, shares, bad rows, and refusals."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xalign_ray.config.choices import FREE_PROMPT, PAIRS, TEXT, prompt_reserve
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.shards.order import CHUNK_STEPS, Order, apportion
from xalign_ray.shards.prepared import Prepared
from xalign_ray.streams.collate import specials
from xalign_ray.work.mirror import url_of


def facts_of(prepared: Prepared, config: RunConfig) -> dict[str, Any]:
    """The fields of a run's start event on its data."""
    return {
        "data": url_of(prepared.folder) or str(prepared.folder.absolute()),
        "data_fingerprint": prepared.fingerprint,
        "planned_shares": planned_shares(prepared, config),
        "bad_rows": bad_rows_facts(prepared, config),
    }


def expected_rows(order: Order, steps: int) -> NDArray[np.float64]:
    """[sources] rows that each source of an order should give in a run of `steps`, by the shares of each chunk."""
    expected = np.zeros(len(order.pools))
    for first in range(0, steps, order.chunk_steps):
        expected += order.shares(first) * order.global_rows * min(order.chunk_steps, steps - first)
    return expected


def planned_shares(prepared: Prepared, config: RunConfig) -> dict[str, float]:
    """Of each language among the tokens of the whole run, which sum to 1: a pair's tokens are halved between its two.

    Words that a stream puts in place of others are not known before; they are counted when they are trained on.
    """
    shares = dict.fromkeys(prepared.languages, 0.0)
    pairs = {"-".join(sorted(corpus.languages)): corpus.languages for corpus in config.data.parallel}
    rows = expected_rows(prepared.order(config), config.train.max_steps).tolist()
    for expected, (_, pool) in zip(rows, prepared.sources(config), strict=True):
        facts = prepared.manifest["pools"][pool]
        languages = pairs[pool.removeprefix(PAIRS)] if pool.startswith(PAIRS) else (pool.removeprefix(TEXT),)
        tokens = facts["tokens"] + specials(len(languages)) * facts["examples"]
        for language in languages:
            shares[language] += expected * tokens / facts["rows"] / len(languages)
    total = sum(shares.values())
    return {language: tokens / total for language, tokens in shares.items()}


def bad_rows_facts(prepared: Prepared, config: RunConfig) -> dict[str, Any]:
    """How many rows of the sources `prepare` set aside, by reason and as a share, and the share that is allowed."""
    reasons, counts = prepared.manifest["bad_rows"], prepared.manifest["counts"]
    bad = sum(reasons.values())
    rows = counts.get("lines", 0) + counts.get("pairs", 0) + bad
    return {"count": bad, "share": bad / max(rows, 1), "limit": config.data.max_bad_fraction, "reasons": reasons}


def count_steps(config: RunConfig, prepared: Prepared) -> RunConfig:
    """The recipe with `max_steps`, `global_batch_size` and `warmup_steps` as whole numbers; given ones stay.

    A source s with e_s pairs in r_s rows has the share q_s of all rows, so a row holds c = sum of q_s e_s / r_s pairs
    on average. A step of P pairs is then G = P / c rows, rounded, and E epochs over N pairs are E N / (G c) steps.

    Args:
        prepared: the shards of this recipe; only their counts are read.
    """
    train = config.train
    rows, steps = train.global_batch_size, train.max_steps
    if not train.is_counted:
        pairs_a_row, pairs = pairs_of_row(config, prepared)
        rows = rows or max(1, round(train.pairs_per_step / pairs_a_row))
        steps = steps or max(1, round(train.num_train_epochs * pairs / (rows * pairs_a_row)))
    schedule = train.schedule.model_copy(update={"warmup_steps": train.schedule.steps_of(steps)})
    counted = {"max_steps": steps, "global_batch_size": rows, "schedule": schedule}
    return config.model_copy(update={"train": train.model_copy(update=counted)})


def pairs_of_row(config: RunConfig, prepared: Prepared) -> tuple[float, int]:
    """Pairs of a row that the recipe draws, on average, and all that its streams draw from; of text alone, examples."""
    counted = PAIRS if any(stream.pools == PAIRS for stream in config.streams) else TEXT
    one_row = config.model_copy(update={"train": config.train.model_copy(update={"global_batch_size": 1})})
    shares = prepared.order(one_row).shares(0).tolist()
    pools = {name: prepared.manifest["pools"][name] for _, name in prepared.sources(config) if name.startswith(counted)}
    a_row = {name: pool["examples"] / pool["rows"] for name, pool in pools.items()}
    drawn = zip(shares, prepared.sources(config), strict=True)
    return sum(share * a_row.get(name, 0) for share, (_, name) in drawn), sum(p["examples"] for p in pools.values())


MIN_COVERAGE = 0.01  # of a language's words that a dictionary must find, or that must be aligned
MIN_PAIRS = 2  # a step, on average: of fewer, most steps hold one at most
_SHOWN = 5  # words of an example


def check_method(config: RunConfig, prepared: Prepared) -> None:
    """Refuses prepared data that a stream or loss of the recipe can make nothing of.

    Raises:
        DataError: names the fault; where it may be meant, with an example and the word for `allow`.
    """
    checks = {"low_coverage": _low_coverage, "unaligned_pairs": _unaligned, "single_pair_steps": _single_pairs}
    _check_weights(config)
    _check_prompts(config, prepared)
    for allowed, check in checks.items():
        fault = next(check(config, prepared), None)
        if fault and allowed not in config.allow:
            raise DataError(f"{fault} If it is meant, set allow to [{allowed}].")


def _check_weights(config: RunConfig) -> None:
    """Refuses a stream whose share of a chunk of steps is less than a row."""
    rows = config.train.global_batch_size * CHUNK_STEPS
    weights = [stream.weight for stream in config.streams]
    for stream, share in zip(config.streams, apportion(weights, rows), strict=True):
        if rows and not share:
            raise DataError(
                f"stream {stream.kind} would never be drawn: by its weight {stream.weight:g} it has "
                f"{rows * stream.weight / sum(weights):.2g} of the {rows:,} rows that are drawn together "
                f"({CHUNK_STEPS} steps of {config.train.global_batch_size:,}). Raise its weight or "
                "train.global_batch_size."
            )


def _check_prompts(config: RunConfig, prepared: Prepared) -> None:
    """Refuses a prompt for which the rows have no room."""
    for prompt, tokenized in prepared.prompts(config).items():
        pieces = tokenized.pieces
        least, reserve = prompt_reserve(len(pieces)), config.data.reserve_fraction
        if reserve < least:
            raise DataError(
                f"stream contrasted_pairs: the prompt {prompt!r} has {len(pieces)} pieces, and rows have room for "
                f"{FREE_PROMPT} before each sentence. Set data.reserve_fraction to {math.ceil(100 * least) / 100:g} or "
                f"more (it is {reserve:g})."
            )


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
    trained = [dictionary for dictionary in config.data.dictionaries if dictionary.split == "train"]
    for language in dict.fromkeys(code for dictionary in trained for code in dictionary.languages):
        pool = prepared.manifest["pools"].get(f"{TEXT}{language}") if streams else None
        if pool is None:
            continue
        words, covered = pool["counts"].get("words", 0), pool["counts"].get("words_in_dictionary", 0)
        if covered < MIN_COVERAGE * words:
            entries = ", ".join(itertools.islice(_entries(prepared, language), _SHOWN))
            yield (
                f"stream {streams[0]}: the dictionaries find {covered:,} of {words:,} words of {language} "
                f"({covered / words:.2%}), so that it would be plain masked LM there. The text has "
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
