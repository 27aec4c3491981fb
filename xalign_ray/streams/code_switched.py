"""The streams that replace words by translations: DICT-MLM's labels and DICT-TLM's copy.

Formulas, and how the papers were read: docs/explanation/methods.md, DICT-MLM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from xalign_ray.config.choices import CodeSwitchedCopy, CodeSwitchedLabels
from xalign_ray.shards.counter_random import INSTANCE, SWITCH, random_bits, uniform
from xalign_ray.shards.rows import Index, Rows, run_index, spans, starts, take_segments
from xalign_ray.streams.collate import Columns, Layout, Marked, used_tokens
from xalign_ray.streams.prediction import Batch, Flags, Words, choose, locate_words, mask_units, predict
from xalign_ray.vocabulary.dictionary import Lexicon, pick_synonyms, within_room


@dataclass(frozen=True)
class Replaced:
    """Rows with synonyms in place of some words: which of their pieces are switched, and how many did not fit [N]."""

    rows: Rows
    switched: Marked
    no_room: Index


def code_switched_labels(stream: CodeSwitchedLabels, batch: Batch) -> Columns:
    """DICT-MLM (Chaudhary et al. 2020, section 2.3), and with `variant: input_swap` what align-mlm made of it.

    `label_swap`: a switched word is shown or masked, and its synonym is the label. `input_swap`: the synonym is shown,
    and the word is the label; a word that was chosen and has no synonym (of the same number of pieces: `no_room`)
    stays visible.
    """
    batch, layout = mask_units(batch), Layout()
    words = locate_words(batch, layout)
    has_entry = batch.rows.entry >= 0
    if stream.mix_unit == "instance":
        in_dictionary_mode = _sample_instances(batch, words, stream.t)
        others = ~has_entry & in_dictionary_mode if stream.refill else None
        chosen = choose(batch, words, layout, has_entry | ~in_dictionary_mode, others)
        flagged = chosen & in_dictionary_mode
    else:
        chosen = choose(batch, words, layout)
        flagged = chosen & (uniform(random_bits(words.keys, SWITCH, words.number)) < stream.t)
    wanted = flagged & has_entry
    if stream.variant == "input_swap":
        swapped = _replace(batch, words, wanted, room=None)
        return predict(
            batch,
            words,
            chosen,
            layout,
            source=swapped.rows,
            visible=flagged,
            switched=swapped.switched,
            no_room=swapped.no_room,
        )
    room = batch.context.max_seq_length - used_tokens(batch.rows, layout)
    asked = _replace(batch, words, wanted, room)
    labelled = replace(batch, rows=asked.rows)
    return predict(labelled, words, chosen, layout, source=batch.rows, switched=asked.switched, no_room=asked.no_room)


def code_switched_copy(stream: CodeSwitchedCopy, batch: Batch) -> Columns:
    """DICT-TLM (section 2.3): `[CLS] text [SEP] copy [SEP]`, words of the copy replaced, masked as any pair is.

    Whole words are replaced, also where pieces are masked. Rows were packed to half of their length (the config sees
    to it), so that the plain copy fits: 2 (n + 2) - 1 tokens for n pieces.
    """
    rows = batch.rows
    twice = np.repeat(np.arange(len(rows.segment_words)), 2)
    batch = replace(batch, rows=take_segments(rows, twice, rows.row_segments * 2))
    layout = Layout(segments=2, reset_positions=stream.positions == "reset", segment_ids=stream.segments)
    words = locate_words(batch, layout)
    room = batch.context.max_seq_length - used_tokens(batch.rows, layout)
    assert (room >= 0).all(), "rows were packed to more than half of their length"
    in_copy = np.repeat(np.arange(len(twice)) % 2 == 1, batch.rows.segment_words)
    wanted = in_copy & (batch.rows.entry >= 0)
    wanted &= uniform(random_bits(words.keys, SWITCH, words.number)) < stream.codeswitch_rate
    copied = _replace(batch, words, wanted, room)

    batch = mask_units(replace(batch, rows=copied.rows))
    words = locate_words(batch, layout)
    chosen = choose(batch, words, layout)
    return predict(batch, words, chosen, layout, switched=copied.switched, no_room=copied.no_room)


def _sample_instances(batch: Batch, words: Words, t: float) -> Flags:
    """[W] whether the word's example is one of translated labels: never in a language without a dictionary, which is
    trained by plain masking (DICT, footnote 5)."""
    example = run_index(words.example_words)
    # An example is known by its row's key and its first word's number, so the draw is the same for all its words.
    first = words.number[starts(words.example_words)][example]
    has_dictionary = ~np.isin(batch.rows.segment_language, [*batch.context.no_dictionary])
    return has_dictionary[example] & (uniform(random_bits(words.keys, INSTANCE, first)) < t)


def _replace(batch: Batch, words: Words, wanted: Flags, room: Index | None) -> Replaced:
    """Draws synonyms for the wanted words; one that does not fit falls back to the word itself.

    Args:
        room: [N] free positions of each row; None where a synonym must have as many pieces as its word.
    """
    rows, lexicon = batch.rows, batch.context.lexicon
    assert lexicon is not None, "the config refuses these streams without dictionaries"
    at = np.flatnonzero(wanted)
    synonym, language = pick_synonyms(lexicon, rows.entry[at], words.keys[at], words.number[at])
    growth = lexicon.synonym_length[synonym] - rows.word_length[at]
    fits = growth == 0 if room is None else within_room(growth, words.row[at], room)
    no_room = np.bincount(words.row[at[~fits]], minlength=len(rows))
    at, synonym = at[fits], synonym[fits]
    replaced = _put(rows, at, synonym, lexicon)
    length = replaced.word_length[at]
    pieces = spans(starts(replaced.word_length)[at], length)
    return Replaced(replaced, Marked(pieces, np.repeat(language[fits], length)), no_room)


def _put(rows: Rows, word: Index, synonym: Index, lexicon: Lexicon) -> Rows:
    """The rows with synonyms in place of some words."""
    if not len(word):
        return rows
    synonym_length = lexicon.synonym_length[synonym]
    length, first = rows.word_length.copy(), starts(rows.word_length)
    length[word], first[word] = synonym_length, len(rows.pieces) + starts(synonym_length)
    translations = lexicon.pieces[spans(lexicon.first_piece[synonym], synonym_length)]
    pieces = np.concatenate((rows.pieces, translations))[spans(first, length)]
    return replace(rows, pieces=pieces, word_length=length)
