"""The streams of translations for exchange and contrast, slow and obvious: matrices as lists, sentences one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.parity.slow_streams import Example, Row, Segment, Slow, hash_row, splitmix, uniform
from xalign_ray.shards import counter_random

COLUMNS = ("input_ids", "position_ids", "segment_ids", "language_ids", "example_ids")


class SlowPairs(Slow):
    """The streams of Slow, and two more."""

    def aligned_pairs(self, row: Row, position: int, *, expand: str, **options: bool) -> dict:
        """Masked pairs and the matrix of aligned positions, its bits packed by hand."""
        columns = self.masked_pairs(row, position, **options)
        length = self.max_seq_length
        matrix = [[0] * length for _ in range(length)]
        begin = 0
        for example in self._swap(row, position) if options["random_order"] else row:
            where: list[list[list[int]]] = []  # [side][word] -> the columns of its pieces
            column = begin + 1
            for segment in example:
                where.append([])
                for word in segment.words:
                    where[-1].append(list(range(column, column + len(word.pieces))))
                    column += len(word.pieces)
                column += 1
            begin = column
            for source_segment in (0, 1):
                for i, j in example[source_segment].links:
                    for a, b in _expand(where[source_segment][i], where[1 - source_segment][j], expand):
                        matrix[a][b] = matrix[b][a] = 1
        packed = []
        for line in matrix:
            line = line + [0] * (-length % 8)
            packed.append([sum(line[8 * byte + bit] << bit for bit in range(8)) for byte in range(len(line) // 8)])
        return columns | {"aligned": packed}

    def contrasted_pairs(
        self,
        row: Row,
        position: int,
        *,
        text: str,
        prompt: Sequence[int] = (),
        before: Callable[[tuple[int, ...]], list[int]] = list,
        **options: bool,
    ) -> dict:
        """A masked pair or its two sentences masked, and both sentences on their own."""
        swapped = self._swap(row, position) if options["random_order"] else row
        if text == "apart":
            columns = self.masked_text([[segment] for example in swapped for segment in example], position)
        else:
            columns = self.masked_pairs(row, position, **options)
        if text == "none":
            for column, label in enumerate(columns["labels"]):
                if label != -100:
                    columns["input_ids"][column] = label
                    columns["labels"][column] = -100
            columns["row_hash"] = hash_row(position, columns["input_ids"], columns["labels"])
        query, _ = self._alone([example[0] for example in swapped], prompt, before)
        key, heads = self._alone([example[1] for example in swapped], prompt, before)
        pair_hash = [0] * self.max_seq_length
        for column, example in zip(heads, row, strict=True):
            pair_hash[column] = hash_segment(example[0])
        alone = {f"query_{name}": query[name] for name in COLUMNS} | {f"key_{name}": key[name] for name in COLUMNS}
        return columns | alone | {"pair_hash": pair_hash}

    def masked_translations(self, row: Row, position: int, *, reset: bool, segments: bool, random_order: bool) -> dict:
        """One side whole, and of the other the masked words alone, where they stand in the pair."""
        key, row = self._begin(self._swap(row, position) if random_order else row, position)
        number, second = 0, set()
        for example in row:
            for side, segment in enumerate(example):
                second |= set(range(number, number + len(segment.words))) if side else set()
                number += len(segment.words)
        chosen = self._choose(row, key, second)
        columns: dict[str, list[int]] = {name: [] for name in (*COLUMNS, "labels")}

        def put(example: int, piece: int, place: int, segment: int, language: int, label: int = -100) -> None:
            values = (piece, place, segment if segments else 0, language, example, label)
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)

        number = 0
        for example, (shown, asked) in enumerate(row, start=1):
            pieces = [piece for word in shown.words for piece in word.pieces]
            number += len(shown.words)
            for place, piece in enumerate([self.vocabulary.cls, *pieces, self.vocabulary.sep]):
                put(example, piece, place, 0, shown.language)
            place = 1 if reset else len(pieces) + 2
            for word in asked.words:
                for piece in word.pieces:
                    if number in chosen:
                        put(example, self.vocabulary.mask, place, 1, asked.language, piece)
                    place += 1
                number += 1
            put(example, self.vocabulary.sep, place, 1, asked.language)
        for name, values in columns.items():
            fill = {"input_ids": self.vocabulary.pad, "labels": -100}.get(name, 0)
            values += [fill] * (self.max_seq_length - len(values))
        labels = sum(label != -100 for label in columns["labels"])
        row_hash = hash_row(position, columns["input_ids"], columns["labels"])
        return columns | {"cross_lingual": labels, "no_room": 0, "position": position, "row_hash": row_hash}

    def _swap(self, row: Row, position: int) -> Row:
        key = int(counter_random.row_keys(self.seed, np.array([position]))[0])
        flips = [uniform(key, counter_random.SWAP_SEGMENTS, number) < 0.5 for number in range(len(row))]
        return [example[::-1] if flip else example for example, flip in zip(row, flips, strict=True)]

    def _alone(
        self, sentences: Example, prompt: Sequence[int], before: Callable[[tuple[int, ...]], list[int]]
    ) -> tuple[dict[str, list[int]], list[int]]:
        """Each sentence behind the prompt; its first word as that changes it, while all such words before fit too."""
        pieces_of = [[piece for word in sentence.words for piece in word.pieces] for sentence in sentences]
        room = self.max_seq_length - sum(len(prompt) + len(pieces) + 2 for pieces in pieces_of)
        columns: dict[str, list[int]] = {name: [] for name in COLUMNS}
        heads = []
        for number, sentence in enumerate(sentences, start=1):
            heads.append(len(columns["input_ids"]))
            word, pieces = sentence.words[0].pieces, pieces_of[number - 1]
            together = before(tuple(word))
            growth = len(together) - len(prompt) - len(word)
            room -= max(growth, 0)
            opening = together if growth <= 0 or room >= 0 else [*prompt, *word]
            pieces = [*opening, *pieces[len(word) :]]
            columns["input_ids"] += [self.vocabulary.cls, *pieces, self.vocabulary.sep]
            columns["position_ids"] += range(len(pieces) + 2)
            columns["segment_ids"] += [0] * (len(pieces) + 2)
            columns["language_ids"] += [sentence.language] * (len(pieces) + 2)
            columns["example_ids"] += [number] * (len(pieces) + 2)
        for name, values in columns.items():
            fill = self.vocabulary.pad if name == "input_ids" else 0
            values += [fill] * (self.max_seq_length - len(values))
        return columns, heads


def _expand(left: list[int], right: list[int], expand: str) -> list[tuple[int, int]]:
    if expand == "first":
        return [(left[0], right[0])]
    if expand == "diagonal":
        return list(zip(left, right, strict=False))
    return [(a, b) for a in left for b in right]


def hash_segment(segment: Segment) -> int:
    """The hash of a sentence as a signed number."""
    pieces = [piece for word in segment.words for piece in word.pieces]
    value = splitmix(sum(splitmix(place << 32 | piece) for place, piece in enumerate(pieces)) % 2**64) or 1
    return value - 2**64 if value >= 2**63 else value
