"""Token classification: any file of tagged words, and F1 over spans by seqeval's rules."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.derive.tasks import IOB2, find_scheme, reorder_tags
from xalign_ray.errors import DataError
from xalign_ray.models.tokenized import Features, Inputs
from xalign_ray.sources.conllu import explain_withheld, is_withheld
from xalign_ray.sources.tagged import CONLLU, TaggedWords, read_tagged
from xalign_ray.streams.collate import IGNORED
from xalign_ray.tasks.task import Measure, ReplaceWord, TunedTask, accuracy
from xalign_ray.tasks.task_files import is_table, read_lines, read_table
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from xalign_ray.models.inference import Encoder


LONGEST_SENTENCE = 128  # pieces; a longer one becomes several inputs
OUTSIDE = "O"
# Columns of data sets of the hub: MasakhaNER and WikiANN, XTREME, Universal Dependencies and MasakhaPOS.
WORD_COLUMNS = "tokens|words"
TAG_COLUMNS = "ner_tags|upos|pos_tags|tags|labels"
_TAG = re.compile(r"O|[BIESLU]-\S+")
_PREFIX = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?:")
Span = tuple[str, int, int]  # kind, first word, the word behind the last
Cut = Callable[[Sequence[str]], set[Span]]
# conlleval: first letters of two neighbouring tags between which a chunk ends, or begins, whatever its kind
_ENDING = frozenset(("BB", "BS", "BO", "IB", "IS", "IO"))
_BEGINNING = frozenset(("EE", "EI", "SE", "SI", "OE", "OI"))


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


_said: set[tuple[str, str]] = set()


def say_form(task: str, path: Path, what: str) -> None:
    """Prints the columns that a task reads in files of a form, at the first of them."""
    if (task, what) not in _said:
        _said.add((task, what))
        say(f"{task}: {what} ({path}, and files like it)")


class TaggingTask(TunedTask[Sentence]):
    """A task whose examples are sentences with a tag for each word.

    With `classes` these are the tags. Without them tags mark spans in IOB, BIOES or BILOU and are read as IOB2, and
    the kinds of spans come from the training file. Its metrics are computed `by` accuracy or one of `CUTS`.
    """

    head = "AutoModelForTokenClassification"
    longest = LONGEST_SENTENCE

    def read(self, path: Path, language: str) -> list[Sentence]:
        """The sentences of a file, which empty lines part; prints the form of its rows once for each form."""
        if is_table(path):
            columns = self._rows_of_table(path)
        else:
            form, columns = read_tagged(read_lines(path), path, self._check_tag)
            if form != CONLLU:
                say_form(self.name, path, f"a row is {form.what}")
        if not columns:
            raise DataError(f"{path} holds no sentence.")
        if withheld := sum(is_withheld(words) for words, _ in columns):
            raise DataError(explain_withheld(path, withheld, len(columns)))
        sentences = [Sentence(str(number), words, tags, language) for number, (words, tags) in enumerate(columns)]
        return sentences if self.classes else self._in_iob2(sentences, path)

    def _in_iob2(self, sentences: list[Sentence], path: Path) -> list[Sentence]:
        """With tags in IOB2, and without the prefix `en:` that PAN-X puts before each word."""
        scheme = find_scheme([sentence.tags for sentence in sentences])
        if scheme is not None and scheme != IOB2:
            say_form(self.name, path, f"tags in {scheme} are read as IOB2")
            sentences = [
                replace(sentence, tags=tuple(reorder_tags(sentence.tags, range(len(sentence.tags)))))
                for sentence in sentences
            ]
        prefix = _PREFIX.match(sentences[0].words[0])
        if not prefix or not all(word.startswith(prefix[0]) for sentence in sentences for word in sentence.words):
            return sentences
        return [
            replace(sentence, words=tuple(word.removeprefix(prefix[0]) for word in sentence.words))
            for sentence in sentences
        ]

    def _rows_of_table(self, path: Path) -> list[TaggedWords]:
        sentences = []
        for where, row in read_table(path, (WORD_COLUMNS, TAG_COLUMNS)):
            words, tags = tuple(row[WORD_COLUMNS]), tuple(row[TAG_COLUMNS])
            if len(words) != len(tags):
                raise DataError(f"{where}: {len(words)} words and {len(tags)} tags.")
            for tag in tags:
                self._check_tag(tag, where)
            sentences += [(words, tags)] if words else []
        return sentences

    def _check_tag(self, tag: Any, where: str) -> None:
        if not isinstance(tag, str):
            raise DataError(f"{where}: the tag {tag} is a number, and the file does not name its tags.")
        if self.classes and tag not in self.classes:
            raise DataError(f"{where}: {tag!r} is not one of the tags {', '.join(self.classes)}.")
        if not self.classes and not _TAG.fullmatch(tag):
            raise DataError(f"{where}: {tag!r} is no tag of IOB, BIOES or BILOU, such as O, B-PER or I-PER.")

    def classes_of(self, examples: Iterable[Sentence]) -> tuple[str, ...]:
        """The task's own classes; else O, then B- and I- of every kind of span, even if only one of the two occurs."""
        kinds = sorted(
            {tag[2:] for example in examples for tag in example.tags if tag != OUTSIDE} if not self.classes else ()
        )
        return self.classes or (OUTSIDE, *(f"{mark}-{kind}" for kind in kinds for mark in "BI"))

    def from_gold(self, key: str, gold: Sequence[str], language: str) -> Sentence:
        return Sentence(key, (), tuple(gold), language)

    def check(self, examples: Sequence[Sentence], classes: Sequence[str], path: Path) -> None:
        """Refuses tags that the head does not know, such as kinds of names that the training file lacks, and a file of
        spans without any.
        """
        if strange := sorted({tag for sentence in examples for tag in sentence.tags} - set(classes)):
            raise DataError(
                f"{path} has the tag {', '.join(strange)}, which the head does not know; its classes are "
                f"{', '.join(classes)}. Leave that language out, or give a copy of the file with O for that tag."
            )
        if not self.classes and not count_spans([sentence.tags for sentence in examples], strict_spans):
            raise DataError(f"{path} has no name at all: there is nothing to score. Leave that language out.")

    def features(self, inputs: Inputs, examples: Sequence[Sentence], classes: Sequence[str]) -> list[list[Features]]:
        """Inputs of at most 128 pieces that hold every word once, its label on its first piece: nothing is cut off.

        A word that the tokenizer makes nothing of becomes the unknown piece (padding where there is none), so that it
        is scored; a single word longer than an input keeps its first pieces.
        """
        label_ids, room = {tag: index for index, tag in enumerate(classes)}, inputs.room(self.longest)
        tokenizer = inputs.tokenizer
        unknown = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else (tokenizer.pad_token_id or 0)
        pieces = iter(inputs.piece_words([word for sentence in examples for word in sentence.words]))
        rows = []
        for sentence in examples:
            words = [(next(pieces) or [unknown])[:room] for _ in sentence.words]
            labels = [label_ids[tag] for tag in sentence.tags]
            rows.append([_encode(inputs, words[at], labels[at], sentence.language) for at in _parts(words, room)])
        return rows

    def predict(self, tuned: Encoder, features: Sequence[Sequence[Features]]) -> list[list[str]]:
        best = iter(
            tuned.forward([feature for part in features for feature in part], lambda output: output.logits.argmax(-1))
        )
        return [
            [
                tuned.classes[int(piece)]
                for feature in part
                for piece, label in zip(next(best), feature["labels"], strict=False)
                if label != IGNORED
            ]
            for part in features
        ]

    def measure(self, examples: Sequence[Sentence], predicted: Sequence[Sequence[str]]) -> dict[str, Measure]:
        gold = [tag for sentence in examples for tag in sentence.tags]
        predicted_tags = [tag for tags in predicted for tag in tags]
        return {
            metric.name: measure_spans(examples, predicted, CUTS[metric.by])
            if metric.by
            else accuracy(gold, predicted_tags)
            for metric in self.metrics
        }

    def replace_words(self, example: Sentence, replace_word: ReplaceWord) -> Sentence:
        return replace(example, words=tuple(map(replace_word, example.words)))


