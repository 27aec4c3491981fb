"""Streams once more, slow and obvious: one row at a time, in plain Python; shares only text/counter_random."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xalign_ray.shards import counter_random
from xalign_ray.shards.rows import Rows
from xalign_ray.streams.collate import Vocabulary
from xalign_ray.vocabulary.dictionary import Lexicon

IGNORED = -100


@dataclass
class Word:
    """A word as it stands in a side."""

    pieces: list[int]
    entry: int


@dataclass
class Segment:
    """A sentence in one language; links (i, j) say that its word i is aligned with word j of the pair's other side."""

    language: int
    words: list[Word]
    links: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Group:
    """The synonyms of an entry in one language."""

    language: int
    synonyms: list[list[int]]


Example = list[Segment]
Row = list[Example]
Dictionary = list[list[Group]]


def as_rows(rows: list[Row]) -> Rows:
    """Rows of plain Python as the package's flat arrays."""
    segments = [segment for row in rows for example in row for segment in example]
    words = [word for segment in segments for word in segment.words]
    arrays = (
        [piece for word in words for piece in word.pieces],
        [len(word.pieces) for word in words],
        [word.entry for word in words],
        [len(segment.words) for segment in segments],
        [segment.language for segment in segments],
        [sum(len(example) for example in row) for row in rows],
        [len(segment.links) for segment in segments],
        [i for segment in segments for i, _ in segment.links],
        [j for segment in segments for _, j in segment.links],
    )
    return Rows(*(np.asarray(array, np.int32) for array in arrays))


def as_lexicon(dictionary: Dictionary) -> Lexicon:
    """A dictionary of plain Python as the package's flat arrays."""
    groups = [group for entry in dictionary for group in entry]
    synonyms = [synonym for group in groups for synonym in group.synonyms]
    arrays = (
        [len(entry) for entry in dictionary],
        [group.language for group in groups],
        [len(group.synonyms) for group in groups],
        [len(synonym) for synonym in synonyms],
        [piece for synonym in synonyms for piece in synonym],
    )
    return Lexicon(*(np.asarray(array, np.int32) for array in arrays))


def bits(key: int, purpose: int, index: int) -> int:
    """The 64 random bits of one draw."""
    return int(counter_random.random_bits(np.array([key], np.uint64), purpose, np.array([index]))[0])


def uniform(key: int, purpose: int, index: int) -> float:
    """A number in [0, 1)."""
    return (bits(key, purpose, index) >> 11) / 2**53


def integers(key: int, purpose: int, index: int, limit: int) -> int:
    """An integer in [0, limit)."""
    return int(uniform(key, purpose, index) * limit)


def pick(groups: list[Group], key: int, number: int) -> tuple[int, list[int]]:
    """Language first, then one of its synonyms: the language and the pieces."""
    group = groups[integers(key, counter_random.PICK_LANGUAGE, number, len(groups))]
    return group.language, group.synonyms[integers(key, counter_random.PICK_SYNONYM, number, len(group.synonyms))]


