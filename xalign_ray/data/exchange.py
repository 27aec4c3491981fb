"""Another vocabulary for a given encoder: what its rows start as, and how it cuts the corpora, written by prepare."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xalign_ray.config.schema import DataConfig, RunConfig
from xalign_ray.config.sources import ExchangeTokenizer
from xalign_ray.data.file_hashes import EXCHANGE, START_ROWS, write_arrays
from xalign_ray.data.inputs import Input
from xalign_ray.data.sources.formats import read_part
from xalign_ray.data.sources.records import Document, Pair
from xalign_ray.data.tokenizer_folder import SPECIAL, framed, open_tokenizer, vocabulary
from xalign_ray.text.exchange import fertility, start_rows
from xalign_ray.text.similar_pieces import combine_similar
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


def exchange_tokenizer(
    config: RunConfig,
    settings: ExchangeTokenizer,
    translations: Mapping[str, Sequence[str]],
    texts: Sequence[Input],
    folder: Path,
) -> PreTrainedTokenizerFast:
    """The new tokenizer. Writes what its rows start as into the data folder, and says how many in each way.

    Args:
        config: the recipe; `model.init_from` has the encoder's own tokenizer.
        settings: its tokenizer.
        translations: the trained pairs of the dictionary.
        texts: the corpora.

    Raises:
        ConfigError: one of the two tokenizers cannot be opened.
    """
    init_from = str(config.model.init_from)
    lines = first_lines(config.data, texts)
    old, new = open_tokenizer(init_from), framed(open_tokenizer(settings.path))
    special: dict[int, int | None] = dict.fromkeys(new.all_special_ids)
    for name in SPECIAL:
        ours, theirs = (getattr(one, f"{name}_token_id") for one in (new, old))
        if ours is not None and special.get(ours) is None:
            special[ours] = theirs
    every = [line for some in lines.values() for line in some]
    similar = partial(combine_similar, new.backend_tokenizer, every) if settings.init == "focus" else None
    rows, counts = start_rows(
        old.backend_tokenizer,
        new.backend_tokenizer,
        special,
        vocabulary(old).unknown,
        translations if settings.init == "dictionary" else {},
        similar,
        from_pieces=settings.init != "random",
    )
    write_arrays(folder / START_ROWS, partial(np.savez, **asdict(rows)))
    before, after = (
        {language: fertility(one.backend_tokenizer, text[:MEASURED]) for language, text in sorted(lines.items())}
        for one in (old, new)
    )
    write_json(folder / EXCHANGE, {"pieces": counts, "before": before, "after": after})
    ways = ", ".join(f"{count:,} {way.replace('_', ' ')}" for way, count in counts.items())
    sys.stderr.write(f"prepare: {init_from} gets the {sum(counts.values()):,} pieces of {settings.path}: {ways}.\n")
    return new