def measure_spans(sentences: Sequence[Sentence], predicted: Sequence[Sequence[str]], cut: Cut) -> Measure:
    """F1 of spans; chance is that of each sentence's own tags in random order, n the number of gold spans, not 0."""
    gold = [sentence.tags for sentence in sentences]
    if not (spans := count_spans(gold, cut)):
        raise DataError(f"The {sentences[0].language} file has no span at all: there is nothing to score.")
    chance = [shuffled_tags(sentence.words, sentence.tags) for sentence in sentences]
    return Measure(span_f1(gold, predicted, cut), span_f1(gold, chance, cut), spans)


def seqeval1_spans(tags: Sequence[str]) -> set[Span]:
    """Chunks of seqeval 1.2.2's default mode, in which an I- that continues nothing opens a chunk.

    It reads any tag as a letter and a kind: of tags without B- and I-, such as SCONJ and CCONJ, the first letter is cut
    off, so that both are CONJ.
    """
    return _chunks(tags, lambda tag: tag[1:].split("-", maxsplit=1)[-1] or "_")


def seqeval0_spans(tags: Sequence[str]) -> set[Span]:
    """Chunks of seqeval 0.0.12, the release of XTREME's time: as `seqeval1_spans`, but SCONJ is of the kind SCONJ."""
    return _chunks(tags, lambda tag: tag.split("-")[-1])


