"""Turns records into examples and packs them into rows: tokenize, filter, trim, link, pack, shuffle. No Ray here."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xalign_ray.align.links import read_pharaoh
from xalign_ray.clean.filters import Filters, Sifted, keep_documents, keep_lines, keep_pairs
from xalign_ray.clean.kept_out import comparable, kept_out_lines
from xalign_ray.shards.rows import (
    NO_WORD,
    Index,
    Ints,
    Rows,
    pack_rows,
    run_index,
    spans,
    starts,
    sum_runs,
    take_segments,
    with_given_negatives,
)
from xalign_ray.sources.formats import NOTED
from xalign_ray.sources.language_id import how_judged
from xalign_ray.sources.records import Document, Pair
from xalign_ray.sources.summary import (
    HELD_OUT_LINE,
    HELD_OUT_PAIR,
    KEPT,
    NO_WORDS,
    OVER_MAX_PAIRS,
    SAMPLE,
    TEST_LINE,
    TEST_PAIR,
    DroppedRow,
    dropped_row,
)
from xalign_ray.streams.collate import specials
from xalign_ray.tokens.teacher import TeacherVectors
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer, EncodedLines
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD
from xalign_ray.vocabulary.words import split_words

Kept = NDArray[np.bool_]


@dataclass(frozen=True)
class ExampleEncoder:
    """What turns text into examples: the same for every part of a pool."""

    tokenizer: CachedTokenizer
    languages: Sequence[str]
    capacity: int  # tokens of a row that examples may fill, special tokens included
    whole_documents: bool
    held_out_fraction: float
    filters: Filters
    aligned_words: Literal["blanks", "tokenizer"] = "blanks"  # which words the alignments of pairs count
    teacher: TeacherVectors | None = None  # of pairs
    given_negatives: bool = False  # of pairs: whether there are sources with negatives
    test_lines: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))  # sorted hashes
    text_languages: Collection[str] = ()  # whose lines are held out of a pool of text, and so of pairs


@dataclass(frozen=True)
class Examples:
    """Examples, each as one row; held_out [N] those that are kept for the held-out loss; a few dropped rows of each
    reason.

    The segments of a text's example are its lines, until `pack` joins them.
    """

    rows: Rows
    held_out: Kept
    counts: Counter[str]
    dropped: Sequence[DroppedRow]


def longest_word(capacity: int, segments_per_example: int) -> int:
    """Pieces of the longest word: a segment never has so little room that it would lose its only word."""
    return min(LONGEST_WORD, (capacity - specials(segments_per_example)) // segments_per_example)


@dataclass(frozen=True)
class SiftedDocuments:
    """The places of documents that passed as a whole, and of their lines those that passed."""

    places: Index
    lines: list[str]
    line_document: Index
    encoding: EncodedLines
    keep: Kept
    counts: Counter[str]
    dropped: Sequence[DroppedRow]


def sift_documents(encoder: ExampleEncoder, documents: Sequence[Document]) -> SiftedDocuments:
    """Applies the filters to documents of one language, then drops the duplicates that they are marked to have."""
    (language,) = {document.language for document in documents}
    document_lines = np.asarray([len(document.paragraphs) for document in documents], np.int64)
    counts = Counter(documents=len(documents), lines=int(document_lines.sum()))
    _note_languages(counts, encoder.filters, [language], len(documents))
    sifted = keep_documents(encoder.filters, language, documents)
    dropped = [*_count_sifted(counts, sifted, document_lines, lambda n: (documents[n], documents[n].paragraphs))]
    documents = [document for document, keep in zip(documents, sifted.keep, strict=True) if keep]
    lines = [line for document in documents for line in document.paragraphs]
    line_document = np.repeat(np.arange(len(documents)), document_lines[sifted.keep])
    encoding = encoder.tokenizer.tokenize(lines, encoder.languages.index(language))
    duplicate = np.fromiter(chain.from_iterable(document.duplicate for document in documents), bool)
    passing = keep_lines(encoder.filters, language, lines, encoding.line_words, _pieces(encoding), duplicate)
    dropped += _count_sifted(
        counts, passing, np.ones(len(lines), np.int64), lambda n: (documents[line_document[n]], [lines[n]])
    )
    places = np.flatnonzero(sifted.keep)
    return SiftedDocuments(places, lines, line_document, encoding, passing.keep, counts, dropped)


def left_of(encoder: ExampleEncoder, records: Sequence[Document | Pair]) -> list[Document | Pair | None]:
    """Each document or pair after filtering, all of one kind; None where the filters drop all of it."""
    if pairs := [record for record in records if isinstance(record, Pair)]:
        _, _, sifted, _, _ = sift_pairs(encoder, pairs)
        return [pair if keep else None for pair, keep in zip(pairs, sifted.keep, strict=True)]
    sifted = sift_documents(encoder, [record for record in records if isinstance(record, Document)])
    left: list[list[str]] = [[] for _ in records]
    for n in np.flatnonzero(sifted.keep & (sifted.encoding.line_words > 0)).tolist():
        left[sifted.places[sifted.line_document[n]]].append(sifted.lines[n])
    return [
        replace(document, paragraphs=tuple(lines)) if lines else None
        for document, lines in zip(records, left, strict=True)
    ]


def encode_documents(encoder: ExampleEncoder, documents: Sequence[Document]) -> Examples:
    """Sentences, or as many lines of a document as fit together; longer lines than a row are split at a word.

    Lines are held out by their hash, and make examples of their own. Lines of retrieval tests are dropped.

    Args:
        documents: of one language.
    """
    sifted = sift_documents(encoder, documents)
    lines, line_document, encoding = sifted.lines, sifted.line_document, sifted.encoding
    counts = sifted.counts
    held_out_lines, test_lines = kept_out_lines(lines, encoder.held_out_fraction, encoder.test_lines)
    tests = sifted.keep & test_lines
    _count_dropped(counts, TEST_LINE, tests)
    passing = sifted.keep & ~tests
    line_held_out = passing & held_out_lines
    copies = _find_copies(lines, line_held_out)
    _count_dropped(counts, HELD_OUT_LINE, copies)
    remaining = np.flatnonzero(passing & ~copies)
    if line_held_out.any():  # a document's held-out lines go behind its others: no example has both
        remaining = remaining[np.lexsort((line_held_out[remaining], line_document[remaining]))]
    if len(remaining) < len(lines) or line_held_out.any():
        encoding, line_document = _keep(encoding, remaining), line_document[remaining]
        line_held_out = line_held_out[remaining]
    room = encoder.capacity - specials(1)
    counts[KEPT] = int((encoding.line_words > 0).sum())
    _count_dropped(counts, NO_WORDS, encoding.line_words == 0)
    words, of_line = _fit(encoding, room)
    held_out = line_held_out[of_line]
    first = np.arange(len(words))
    if encoder.whole_documents:
        together = 2 * line_document[of_line] + held_out
        first = _fill(sum_runs(encoding.word_length, words), together, room)
    rows = Rows(
        pieces=encoding.pieces,
        word_length=encoding.word_length,
        entry=encoding.entry,
        segment_words=words.astype(np.int32),
        segment_language=np.full(len(words), encoder.languages.index(documents[0].language), np.int32),
        row_segments=np.diff(first, append=len(words)).astype(np.int32),
        **vars(no_links(len(words))),
    )
    counts.update(_count(rows, encoder.tokenizer))
    return Examples(rows, held_out[first], counts, sifted.dropped)


def sift_pairs(
    encoder: ExampleEncoder, pairs: Sequence[Pair]
) -> tuple[Sequence[EncodedLines], Index, Sifted, Counter[str], Sequence[DroppedRow]]:
    """Applies the filters to pairs of one pool, in the same order, then drops the duplicates among them.

    Returns:
        Both sides in pieces, their words [N, 2], the sifted pairs, counts and a sample of dropped ones.
    """
    (languages,) = {pair.languages for pair in pairs}
    texts = [[pair.texts[segment] for pair in pairs] for segment in (0, 1)]
    by_blanks = encoder.aligned_words == "blanks" and any(pair.alignment for pair in pairs)
    encodings = [
        encoder.tokenizer.tokenize(lines, encoder.languages.index(language), place=by_blanks)
        for lines, language in zip(texts, languages, strict=True)
    ]
    counts = Counter(pairs=len(pairs))
    segment_words = np.stack([encoding.line_words for encoding in encodings], axis=1).astype(np.int64)
    empty = segment_words.min(axis=1) == 0
    _count_dropped(counts, NO_WORDS, empty)
    _note_languages(counts, encoder.filters, languages, len(pairs))
    parts = np.stack([sum_runs(encoding.parts, encoding.line_words) for encoding in encodings], axis=1)
    linked = _linked(encoder, pairs, parts, counts) if encoder.filters.min_aligned_fraction else None
    pieces = np.stack([_pieces(encoding) for encoding in encodings], axis=1)
    duplicate = np.asarray([any(pair.duplicate) for pair in pairs], bool)
    near = np.asarray([pair.near_duplicate for pair in pairs], bool)
    sifted = keep_pairs(encoder.filters, languages, texts, (segment_words, pieces), duplicate, near, linked, ~empty)
    dropped = [*_count_sifted(counts, sifted, np.ones(len(pairs), np.int64), lambda n: (pairs[n], pairs[n].texts))]
    return encodings, segment_words, sifted, counts, dropped


def encode_pairs(encoder: ExampleEncoder, pairs: Sequence[Pair], max_pairs: int | None = None) -> Examples:
    """Both segments of translations; a pair too long for a row loses words at the end of its longer segment (counted).

    A pair with a side that is held out as a line of text, or is a line of a retrieval test, is dropped. Nothing is held
    out of a language that has no pool of text.

    Args:
        pairs: of one pair of languages, in the same order.
        max_pairs: how many are kept, the first that pass the filters; all if None.
    """
    encodings, segment_words, sifted, counts, dropped = sift_pairs(encoder, pairs)
    languages = pairs[0].languages
    language_ids = [encoder.languages.index(language) for language in languages]
    aligned = any(pair.alignment for pair in pairs)
    by_blanks = aligned and encoder.aligned_words == "blanks"
    texts = [[pair.texts[segment] for pair in pairs] for segment in (0, 1)]
    shares = [encoder.held_out_fraction * (language in encoder.text_languages) for language in languages]
    sides = [kept_out_lines(lines, share, encoder.test_lines) for lines, share in zip(texts, shares, strict=True)]
    held_out, tests = np.logical_or(sides[0], sides[1])
    tests &= sifted.keep
    _count_dropped(counts, TEST_PAIR, tests)
    _count_dropped(counts, HELD_OUT_PAIR, sifted.keep & held_out & ~tests)
    keep = sifted.keep & ~held_out & ~tests
    if max_pairs is not None:
        over = keep & (np.cumsum(keep) > max_pairs)
        keep = keep & ~over
        _count_dropped(counts, OVER_MAX_PAIRS, over)
    counts[KEPT] = int(keep.sum())
    counts["pairs_truncated"] = _trim(encodings, segment_words, np.flatnonzero(keep), encoder.capacity - specials(2))
    rows = _interleave(encodings, segment_words, np.flatnonzero(keep), language_ids)
    chosen = np.flatnonzero(keep)
    if encoder.given_negatives:
        texts_of = [pairs[n].negatives for n in chosen.tolist()]
        negatives = encoder.tokenizer.tokenize([*chain.from_iterable(texts_of)], language_ids[1])
        lengths = _pieces(negatives)
        of_pair = np.repeat(np.arange(len(chosen)), [len(some) for some in texts_of])[lengths > 0]
        some = np.bincount(of_pair, minlength=len(chosen))
        counts["pairs_without_negatives"] = int((some == 0).sum())
        rows = with_given_negatives(rows, negatives.pieces, lengths[lengths > 0], some)
    elif encoder.teacher and encoder.teacher.language is None:
        first, second = ([side[n] for n in chosen] for side in texts)
        rows = encoder.teacher.hard_negatives(rows, (first, second))
    elif encoder.teacher and encoder.teacher.language:
        side = languages.index(encoder.teacher.language)
        rows = replace(rows, **encoder.teacher.columns([texts[side][n] for n in chosen], side))
    if aligned:
        alignments = [pair.alignment or "" for pair, is_kept in zip(pairs, keep, strict=True) if is_kept]
        numbered = encodings if by_blanks else [number_words(encoding) for encoding in encodings]
        links = find_links(alignments, np.flatnonzero(keep), numbered, segment_words)
        counts["links"] = len(links.link_from)
        rows = replace(rows, **vars(links))
    counts.update(_count(rows, encoder.tokenizer))
    return Examples(rows, np.zeros(len(rows), bool), counts, dropped)


def pack(examples: Rows, capacity: int, seed_text: str, segments: int = 1) -> Rows:
    """Packs examples, each in one row, into full rows and shuffles these.

    The same way for the same examples and `seed_text`.

    Args:
        segments: of an example: 1 of a text, whose lines are joined, and parted only where that fills rows; 2 of a
            pair.
    """
    example_lines = examples.row_segments // segments
    lines = sum_runs(examples.word_length, examples.segment_words).reshape(-1, segments).sum(axis=1).tolist()
    bounds = zip(starts(example_lines).tolist(), example_lines.tolist(), strict=True)
    packed = pack_rows([lines[begin : begin + count] for begin, count in bounds], specials(segments), capacity)
    digest = int.from_bytes(hashlib.blake2b(seed_text.encode(), digest_size=8).digest(), "big")
    packed = [packed[i] for i in np.random.default_rng(digest).permutation(len(packed))]
    runs = np.fromiter(chain.from_iterable(chain.from_iterable(packed)), np.int64).reshape(-1, 3)
    first_segment = starts(examples.row_segments)[runs[:, 0]] + runs[:, 1] * segments
    run_lines = runs[:, 2] - runs[:, 1]
    row_segments = np.asarray([len(row) * segments for row in packed], np.int32)
    runs_of_lines = take_segments(examples, spans(first_segment, run_lines * segments), row_segments)
    return _join(runs_of_lines, run_lines) if segments == 1 else runs_of_lines


def _join(rows: Rows, lines: Index) -> Rows:
    """Joins runs of segments without links, `lines` segments a run, into one segment each."""
    return replace(
        rows,
        segment_words=sum_runs(rows.segment_words, lines).astype(np.int32),
        segment_language=rows.segment_language[starts(lines)],
        segment_vector=rows.segment_vector[starts(lines)],
        **vars(no_links(len(lines))),
    )


def _pieces(encoding: EncodedLines) -> Index:
    """Of each line."""
    return sum_runs(encoding.word_length, encoding.line_words)


def _keep(encoding: EncodedLines, lines: Index) -> EncodedLines:
    """These lines, in the order given."""
    words = spans(starts(encoding.line_words)[lines], encoding.line_words[lines])
    pieces = spans(starts(encoding.word_length)[words], encoding.word_length[words])
    return EncodedLines(
        encoding.pieces[pieces],
        encoding.word_length[words],
        encoding.entry[words],
        encoding.parts[words],
        encoding.blank_word[words],
        encoding.last_blank_word[words],
        encoding.line_words[lines],
    )


def _fit(encoding: EncodedLines, room: int) -> tuple[Index, Index]:
    """Lines in stretches of at most `room` pieces: the words of each stretch, and the line it is from."""
    line_pieces = _pieces(encoding)
    count = (encoding.line_words > 0).astype(np.int64)
    long = np.flatnonzero(line_pieces > room)
    begins = starts(encoding.line_words)[long]
    parts = [
        _stretches(encoding.word_length[begin : begin + words].tolist(), room)
        for begin, words in zip(begins.tolist(), encoding.line_words[long].tolist(), strict=True)
    ]
    count[long] = [len(part) for part in parts]
    of_line = np.repeat(np.arange(len(count)), count)
    words = encoding.line_words[of_line].astype(np.int64)
    words[spans(starts(count)[long], count[long])] = [number for part in parts for number in part]
    return words, of_line


def _stretches(lengths: Sequence[int], room: int) -> list[int]:
    """How many words of a line go together, from its beginning on, in at most `room` pieces; no word has more."""
    ends = list(accumulate(lengths))
    counts, begin, used = [], 0, 0
    while begin < len(ends):
        end = bisect_right(ends, used + room, begin)
        counts.append(end - begin)
        begin, used = end, ends[end - 1]
    return counts


def _fill(lengths: Index, together: Index, room: int) -> Index:
    """The stretches that begin an example, when as many as fit of those with the same number go together."""
    begins, used, current = [], 0, -1
    for number, (length, group) in enumerate(zip(lengths.tolist(), together.tolist(), strict=True)):
        if group != current or used + length > room:
            begins.append(number)
            current, used = group, 0
        used += length
    return np.asarray(begins, np.int64)


def _find_copies(lines: Sequence[str], held_out: Kept) -> Kept:
    """Whether each line is a held-out one that stood before: a heading of many pages is scored once a window."""
    copies, seen = np.zeros(len(lines), bool), set()
    for number in np.flatnonzero(held_out).tolist():
        copies[number] = (line := comparable(lines[number])) in seen
        seen.add(line)
    return copies


def _trim(encodings: Sequence[EncodedLines], segment_words: Index, pairs: Index, room: int) -> int:
    """Takes words off pairs that have more than `room` pieces, in `segment_words` [N, 2]; returns how many pairs."""
    segment_pieces = np.stack([_pieces(encoding) for encoding in encodings], axis=1)
    begins = [starts(encoding.line_words) for encoding in encodings]
    too_long = pairs[segment_pieces[pairs].sum(axis=1) > room]
    for pair in too_long.tolist():
        pieces, words = segment_pieces[pair].tolist(), segment_words[pair].tolist()
        while sum(pieces) > room:
            longer = 0 if pieces[0] >= pieces[1] else 1
            words[longer] -= 1
            pieces[longer] -= int(encodings[longer].word_length[begins[longer][pair] + words[longer]])
        segment_words[pair] = words
    return len(too_long)


def _interleave(
    encodings: Sequence[EncodedLines], segment_words: Index, pairs: Index, language_ids: Sequence[int]
) -> Rows:
    """A row for each of these pairs: its first segment, then its second, each as many words as are left of it."""
    first_word = np.stack([starts(encoding.line_words) for encoding in encodings], axis=1)[pairs]
    first_word[:, 1] += len(encodings[0].word_length)
    kept_words = segment_words[pairs].ravel()
    words = spans(first_word.ravel(), kept_words)
    word_length = np.concatenate([encoding.word_length for encoding in encodings])
    pieces = spans(starts(word_length)[words], word_length[words])
    return Rows(
        pieces=np.concatenate([encoding.pieces for encoding in encodings])[pieces],
        word_length=word_length[words],
        entry=np.concatenate([encoding.entry for encoding in encodings])[words],
        segment_words=kept_words.astype(np.int32),
        segment_language=np.tile(np.asarray(language_ids, np.int32), len(pairs)),
        row_segments=np.full(len(pairs), 2, np.int32),
        **vars(no_links(2 * len(pairs))),
    )


def _count_sifted(
    counts: Counter[str], sifted: Sifted, rows: Index, row: Callable[[int], tuple[Document | Pair, Iterable[str]]]
) -> Iterator[DroppedRow]:
    """Counts the lines or pairs that were sifted out, and yields a few of each reason."""
    for reason, numbers in sifted.dropped.items():
        counts[f"dropped: {reason}"] += int(rows[numbers].sum())
        for number in numbers[:SAMPLE].tolist():
            record, texts = row(number)
            yield dropped_row(record.source, record.line, reason, texts)


def _note_languages(counts: Counter[str], filters: Filters, languages: Sequence[str], records: int) -> None:
    if filters.language_threshold:
        counts.update(
            {NOTED + note: records for language in languages if (note := how_judged(language, filters.language_model))}
        )


def _linked(encoder: ExampleEncoder, pairs: Sequence[Pair], words: Index, counts: Counter[str]) -> NDArray[np.float64]:
    """The share of each pair's words that is linked, nan where nothing has aligned it."""
    if encoder.aligned_words == "blanks":
        words = np.asarray([[len(split_words(text)) for text in pair.texts] for pair in pairs])
    linked = linked_share([pair.alignment for pair in pairs], words)
    if missing := int(np.isnan(linked).sum()):
        counts[NOTED + "pairs without a word alignment, so that min_aligned_fraction was not asked"] = missing
    return linked


