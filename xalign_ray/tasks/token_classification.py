"""What the tasks share that tag words: features of pieces, predicted tags, spans and their F1."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from xalign_ray.errors import DataError
from xalign_ray.tasks.task import Measure, ReplaceWord, TunedTask
from xalign_ray.tasks.task_files import read_lines
from xalign_ray.tasks.tokenized import IGNORED, Features, Inputs

if TYPE_CHECKING:
    from xalign_ray.tasks.hf_encoder import Encoder

LONGEST_SENTENCE = 128  # pieces; a longer one becomes several inputs
OUTSIDE = "O"
Span = tuple[str, int, int]  # kind, first word, the word behind the last
Cut = Callable[[Sequence[str]], set[Span]]


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words and a tag for each."""

    key: str  # its place in the file, from 0
    words: tuple[str, ...]
    tags: tuple[str, ...]
    language: str

    @property
    def gold(self) -> tuple[str, ...]:
        return self.tags


class TaggingTask(TunedTask[Sentence]):
    """A task whose examples are sentences with a tag for each word; how a row is read and what is scored differs."""

    head = "AutoModelForTokenClassification"

    @abstractmethod
    def read_row(self, line: str, kind: str, where: str, place: int) -> tuple[str, str] | None:
        """The word and the tag of a row, or None where it holds none.

        `kind` is the end of the file's name, such as ".tsv", `where` file and line for errors, `place` the number of
        words in the sentence before it.
        """

    def read(self, path: Path, language: str) -> list[Sentence]:
        """The sentences of a file, which empty lines part."""
        sentences: list[list[tuple[str, str]]] = [[]]
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                sentences.append([])
            elif row := self.read_row(line, path.suffix, f"{path}, line {number}", len(sentences[-1])):
                sentences[-1].append(row)
        columns = [zip(*rows, strict=True) for rows in sentences if rows]
        if not columns:
            raise DataError(f"{path} holds no sentence.")
        return [Sentence(str(place), words, tags, language) for place, (words, tags) in enumerate(columns)]

    def features(self, inputs: Inputs, examples: Sequence[Sentence], classes: Sequence[str]) -> list[list[Features]]:
        """Inputs of at most 128 pieces that hold every word once, its label on its first piece: nothing is cut off.

        A word that the tokenizer makes nothing of becomes the unknown piece, so that it is scored; a single word longer
        than an input keeps its first pieces.
        """
        label_ids, room = {tag: index for index, tag in enumerate(classes)}, inputs.room(LONGEST_SENTENCE)
        pieces = iter(inputs.piece_words([word for sentence in examples for word in sentence.words]))
        found = []
        for sentence in examples:
            if strange := sorted(set(sentence.tags) - label_ids.keys()):
                raise DataError(
                    f"{self.name}: {sentence.language} has the tag {', '.join(strange)}, which the head does not know; "
                    f"its classes are {', '.join(classes)}. Leave that language out, or give a copy of its file with O "
                    "for that tag."
                )
            words = [(next(pieces) or [inputs.tokenizer.unk_token_id])[:room] for _ in sentence.words]
            labels = [label_ids[tag] for tag in sentence.tags]
            found.append([_encode(inputs, words[at], labels[at], sentence.language) for at in _parts(words, room)])
        return found

    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[list[str]]:
        best = iter(tuned.forward([one for part in features for one in part], lambda output: output.logits.argmax(-1)))
        return [
            [
                tuned.classes[int(piece)]
                for one in part
                for piece, label in zip(next(best), one["labels"], strict=False)
                if label != IGNORED
            ]
            for part in features
        ]

    def replace_words(self, example: Sentence, replace_word: ReplaceWord) -> Sentence:
        return replace(example, words=tuple(map(replace_word, example.words)))


def measure_spans(sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]], cut: Cut) -> Measure:
    """F1 of spans; chance is that of each sentence's own tags in random order, n the number of gold spans, not 0."""
    gold = [sentence.tags for sentence in sentences]
    if not (spans := count_spans(gold, cut)):
        raise DataError(f"The {sentences[0].language} file has no span at all: there is nothing to score.")
    chance = [shuffled_tags(sentence.words, sentence.tags) for sentence in sentences]
    return Measure(span_f1(gold, predicted, cut), span_f1(gold, chance, cut), spans)


def lenient_spans(tags: Sequence[str]) -> set[Span]:
    """Spans as conlleval and seqeval read them, and so XTREME: an I- that continues nothing opens a span."""
    return _cut(tags, lambda tag, kind: (tag == f"I-{kind}", tag[2:]))


def strict_spans(tags: Sequence[str]) -> set[Span]:
    """Spans of IOB2 to the letter: only B- opens one, and an I- that continues nothing is none."""
    return _cut(tags, lambda tag, kind: (tag == f"I-{kind}", tag[2:] if tag.startswith("B-") else ""))


def runs(tags: Sequence[str]) -> set[Span]:
    """Maximal runs of one tag: what XTREME's F1 counts where tags have no B- and I-; it is no accuracy."""
    return _cut(tags, lambda tag, kind: (tag == kind, tag))


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], cut: Cut) -> float:
    """Micro-averaged F1 over the spans of all sentences; 0 where neither side has any."""
    hits = spans = 0
    for right, said in zip(gold, predicted, strict=True):
        assert len(right) == len(said), "a tag for each word"
        right_spans, said_spans = cut(right), cut(said)
        hits += len(right_spans & said_spans)
        spans += len(right_spans) + len(said_spans)
    return 2 * hits / spans if spans else 0.0


def count_spans(gold: Sequence[Sequence[str]], cut: Cut) -> int:
    """Number of spans in all sentences."""
    return sum(len(cut(tags)) for tags in gold)


def shuffled_tags(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """A sentence's own tags in an order that depends on its words alone: what the chance level is measured on.

    The majority class is no baseline for spans: for names it is O, which scores 0. Tags in random order know how many
    names of which kind there are and nothing of where; by hash, so that the level is a fact of the file.
    """
    return random.Random("\t".join(words)).sample(list(tags), len(tags))


def _cut(tags: Sequence[str], follow: Callable[[str, str], tuple[bool, str]]) -> set[Span]:
    """Spans of all kinds but ""; `follow` says of a tag whether it continues a span, else the kind that it opens."""
    found: set[Span] = set()
    start, kind = 0, ""
    for place, tag in enumerate([*tags, ""]):
        continues, opened = follow(tag, kind)
        if continues and kind:
            continue
        if kind:
            found.add((kind, start, place))
        start, kind = place, opened
    return found


def _parts(words: Sequence[Sequence[int]], room: int) -> Iterator[slice]:
    """Cuts between words, as late as room allows."""
    start, used = 0, 0
    for index, pieces in enumerate(words):
        if used + len(pieces) > room:
            yield slice(start, index)
            start, used = index, 0
        used += len(pieces)
    yield slice(start, len(words))


def _encode(inputs: Inputs, words: Sequence[Sequence[int]], labels: Sequence[int], language: str) -> Features:
    pairs = zip(words, labels, strict=True)
    marks = [mark for pieces, label in pairs for mark in (label, *[IGNORED] * len(pieces[1:]))]
    ends = [IGNORED] * len(inputs.prefix), [IGNORED] * len(inputs.suffix)
    features = inputs.single([piece for pieces in words for piece in pieces], language)
    return features | {"labels": [*ends[0], *marks, *ends[1]]}
