"""DICT-MLM as one would first write it down: plain Python over batched encodings. The reference of speed, and readable.

What it makes is what `code_switched_labels` makes: whole words up to 15 % of an example, half of those in
the dictionary asked for as a translation, language first, 80/10/10, examples side by side in rows of one length.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

WORD = re.compile(r"\w+|[^\w\s]")
BATCH_LINES, BATCH_ROWS = 1000, 512
RATE, SWITCHED, MASKED, RANDOM, IGNORED = 0.15, 0.5, 0.8, 0.1, -100


@dataclass
class Row:
    """A row while it is filled."""

    input_ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    position_ids: list[int] = field(default_factory=list)
    language_ids: list[int] = field(default_factory=list)
    example_ids: list[int] = field(default_factory=list)
    examples: int = 0


class NaiveDictMlm:
    """Lines to batches of rows.

    Args:
        languages: of the text and the dictionaries; the index is the language id.
        dictionaries: files en-LANGUAGE.txt of two words a line.
    """

    def __init__(
        self, backend: Tokenizer, languages: Sequence[str], dictionaries: Sequence[Path], max_seq_length: int
    ) -> None:
        self.backend, self.max_seq_length, self.random = backend, max_seq_length, random.Random(0)
        self.synonyms: dict[tuple[int, str], dict[int, list[list[int]]]] = {}
        for path in dictionaries:
            pair = [languages.index(code) for code in path.stem.split("-")]
            entries = [line.lower().split() for line in path.read_text(encoding="utf-8").splitlines()]
            entries = [entry for entry in entries if len(entry) == 2 and entry[0] != entry[1]]
            for side in (0, 1):
                targets = backend.encode_batch([entry[1 - side] for entry in entries], add_special_tokens=False)
                for entry, target in zip(entries, targets, strict=True):
                    groups = self.synonyms.setdefault((pair[side], entry[side]), {})
                    groups.setdefault(pair[1 - side], []).append(target.ids)
        names = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
        self.pad, self.cls, self.sep, self.mask = (backend.token_to_id(name) for name in names)

    def batches(self, lines: Sequence[str], language: int) -> Iterator[dict[str, np.ndarray]]:
        """Rows of lines of one language."""
        rows, row = [], Row()
        for begin in range(0, len(lines), BATCH_LINES):
            texts = [WORD.findall(line) for line in lines[begin : begin + BATCH_LINES]]
            encodings = self.backend.encode_batch(texts, is_pretokenized=True, add_special_tokens=False)
            for words, encoding in zip(texts, encodings, strict=True):
                pieces: list[list[int]] = [[] for _ in words]
                for number, word in zip(encoding.ids, encoding.word_ids, strict=True):
                    pieces[word].append(number)
                for shown, labels, languages in self._examples(words, pieces, language):
                    if len(row.input_ids) + len(shown) > self.max_seq_length:
                        rows.append(self._fill(row))
                        row = Row()
                    row.examples += 1
                    row.input_ids += shown
                    row.labels += labels
                    row.position_ids += range(len(shown))
                    row.language_ids += languages
                    row.example_ids += [row.examples] * len(shown)
                if len(rows) >= BATCH_ROWS:
                    yield _stack(rows)
                    rows = []
        yield _stack([*rows, self._fill(row)])

    def _examples(
        self, words: list[str], pieces: list[list[int]], language: int
    ) -> Iterator[tuple[list[int], list[int], list[int]]]:
        """A line as examples that fit into a row: what is shown, the labels, the languages."""
        room, begin, used = self.max_seq_length - 2, 0, 0
        for at, word in enumerate(pieces):
            if used + len(word) > room:
                yield self._mask(words[begin:at], pieces[begin:at], language)
                begin, used = at, 0
            used += len(word)
        if used:
            yield self._mask(words[begin:], pieces[begin:], language)

    def _mask(self, words: list[str], pieces: list[list[int]], language: int) -> tuple[list[int], list[int], list[int]]:
        length = sum(map(len, pieces)) + 2
        budget = max(1, round(RATE * length))
        chosen = set()
        for at in self.random.sample(range(len(words)), len(words)):
            if 0 < len(pieces[at]) <= budget:
                chosen.add(at)
                budget -= len(pieces[at])
            if not budget:
                break
        shown, labels, languages = [self.cls], [IGNORED], [language]
        for at, word in enumerate(pieces):
            if at not in chosen:
                shown += word
                labels += [IGNORED] * len(word)
                languages += [language] * len(word)
                continue
            label, spoken = word, language
            groups = self.synonyms.get((language, words[at].lower()))
            if groups and self.random.random() < SWITCHED:
                spoken = self.random.choice(list(groups))
                label = self.random.choice(groups[spoken])
                if length + len(label) - len(word) > self.max_seq_length:
                    label, spoken = word, language
            length += len(label) - len(word)
            for number, piece in enumerate(label):
                draw = self.random.random()
                if draw < MASKED:
                    shown.append(self.mask)
                elif draw < MASKED + RANDOM:
                    shown.append(self.random.randrange(5, self.backend.get_vocab_size()))
                else:
                    shown.append(word[number] if len(label) == len(word) else self.mask)
                labels.append(piece)
                languages.append(spoken)
        return [*shown, self.sep], [*labels, IGNORED], [*languages, language]

    def _fill(self, row: Row) -> Row:
        left = self.max_seq_length - len(row.input_ids)
        row.input_ids += [self.pad] * left
        row.labels += [IGNORED] * left
        for column in (row.position_ids, row.language_ids, row.example_ids):
            column += [0] * left
        return row


def _stack(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    names = ("input_ids", "labels", "position_ids", "language_ids", "example_ids")
    return {name: np.asarray([getattr(row, name) for row in rows], np.int32) for name in names}
