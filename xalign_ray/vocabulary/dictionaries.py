"""Reads the recipe's dictionaries and writes what training and probes need of them: lexicon, pairs, words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import DataError
from xalign_ray.sources.formats import NOTED, explain_no_good_row, read_part
from xalign_ray.sources.inputs import Input
from xalign_ray.sources.open import BrokenFile
from xalign_ray.sources.records import BadRow, Entry
from xalign_ray.sources.stage import write_arrays
from xalign_ray.sources.summary import BAD_ROWS, BadRowsFile, SourceSummary, check_bad_fraction, file_names
from xalign_ray.vocabulary.dictionary import (
    LONGEST_PHRASE,
    Key,
    Translation,
    Translations,
    add_entries,
    build_lexicon,
    look_up_form,
    pair_arrays,
    separate,
    split_forms,
)
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD, tokenize_words
from xalign_ray.work.artifacts import write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def trained_translations(translations: Translations) -> dict[str, list[str]]:
    """Each word form of the trained pairs and its translations; held-out pairs are no one's."""
    by_word: dict[str, list[str]] = {}
    for left, right in translations.trained:
        by_word.setdefault(left[1], []).append(right[1])
        by_word.setdefault(right[1], []).append(left[1])
    return by_word


def write_lexicon(
    config: RunConfig, translations: Translations, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> dict[str, int]:
    """Writes lexicon.npz, entries.json, pairs_*.npz and pair_words.json into the data folder.

    Returns:
        Counts for the manifest; empty if the recipe names no dictionary.
    """
    if not config.data.dictionaries:
        return {}
    languages = config.languages
    pieces = tokenize_keys(
        tokenizer,
        languages,
        [key for translation in (*translations.trained, *translations.held_out) for key in translation],
    )
    entries, lexicon = build_lexicon(list(translations.trained), pieces.get)
    write_arrays(folder / "lexicon.npz", partial(np.savez, **asdict(lexicon)))
    write_json(folder / "entries.json", list(entries), indent=None)
    words: dict[str, list[list[str]]] = {}
    for split, kept in (("trained", list(translations.trained)), ("held_out", list(translations.held_out))):
        usable = [translation for translation in kept if all(pieces.get(key) is not None for key in translation)]
        arrays = asdict(pair_arrays(usable, pieces.get))
        write_arrays(folder / f"pairs_{split}.npz", partial(np.savez, **arrays))
        words[split] = [[languages[a[0]], a[1], languages[b[0]], b[1]] for a, b in usable]
        translations.counts[f"pairs_{split}"] = len(usable)
        translations.counts[f"pairs_{split}_without_pieces"] = len(kept) - len(usable)
    translations.counts["entries"] = len(entries)
    lengths = [1 + form.count("\n") for form in split_forms([form for _, form in entries])]
    translations.counts["entries_of_several_words"] = sum(length > 1 for length in lengths)
    translations.counts[f"entries_of_more_than_{LONGEST_PHRASE}_words"] = sum(n > LONGEST_PHRASE for n in lengths)
    used = {
        key for split in (translations.trained, translations.held_out) for translation in split for key in translation
    }
    translations.counts["words"] = len(used)
    translations.counts["words_of_one_piece"] = sum(len(pieces.get(key) or ()) == 1 for key in used)
    write_json(folder / "pair_words.json", words, indent=None)
    return dict(translations.counts)


def read_translations(
    config: RunConfig, dictionaries: Sequence[Input], folder: Path, broken: list[BrokenFile]
) -> tuple[Translations, list[SourceSummary]]:
    """The translations of the recipe's dictionaries, and what became of the lines of each.

    Bad lines go to a file of bad rows in the data folder; what cannot be read of a file to `broken` if the recipe keeps
    it out.

    Dictionaries with a held-out file of their own are not split by hash; all others hold out
    `data.dictionary_held_out_fraction` of their concepts.

    Raises:
        DataError: a dictionary is empty, or worse than data.max_bad_fraction.
    """
    translations, sources = Translations(), []
    if not dictionaries:
        return translations, []
    languages = config.languages
    own_split = {frozenset(d.languages) for d in config.data.dictionaries if d.split == "held_out"}
    judged: list[tuple[Counter[str], int, str, list[str]]] = []
    with BadRowsFile(folder / f"dictionary_{BAD_ROWS}") as bad_rows:
        for one, asked in zip(dictionaries, config.data.dictionaries, strict=True):
            ids = [languages.index(code) for code in one.languages]
            pivot = languages.index("en") if "en" in one.languages else None
            found: list[Translation] = []
            skipped: Counter[str] = Counter()
            bad, before = bad_rows.counts.copy(), translations.counts.copy()
            size = len(translations.trained) + len(translations.held_out)
            kept_out = broken if one.keep_rest_out else None
            for record in chain.from_iterable(read_part(p, one.languages, skipped, kept_out) for p in one.parts):
                if isinstance(record, BadRow):
                    bad_rows.add(record)
                elif isinstance(record, Entry):
                    left, right = (
                        (language, look_up_form(word, code))
                        for language, code, word in zip(ids, one.languages, record.words, strict=True)
                    )
                    found.append((left, right))
            its_bad = bad_rows.counts - bad
            if not found:
                raise DataError(explain_no_good_row(one.parts, its_bad))
            name = f"dictionary {'-'.join(one.languages)}"
            judged.append((its_bad, len(found) + its_bad.total(), name, file_names(one)))
            noted = {key.removeprefix(NOTED): skipped.pop(key) for key in [*skipped] if key.startswith(NOTED)}
            share = 0.0 if frozenset(asked.languages) in own_split else config.data.dictionary_held_out_fraction
            add_entries(translations, found, pivot, share, held_out=asked.split == "held_out")
            aside = skipped + its_bad + (translations.counts - before)
            rows = (skipped + its_bad).total() + aside.pop("lines")
            kept = len(translations.trained) + len(translations.held_out) - size
            sources.append(SourceSummary(name, file_names(one), rows, kept, dict(aside), noted))
    for its_bad, total, name, files in judged:
        check_bad_fraction(its_bad, total, config.data.max_bad_fraction, bad_rows.path, name, files)
    separate(translations)
    return translations, sources


def tokenize_keys(
    tokenizer: PreTrainedTokenizerFast, languages: Sequence[str], keys: Sequence[Key]
) -> dict[Key, tuple[int, ...] | None]:
    """The pieces of each word as it stands in a sentence; None with an unknown one or more than LONGEST_WORD."""
    assert all(key[0] < len(languages) for key in keys)
    distinct = sorted(set(keys))
    pieces: dict[Key, tuple[int, ...] | None] = {}
    for key, ids in zip(
        distinct, tokenize_words(tokenizer.backend_tokenizer, [word for _, word in distinct]), strict=True
    ):
        usable = 0 < len(ids) <= LONGEST_WORD and tokenizer.unk_token_id not in ids
        pieces[key] = tuple(ids) if usable else None
    return pieces
