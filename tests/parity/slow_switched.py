"""The other code-switching streams, slow and obvious: translations as inputs, refilled instances, the switched copy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.parity.slow_streams import IGNORED, Row, Slow, Word, bits, hash_row, pick, uniform
from xalign_ray.shards import counter_random


@dataclass
class Place:
    """A word as it is laid out: the pieces asked for, what stands there if nothing is hidden, and their language."""

    word: Word
    shown: list[int]
    language: int
    switched: bool = False
    visible: bool = False


class SlowSwitched(Slow):
    """The streams of Slow, and three more."""

    def input_swapped(self, row: Row, position: int, *, t: float, instance: bool) -> dict:
        """align-mlm's variant: what is switched shows its synonym and asks for the word."""
        key, row = self._begin(row, position)
        flagged, eligible = self._flag(row, key, t, instance)
        chosen = self._choose(row, key, eligible)
        no_room = 0
        places, number = [], 0
        for example in row:
            places.append([])
            for segment in example:
                places[-1].append([])
                for word in segment.words:
                    place = Place(word, word.pieces, segment.language)
                    if number in chosen and number in flagged:
                        place.visible = True
                        if word.entry != -1:
                            language, synonym = pick(self.dictionary[word.entry], key, number)
                            if len(synonym) == len(word.pieces):
                                place.shown, place.language, place.switched = synonym, language, True
                            else:
                                no_room += 1
                    places[-1][-1].append(place)
                    number += 1
        return self._lay_out(places, key, position, chosen, no_room, [[s.language for s in e] for e in row])

    def refilled(self, row: Row, position: int, *, t: float) -> dict:
        """Instances whose words with an entry run out go on with the others."""
        key, row = self._begin(row, position)
        flagged, eligible = self._flag(row, key, t, instance=True)
        chosen = self._choose(row, key, eligible)
        number = 0
        for example in row:
            words = [word for segment in example for word in segment.words]
            mine = range(number, number + len(words))
            tokens = 1 + sum(1 + sum(len(word.pieces) for word in segment.words) for segment in example)
            left = max(1, round(tokens * self.rate))
            left -= sum(len(words[n - number].pieces) for n in mine if n in chosen)
            rest = [n for n in mine if n not in eligible]
            for n in sorted(rest, key=lambda n: (bits(key, counter_random.CHOOSE_WORD, n) >> 34, n)):
                if len(words[n - number].pieces) <= left:
                    chosen.add(n)
                    left -= len(words[n - number].pieces)
            number += len(words)
        entry = [word.entry for example in row for segment in example for word in segment.words]
        wanted = {n for n in chosen & flagged if entry[n] != -1}
        return self._show(row, key, position, chosen, self._switch(row, key, wanted))

    def switched_copy(self, row: Row, position: int, *, rate: float, reset: bool, segments: bool) -> dict:
        """The sentence and its copy as a pair; words of the copy replaced as long as the row has room."""
        key = int(counter_random.row_keys(self.seed, np.array([position]))[0])
        room = self.max_seq_length
        for (segment,) in row:
            room -= 3 + 2 * sum(len(word.pieces) for word in segment.words)
        assert room >= 0
        places: list[list[list[Place]]] = []
        number = no_room = 0
        for (segment,) in row:
            original = [Place(word, word.pieces, segment.language) for word in segment.words]
            copy = []
            number += len(original)
            for word in segment.words:
                place = Place(word, word.pieces, segment.language)
                if word.entry != -1 and uniform(key, counter_random.SWITCH, number) < rate:
                    language, synonym = pick(self.dictionary[word.entry], key, number)
                    growth = max(0, len(synonym) - len(word.pieces))
                    room -= growth
                    if growth and room < 0:
                        no_room += 1
                    else:
                        place = Place(Word(synonym, -1), synonym, language, switched=True)
                copy.append(place)
                number += 1
            places.append([original, copy])
        if not self.whole_word:
            places = [[_split(segment) for segment in example] for example in places]
        chosen = self._choose([[_Side(segment) for segment in example] for example in places], key, None)  # type: ignore[misc]
        languages = [[segment.language] * 2 for (segment,) in row]
        return self._lay_out(places, key, position, chosen, no_room, languages, reset=reset, segments=segments)

    def _flag(self, row: Row, key: int, t: float, instance: bool) -> tuple[set[int], set[int]]:
        """The words that are to be switched if chosen, and those that may be chosen."""
        flagged, eligible, number = set(), set(), 0
        for example in row:
            mode = uniform(key, counter_random.INSTANCE, number) < t and example[0].language not in self.no_dictionary
            for word in (word for segment in example for word in segment.words):
                if mode if instance else uniform(key, counter_random.SWITCH, number) < t:
                    flagged.add(number)
                if not instance or not mode or word.entry != -1:
                    eligible.add(number)
                number += 1
        return flagged, eligible

    def _lay_out(self, places, key, position, chosen, no_room, languages, *, reset=False, segments=False) -> dict:
        names = ("input_ids", "labels", "position_ids", "segment_ids", "language_ids", "example_ids")
        columns: dict[str, list[int]] = {name: [] for name in names}

        def put(*values: int) -> None:
            for name, value in zip(names, values, strict=True):
                columns[name].append(value)

        number = piece_number = cross_lingual = 0
        for e, example in enumerate(places):
            put(self.vocabulary.cls, IGNORED, 0, 0, languages[e][0], e + 1)
            at = 1
            for s, segment in enumerate(example):
                at = 1 if s and reset else at
                segment_id = s if segments else 0
                for place in segment:
                    for piece, label in zip(place.shown, place.word.pieces, strict=True):
                        if number in chosen:
                            shown = piece if place.visible else self._corrupt(key, piece_number, piece)
                            put(shown, label, at, segment_id, place.language, e + 1)
                            cross_lingual += place.switched
                        else:
                            put(piece, IGNORED, at, segment_id, place.language, e + 1)
                        at += 1
                        piece_number += 1
                    number += 1
                put(self.vocabulary.sep, IGNORED, at, segment_id, languages[e][s], e + 1)
                at += 1
        while len(columns["input_ids"]) < self.max_seq_length:
            put(self.vocabulary.pad, IGNORED, 0, 0, 0, 0)
        row_hash = hash_row(position, columns["input_ids"], columns["labels"])
        counts = {"cross_lingual": cross_lingual, "no_room": no_room}
        return columns | counts | {"position": position, "row_hash": row_hash}


class _Side:
    """What `_choose` reads of a side."""

    def __init__(self, places: list[Place]) -> None:
        self.words = [place.word for place in places]


def _split(segment: list[Place]) -> list[Place]:
    return [
        Place(Word([piece], -1), [piece], place.language, place.switched)
        for place in segment
        for piece in place.word.pieces
    ]
