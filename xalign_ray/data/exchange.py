"""Another vocabulary for a given encoder, or fewer pieces: its rows, and how it cuts the corpora; of prepare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xalign_ray.config.schema import DataConfig, RunConfig
from xalign_ray.config.sources import ExchangeTokenizer, TrimTokenizer
from xalign_ray.data.file_hashes import EXCHANGE, START_ROWS, write_arrays
from xalign_ray.data.inputs import Input
from xalign_ray.data.sources.formats import read_part
from xalign_ray.data.sources.records import Document, Pair
from xalign_ray.data.tokenizer_folder import SPECIAL, framed, open_tokenizer, vocabulary, wrap_tokenizer
from xalign_ray.text.exchange import SHARED, StartRows, combine_similar, fertility, start_rows
from xalign_ray.text.new_pieces import count_pieces, keep_pieces, pieces_to_keep
from xalign_ray.work.artifacts import write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MEASURED = 2000  # lines of a language in which pieces are counted
SAMPLED = 20_000  # lines of each input that tell which pieces are used alike


def first_lines(data: DataConfig, texts: Sequence[Input]) -> dict[str, list[str]]:
    """The first lines of each input, text and pairs, by language."""
    lines: dict[str, list[str]] = {}
    for one in texts:
        broken = [] if data.on_broken_file == "keep_rest_out" else None
        records = (record for part in one.parts for record in read_part(part, one.languages, broken=broken))
        for record in islice((one for one in records if isinstance(one, Document | Pair)), SAMPLED):
            if isinstance(record, Document):
                lines.setdefault(record.language, []).extend(record.paragraphs)
            else:
                for language, text in zip(record.languages, record.texts, strict=True):
                    lines.setdefault(language, []).append(text)
    return lines


def replace_tokenizer(
    config: RunConfig,
    settings: ExchangeTokenizer | TrimTokenizer,
    translations: Mapping[str, Sequence[str]],
    texts: Sequence[Input],
    sample: Callable[[], Iterable[str]],
    folder: Path,
) -> PreTrainedTokenizerFast:
    """The new tokenizer. Writes what its rows start as into the data folder, and says how many in each way.

    Args:
        config: the recipe; `model.init_from` has the encoder's own tokenizer.
        settings: its tokenizer.
        translations: the trained pairs of the dictionary.
        texts: the corpora.
        sample: lines in which pieces are counted.

    Raises:
        ConfigError: one of the two tokenizers cannot be opened.
    """
    init_from = str(config.model.init_from)
    lines = first_lines(config.data, texts)
    old = open_tokenizer(init_from)
    if isinstance(settings, TrimTokenizer):
        new, rows, counts = _trim(framed(open_tokenizer(init_from)), settings, translations, sample)
    else:
        new, rows, counts = _exchange(old, settings, translations, [*chain(*lines.values())])
    write_arrays(folder / START_ROWS, partial(np.savez, **asdict(rows)))
    before, after = (
        {language: fertility(one.backend_tokenizer, text[:MEASURED]) for language, text in sorted(lines.items())}
        for one in (old, new)
    )
    write_json(folder / EXCHANGE, {"pieces": counts, "before": before, "after": after})
    ways = ", ".join(f"{count:,} {way.replace('_', ' ')}" for way, count in counts.items())
    given = settings.path if isinstance(settings, ExchangeTokenizer) else "its own vocabulary that the corpora use"
    sys.stderr.write(f"prepare: {init_from} gets the {len(rows.counts):,} pieces of {given}: {ways}.\n")
    return new


def _exchange(
    old: PreTrainedTokenizerFast,
    settings: ExchangeTokenizer,
    translations: Mapping[str, Sequence[str]],
    lines: Sequence[str],
) -> tuple[PreTrainedTokenizerFast, StartRows, dict[str, int]]:
    new = framed(open_tokenizer(settings.path))
    special: dict[int, int | None] = dict.fromkeys(new.all_special_ids)
    for name in SPECIAL:
        ours, theirs = (getattr(one, f"{name}_token_id") for one in (new, old))
        if ours is not None and special.get(ours) is None:
            special[ours] = theirs
    rows, counts = start_rows(
        old.backend_tokenizer,
        new.backend_tokenizer,
        special,
        vocabulary(old).unknown,
        translations if settings.init == "dictionary" else {},
        partial(combine_similar, new.backend_tokenizer, lines) if settings.init == "focus" else None,
        from_pieces=settings.init != "random",
    )
    return new, rows, counts


def _trim(
    old: PreTrainedTokenizerFast,
    settings: TrimTokenizer,
    translations: Mapping[str, Sequence[str]],
    sample: Callable[[], Iterable[str]],
) -> tuple[PreTrainedTokenizerFast, StartRows, dict[str, int]]:
    backend = old.backend_tokenizer
    counts = count_pieces(backend, chain(sample(), translations, *translations.values()))
    keep = pieces_to_keep(backend, counts, old.all_special_ids, settings.min_count)
    rows = StartRows(np.ones(len(keep), np.int32), np.asarray(keep, np.int32), np.ones(len(keep), np.float32))
    dropped = backend.get_vocab_size() - len(keep)
    return wrap_tokenizer(keep_pieces(backend, keep), like=old), rows, {SHARED: len(keep), "dropped": dropped}