def _count_dropped(counts: Counter[str], reason: str, dropped: Kept) -> None:
    if count := int(dropped.sum()):
        counts[f"dropped: {reason}"] = count


def _count(rows: Rows, tokenizer: CachedTokenizer) -> dict[str, int]:
    in_dictionary = rows.entry >= 0
    return {
        "words": int((rows.entry != NO_WORD).sum()),
        "words_in_dictionary": int(in_dictionary.sum()),
        "phrases_in_dictionary": tokenizer.count_phrases(rows.entry[in_dictionary]),
        "tokens": len(rows.pieces),
        "tokens_in_dictionary": int(rows.word_length[in_dictionary].sum()),
    }


@dataclass(frozen=True)
class Links:
    """segment_links [S] links that each segment owns; link_from [K] its word, link_to [K] the word of its partner."""

    segment_links: Ints
    link_from: Ints
    link_to: Ints


def no_links(segments: int) -> Links:
    """Sides without a link."""
    return Links(np.zeros(segments, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32))


def number_words(encoding: EncodedLines) -> EncodedLines:
    """The lines with each word as a word by white space, for alignments that count the words of text/words."""
    line_parts = sum_runs(encoding.parts, encoding.line_words)
    within = starts(encoding.parts) - np.repeat(starts(line_parts), encoding.line_words)
    first, last = within.astype(np.int32), (within + encoding.parts - 1).astype(np.int32)
    return replace(encoding, blank_word=first, last_blank_word=last)