def strict_spans(tags: Sequence[str]) -> set[Span]:
    """Spans of IOB2 to the letter: only B- opens one, and an I- that continues nothing is none."""
    spans: set[Span] = set()
    start, kind = 0, ""
    for at, tag in enumerate([*tags, OUTSIDE]):
        if kind and tag == f"I-{kind}":
            continue
        if kind:
            spans.add((kind, start, at))
        start, kind = at, tag[2:] if tag.startswith("B-") else ""
    return spans


def span_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], cut: Cut) -> float:
    """Micro-averaged F1 over the spans of all sentences; 0 where neither side has any."""
    assert list(map(len, gold)) == list(map(len, predicted)), "a tag for each word"
    right, predicted_spans = cut(_joined(gold)), cut(_joined(predicted))
    spans = len(right) + len(predicted_spans)
    return 2 * len(right & predicted_spans) / spans if spans else 0.0


def count_spans(gold: Sequence[Sequence[str]], cut: Cut) -> int:
    """Number of spans in all sentences."""
    return len(cut(_joined(gold)))


def _joined(sentences: Sequence[Sequence[str]]) -> list[str]:
    """All tags with an O behind each sentence, as seqeval cuts them."""
    return [tag for tags in sentences for tag in (*tags, OUTSIDE)]


def shuffled_tags(words: Sequence[str], tags: Sequence[str]) -> list[str]:
    """A sentence's own tags in an order that depends on its words alone; the chance level is measured on it.

    The majority class is no baseline for spans: for names it is O, which scores 0. Tags in random order keep the number
    of names of each kind, not their places. The order is by hash, so that the level is a fact of the file.
    """
    return random.Random("\t".join(words)).sample(list(tags), len(tags))


def _chunks(tags: Sequence[str], kind_of: Callable[[str], str]) -> set[Span]:
    """conlleval's two questions at each tag, as seqeval asks them: does a chunk end before it, does one begin with it?

    The two questions are separate. A chunk can end where none begins, and the next one then begins where that one did:
    a quirk of tags such as SCONJ, which counts as a chunk of one word for its letter S.
    """
    spans: set[Span] = set()
    begin, letter, kind = 0, OUTSIDE, ""
    for at, tag in enumerate([*tags, OUTSIDE]):
        next_letter, next_kind = tag[0], kind_of(tag)
        pair, changes = letter + next_letter, kind != next_kind
        if letter in "ES" or pair in _ENDING or (letter not in "O." and changes):
            spans.add((kind, begin, at))
        if next_letter in "BS" or pair in _BEGINNING or (next_letter not in "O." and changes):
            begin = at
        letter, kind = next_letter, next_kind
    return spans


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


CUTS: dict[str, Cut] = {"seqeval0": seqeval0_spans, "seqeval1": seqeval1_spans, "strict": strict_spans}
"""How tags are cut into spans: as XTREME's and ALIGN-MLM's versions of seqeval (tests/peers/test_seqeval.py), IOB2."""