@dataclass
class Slow:
    """One run's settings, and the three streams of a row."""

    seed: int
    vocabulary: Vocabulary
    dictionary: Dictionary
    max_seq_length: int
    rate: float = 0.15
    whole_word: bool = True
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    no_dictionary: frozenset[int] = frozenset()

    def masked_text(self, row: Row, position: int) -> dict:
        """Monolingual rows."""
        key, row = self._begin(row, position)
        chosen = self._choose(row, key, None)
        return self._show(row, key, position, chosen, {})

    def masked_pairs(
        self, row: Row, position: int, *, reset: bool, segments: bool, random_order: bool, double: bool = False
    ) -> dict:
        """Translations as one example."""
        key, row = self._begin(row, position)
        if random_order:
            flips = [uniform(key, counter_random.SWAP_SEGMENTS, number) < 0.5 for number in range(len(row))]
            row = [example[::-1] if flip else example for example, flip in zip(row, flips, strict=True)]
        chosen = self._choose(row, key, None, double)
        return self._show(row, key, position, chosen, {}, reset=reset, segments=segments, double=double)

    def code_switched_labels(self, row: Row, position: int, *, t: float, instance: bool) -> dict:
        """DICT-MLM by word or by instance."""
        key, row = self._begin(row, position)
        wanted, eligible, number = set(), set(), 0
        for example in row:
            mode = uniform(key, counter_random.INSTANCE, number) < t and example[0].language not in self.no_dictionary
            for segment in example:
                for word in segment.words:
                    if not instance:
                        eligible.add(number)
                        if word.entry != -1 and uniform(key, counter_random.SWITCH, number) < t:
                            wanted.add(number)
                    elif mode and word.entry != -1:
                        eligible.add(number)
                        wanted.add(number)
                    elif not mode:
                        eligible.add(number)
                    number += 1
        chosen = self._choose(row, key, eligible)
        return self._show(row, key, position, chosen, self._switch(row, key, chosen & wanted))

    def _begin(self, row: Row, position: int) -> tuple[int, Row]:
        key = int(counter_random.row_keys(self.seed, np.array([position]))[0])
        return key, row if self.whole_word else [[self._split(segment) for segment in example] for example in row]

    @staticmethod
    def _split(segment: Segment) -> Segment:
        words = []
        for word in segment.words:
            words += [word] if len(word.pieces) == 1 else [Word([piece], -1) for piece in word.pieces]
        return Segment(segment.language, words)

    def _choose(self, row: Row, key: int, eligible: set[int] | None, double: bool = False) -> set[int]:
        """BERT's create_masked_lm_predictions for each example."""
        chosen, number = set(), 0
        for example in row:
            candidates, tokens = [], ["[CLS]", "[SEP]"] if double else ["[CLS]"]
            for segment in example:
                for word in segment.words:
                    tokens += word.pieces
                    if eligible is None or number in eligible:
                        candidates.append(
                            (bits(key, counter_random.CHOOSE_WORD, number) >> 34, number, len(word.pieces))
                        )
                    number += 1
                tokens.append("[SEP]")
            budget, covered = max(1, round(len(tokens) * self.rate)), 0
            for _, word_number, length in sorted(candidates):
                if covered >= budget:
                    break
                if covered + length > budget:
                    continue
                chosen.add(word_number)
                covered += length
        return chosen

    def _switch(self, row: Row, key: int, wanted: set[int]) -> dict:
        room = self.max_seq_length
        for example in row:
            room -= 1 + sum(1 + sum(len(word.pieces) for word in segment.words) for segment in example)
        switched, grown, no_room, number = {}, 0, 0, 0
        for example in row:
            for segment in example:
                for word in segment.words:
                    if number in wanted:
                        language, synonym = pick(self.dictionary[word.entry], key, number)
                        growth = len(synonym) - len(word.pieces)
                        grown += max(0, growth)
                        if growth <= 0 or grown <= room:
                            switched[number] = (language, synonym)
                        else:
                            no_room += 1
                    number += 1
        return {"no_room": no_room, **switched}

    def _show(
        self,
        row: Row,
        key: int,
        position: int,
        chosen: set,
        switched: dict,
        *,
        reset=False,
        segments=False,
        double=False,
    ):
        columns = {name: [] for name in ("input_ids", "labels", "position_ids", "segment_ids", "language_ids")}
        columns["example_ids"] = []

        def put(*values: int) -> None:
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)

        number = piece_number = cross_lingual = 0
        for example_number, example in enumerate(row, start=1):
            put(self.vocabulary.cls, IGNORED, 0, 0, example[0].language, example_number)
            place = 1
            for segment_number, segment in enumerate(example):
                segment_id = segment_number if segments else 0
                if segment_number and reset:
                    place = 0 if double else 1
                if segment_number and double:
                    put(self.vocabulary.sep, IGNORED, place, segment_id, segment.language, example_number)
                    place += 1
                for word in segment.words:
                    language, label = switched.get(number, (segment.language, word.pieces))
                    cross_lingual += len(label) if number in switched else 0
                    for at, piece in enumerate(label):
                        shown, answer, language_id = piece, IGNORED, segment.language
                        if number in chosen:
                            answer, language_id = piece, language
                            source = word.pieces[at] if len(label) == len(word.pieces) else self.vocabulary.mask
                            shown = self._corrupt(key, piece_number, source)
                        put(shown, answer, place, segment_id, language_id, example_number)
                        place += 1
                        piece_number += 1
                    number += 1
                put(self.vocabulary.sep, IGNORED, place, segment_id, segment.language, example_number)
                place += 1
        while len(columns["input_ids"]) < self.max_seq_length:
            put(self.vocabulary.pad, IGNORED, 0, 0, 0, 0)
        row_hash = hash_row(position, columns["input_ids"], columns["labels"])
        counts = {"cross_lingual": cross_lingual, "no_room": switched.get("no_room", 0)}
        return columns | counts | {"position": position, "row_hash": row_hash}

    def _corrupt(self, key: int, piece_number: int, source: int) -> int:
        u = uniform(key, counter_random.SHOW, piece_number)
        if u < self.mask_replace_prob:
            return self.vocabulary.mask
        if u < self.mask_replace_prob + self.random_replace_prob:
            regular = self.vocabulary.regular
            return int(regular[integers(key, counter_random.RANDOM_PIECE, piece_number, len(regular))])
        return source


def splitmix(value: int) -> int:
    """One step of splitmix64 on Python integers."""
    z = (value + 0x9E3779B97F4A7C15) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def hash_row(position: int, ids: list[int], labels: list[int]) -> int:
    """The hash of a row."""
    total = 0
    for place, (piece, label) in enumerate(zip(ids, labels, strict=True)):
        total += splitmix((piece << 32 | label % 2**32) ^ splitmix(place))
    return splitmix((splitmix(position) + total) % 2**64)