def find_links(
    alignments: Sequence[str], pairs: Index, encodings: Sequence[EncodedLines], segment_words: Index
) -> Links:
    """The links between words of pairs, each owned by the pair's first segment.

    A link between two words by white space links every word that begins in one with every word that begins in the
    other (`expand: all`). A dictionary entry of several words has the links of each of them. Words that were trimmed
    away lose theirs. Each link once, in order.

    Args:
        alignments: of each of `pairs`, `i-j i-j`, or empty.
        pairs: lines of the two encodings, ascending.
        encodings: the two segments, with `blank_word`.
        segment_words: [all lines, 2] how many words of each line are left.
    """
    source_segment = np.repeat(np.arange(len(pairs)), [alignment.count("-") for alignment in alignments])
    ends = np.asarray(" ".join(alignments).replace("-", " ").split(), np.int64).reshape(-1, 2)
    (first, left), (partner, right) = (
        _words_in(encoding, pairs[source_segment], ends[:, segment], segment_words[:, segment])
        for segment, encoding in enumerate(encodings)
    )
    many = left * right
    link = run_index(many)
    within = np.arange(len(link)) - starts(many)[link]
    links = np.stack(
        [source_segment[link], first[link] + within // right[link], partner[link] + within % right[link]], axis=1
    )
    links = np.unique(links, axis=0)
    segment_links = np.zeros((len(pairs), 2), np.int32)
    segment_links[:, 0] = np.bincount(links[:, 0], minlength=len(pairs))
    return Links(segment_links.ravel(), links[:, 1].astype(np.int32), links[:, 2].astype(np.int32))


def _words_in(encoding: EncodedLines, lines: Index, blank_words: Index, left: Index) -> tuple[Index, Index]:
    """The words that begin in a word by white space, or phrases with such a word: the first, and their number."""
    begins = starts(encoding.line_words)
    span = int(max(encoding.last_blank_word.max(initial=0), blank_words.max(initial=0))) + 1
    line = run_index(encoding.line_words) * span  # with the numbers ascending: words stand in the order of the text
    asked = lines * span + blank_words
    first = np.searchsorted(line + encoding.last_blank_word, asked, "left") - begins[lines]
    last = np.searchsorted(line + encoding.blank_word, asked, "right") - begins[lines]
    return first, np.maximum(np.minimum(last, left[lines]) - first, 0)


def linked_share(alignments: Sequence[str | None], words: Index) -> NDArray[np.float64]:
    """Of each pair [N] the share of the words of both sides that its alignment links; nan of one that has none.

    Args:
        alignments: as Pharaoh.
        words: [N, 2], of both sides, as the alignments count them.
    """
    linked = [np.nan if alignment is None else _linked_words(alignment) for alignment in alignments]
    return np.asarray(linked, np.float64) / np.maximum(words.sum(axis=1), 1)


def _linked_words(alignment: str) -> int:
    links = read_pharaoh(alignment)
    return len({i for i, _ in links}) + len({j for _, j in links})
