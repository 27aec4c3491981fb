"""The changes that make a derived language of English, composed in any order (ALIGN-MLM, section 4): script, order.

`inv` turns a sentence round, `syn` gives it the word order of another language, `trans` writes it in another script.
The first two move words, and `trans` writes each word for itself: where it stands among them makes no difference.
"""

from __future__ import annotations

import json
import math
import random
import re
import string
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from tokenizers import Tokenizer

from xalign_ray.config.explain import suggest
from xalign_ray.errors import ConfigError
from xalign_ray.vocabulary.tokenizer import SPECIALS, tokenize_words

# The word order of another language for English trees: a model of precedence among siblings (T_syn of ALIGN-MLM).
#
# A small form of Galactic Dependencies (Wang and Eisner 2016), which the paper uses: the head and its dependents are
# reordered wherever the head is a noun or a verb, by the pairs in a treebank of the other language.

# Sentences with their dependency trees, which can be put in another order.

ROOT = -1


@dataclass(frozen=True, slots=True)
class Tree:
    """A dependency tree over N words.

    Attributes:
        tags: universal parts of speech [N].
        heads: place of each word's head from 0, ROOT for the root [N].
        relations: universal relations, without what languages add behind a colon [N].
    """

    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, and their tree where it is known."""

    words: tuple[str, ...]
    tree: Tree | None = None

    def in_order(self, places: Sequence[int]) -> Sentence:
        """The sentence with its words in another order; `places` has the old position of each new one."""
        words = tuple(self.words[position] for position in places)
        if self.tree is None:
            return Sentence(words)
        new = {old: position for position, old in enumerate(places)} | {ROOT: ROOT}
        return Sentence(
            words,
            Tree(
                tuple(self.tree.tags[position] for position in places),
                tuple(new[self.tree.heads[position]] for position in places),
                tuple(self.tree.relations[position] for position in places),
            ),
        )


MAX_DEPENDENTS = 6  # of a noun or verb; a sentence with more is left out, as in the paper
SMOOTHING = 1.0
# Pairs alone overshoot, because what agrees is counted for each pair: docs/explanation/methods.md, Derived languages.
TEMPER = 0.8
PUNCTUATION = "punct"
HEAD_CLASSES = {"NOUN": "noun", "PROPN": "noun", "PRON": "noun", "VERB": "verb"}

Label = tuple[str, str]  # tag and relation of a dependent
HEAD: Label = ("HEAD", "HEAD")


@dataclass(frozen=True)
class WordOrder:
    """Scores of pairs: a positive one means that the first stands before the second.

    Attributes:
        counts: how often label a stood before label b under a head of a class, by (class, a, b); of labels, of their
            relations alone, and of their tags alone, each as labels with the other part empty.
        seed: of the draw of each sentence's order, which depends on its words and nothing else.
    """

    counts: Counter[tuple[str, Label, Label]]
    seed: int = 0
    temper: float = TEMPER

    def __call__(self, sentence: Sentence) -> list[int] | None:
        """The order of T_syn, drawn from the model; None for a tree that is not projective or has too many dependents.

        Subtrees move whole. Punctuation keeps its place among its siblings.
        """
        assert sentence.tree is not None
        tree, siblings = sentence.tree, siblings_of(sentence.tree)
        many = (
            len({*_free(tree, head, places)} - {head}) > MAX_DEPENDENTS
            for head, places in siblings.items()
            if tree.tags[head] in HEAD_CLASSES
        )
        if any(many) or read_out(siblings) != list(range(len(sentence.words))):
            return None
        source = random.Random(f"{self.seed}/{' '.join(sentence.words)}")
        return read_out({head: self._draw(tree, head, siblings[head], source) for head in sorted(siblings)})

    def score(self, kind: str, first: Label, second: Label) -> float:
        """log((n(first, second) + s) / (n(second, first) + s)); of relations, then tags, where the pair is unseen."""
        for left, right in zip(_coarser(first), _coarser(second), strict=True):
            before, after = self.counts[kind, left, right], self.counts[kind, right, left]
            if before + after:
                return math.log((before + SMOOTHING) / (after + SMOOTHING))
        return 0.0

    def _draw(self, tree: Tree, head: int, places: Sequence[int], source: random.Random) -> list[int]:
        kind = HEAD_CLASSES.get(tree.tags[head])
        free = _free(tree, head, places)
        if kind is None or len(free) < 2:
            return list(places)
        labels = [label_of(tree, position, head) for position in free]
        scores = [[self.temper * self.score(kind, a, b) for b in labels] for a in labels]
        drawn = iter([free[item] for item in draw_order(scores, source)])
        moved = set(free)
        return [next(drawn) if position in moved else position for position in places]


def fit_word_order(treebank: Iterable[Sentence], seed: int = 0) -> WordOrder:
    """Counts the order of siblings under the nouns and verbs of a treebank, punctuation left out."""
    counts: Counter[tuple[str, Label, Label]] = Counter()
    for sentence in treebank:
        assert sentence.tree is not None
        for head, places in siblings_of(sentence.tree).items():
            if kind := HEAD_CLASSES.get(sentence.tree.tags[head]):
                labels = [label_of(sentence.tree, position, head) for position in _free(sentence.tree, head, places)]
                for pair in combinations(labels, 2):
                    counts.update((kind, *coarse) for coarse in zip(*map(_coarser, pair), strict=True))
    return WordOrder(counts, seed)


def _free(tree: Tree, head: int, places: Sequence[int]) -> list[int]:
    """A head and its dependents without punctuation, which keeps its place."""
    return [position for position in places if position == head or tree.relations[position] != PUNCTUATION]


def label_of(tree: Tree, position: int, head: int) -> Label:
    """Tag and relation of a dependent, or HEAD."""
    return HEAD if position == head else (tree.tags[position], tree.relations[position])


def _coarser(label: Label) -> tuple[Label, Label, Label]:
    tag, relation = label
    return label, ("", relation), (tag, "")


def siblings_of(tree: Tree) -> dict[int, list[int]]:
    """For each word that has dependents: itself and them, in the order of the sentence; ROOT has those without head."""
    dependents: defaultdict[int, list[int]] = defaultdict(list)
    for position, head in enumerate(tree.heads):
        dependents[head].append(position)
    return {head: sorted([*places, head]) if head != ROOT else places for head, places in dependents.items()}


def read_out(siblings: dict[int, list[int]]) -> list[int]:
    """The words of a tree whose siblings stand in these orders: every subtree is one run of words.

    With the siblings in the order of the sentence it gives back the sentence if and only if the tree is projective.
    Words on a cycle are in none.
    """
    order: list[int] = []
    todo = [(position, False) for position in reversed(siblings.get(ROOT, []))]
    while todo:
        position, is_word = todo.pop()
        if is_word or position not in siblings:
            order.append(position)
        else:
            todo += [(item, item == position) for item in reversed(siblings[position])]
    return order


def draw_order(scores: Sequence[Sequence[float]], source: random.Random) -> list[int]:
    """An order pi of n items, drawn with probability proportional to exp(sum over i < j of scores[pi_i][pi_j]).

    Exact, by sums over the 2^n sets of items that may stand first, in place of the n! orders.
    """
    number = len(scores)
    all_placed = (1 << number) - 1
    rest = [0.0] * (
        all_placed + 1
    )  # log of the sum over all orders of the words outside the set, the set standing before
    steps: list[list[tuple[int, float]]] = [[] for _ in range(all_placed + 1)]
    for placed in range(all_placed - 1, -1, -1):
        for item in range(number):
            if not placed >> item & 1:
                gained = sum(scores[before][item] for before in range(number) if placed >> before & 1)
                steps[placed].append((item, gained + rest[placed | 1 << item]))
        most = max(value for _, value in steps[placed])
        rest[placed] = most + math.log(sum(math.exp(value - most) for _, value in steps[placed]))
    order, placed = [], 0
    while placed != all_placed:
        weights = [math.exp(value - rest[placed]) for _, value in steps[placed]]
        (item,) = source.choices([item for item, _ in steps[placed]], weights)
        order.append(item)
        placed |= 1 << item
    return order


# Writes English in another script, one-to-one, and doubles a vocabulary with it: T_trans of ALIGN-MLM, id to id + V.
#
# The paper adds the size V of the vocabulary to the ids of a text. Here the text is written in another script, and
# the vocabulary holds every piece twice, with its merges: piece i of an English word is piece i + V of the word written
# in the other script. So the derived language is text like any other, and the ids are the paper's.

SPACE_MARK = "\u2581"  # what begins the first piece of a word; the same in both scripts
# What English text has besides ASCII: quotes, dashes, the ellipsis.
TYPOGRAPHIC = "\u201c\u201d\u2018\u2019\u201a\u201e\u2013\u2014\u2026\u2022\u00b7\u00ab\u00bb\u00a7"

_GEORGIAN, _LAO_ZERO, _MARKS = 0x10D0, 0x0ED0, 0x2E00  # small letters; digits; marks that are all punctuation (P*)
_HANGUL, _HAN_B, _HAN_B_END = 0xAC00, 0x20000, 0x26DC0
_FIRST_OTHER, _OTHER_END = 0xA0, 0x2C44  # Latin with marks, Greek, Cyrillic ...: as many as Hangul has syllables
_HAN = ((0x4E00, 0xA000, _HAN_B), (0x3400, 0x4DC0, 0x25400))  # Chinese stays Chinese: tokenizers cut it by character
_ESCAPE = chr(_GEORGIAN + 26)  # the first letter that none of a-z needs
_HEXADECIMAL = [chr(_GEORGIAN + value) for value in range(16)]
_TABLE = {
    **{ord(letter): chr(_GEORGIAN + position) for position, letter in enumerate(string.ascii_lowercase)},
    **{ord(digit): chr(_LAO_ZERO + position) for position, digit in enumerate(string.digits)},
    **{ord(mark): chr(_MARKS + position) for position, mark in enumerate(string.punctuation + TYPOGRAPHIC)},
    ord(SPACE_MARK): SPACE_MARK,
}
_TAKEN = frozenset(_TABLE.values()) | {_ESCAPE}  # the blank mark too: the copy of a piece of two marks would be itself


def transliterate(word: str) -> str:
    """The word, lower-cased and in NFC, in the other script.

    Georgian letters, Lao digits, marks of U+2E00-2E2E; other letters and symbols below U+2C44 as Hangul syllables, and
    Chinese characters as others of Extension B. Any other character is spelled by its code point in hexadecimal between
    two escape letters, so that the writing stays one-to-one whatever the text holds.

    Args:
        word: without white space.
    """
    return "".join(map(_write, _plain(word)))


def _plain(word: str) -> str:
    return unicodedata.normalize("NFC", word).lower().strip()


def is_copied(text: str) -> bool:
    """Whether each character has one character in the other script: then the copy of a piece is one piece."""
    return all(len(_write(character)) == 1 for character in text)


@lru_cache(maxsize=2**16)
def _write(character: str) -> str:
    code = ord(character)
    if (written := _TABLE.get(code)) is not None:
        return written
    for first, end, target in _HAN:
        if first <= code < end:
            return chr(target + code - first)
    if _FIRST_OTHER <= code < _OTHER_END and character not in _TAKEN and unicodedata.category(character)[0] != "P":
        return chr(_HANGUL + code - _FIRST_OTHER)
    digits = "".join(_HEXADECIMAL[int(digit, 16)] for digit in f"{code:x}")
    return f"{_ESCAPE}{digits}{_ESCAPE}"


def without_other_script(line: str) -> str:
    """The line with blanks where it uses a character of the other script, which an English vocabulary must not hold."""
    return "".join(" " if _is_other(character) else character for character in line)


def _is_other(character: str) -> bool:
    code = ord(character)
    return (
        character in _TAKEN
        or _HANGUL <= code < _HANGUL + _OTHER_END - _FIRST_OTHER
        or _HAN_B <= code < _HAN_B_END
    )  # fmt: skip


def double_vocabulary(english: Tokenizer) -> Tokenizer:
    """The vocabulary of V pieces with the copy of piece i at i + V, and its merges after the English ones.

    A special token and the blank mark are one in both languages; in their copies' places stand `[unused<i>]`.

    Args:
        english: byte pairs as `train_bpe` trains them, without characters of the other script.
    """
    state = json.loads(english.to_str())
    vocabulary, merges = state["model"]["vocab"], state["model"]["merges"]
    size = len(vocabulary)
    for piece, number in list(vocabulary.items()):
        shared = piece in SPECIALS or piece == SPACE_MARK
        vocabulary[f"[unused{number}]" if shared else transliterate(piece)] = number + size
    assert len(vocabulary) == 2 * size, "the writing is one-to-one"
    merges += [[transliterate(left), transliterate(right)] for left, right in list(merges)]
    return Tokenizer.from_str(json.dumps(state, ensure_ascii=False))


def draw_kept(english: Tokenizer, overlap: float, seed: int) -> frozenset[int]:
    """The ids that the derived language keeps: a share of the ordinary pieces, drawn uniformly."""
    ordinary = sorted(english.get_vocab(with_added_tokens=False).items(), key=lambda entry: entry[1])
    ids = [number for piece, number in ordinary if piece not in SPECIALS and piece != SPACE_MARK]
    order = np.random.default_rng(seed).permutation(len(ids))
    return frozenset(ids[int(position)] for position in order[: round(overlap * len(ids))])


class Transliterator:
    """Writes words of English as the derived language has them.

    Without kept pieces the whole word is written in the other script. With them the word is cut into pieces first, and
    each is written or kept: byte pairs never merge across scripts, and inside a run of one script they merge as they
    did in the whole word, so that the tokenizer of both languages finds the same pieces again.
    """

    def __init__(self, english: Tokenizer, kept: frozenset[int] = frozenset()) -> None:
        english.encode_special_tokens = True
        self.kept = kept
        self._english = english
        self._known: dict[str, str] = {}

    def write(self, word: str) -> str:
        if not self.kept:
            return transliterate(word)
        form = _plain(word)
        if (written := self._known.get(form)) is None:
            encoding = self._english.encode(form, add_special_tokens=False)
            parts = [
                (number, form[begin:end])
                for number, token, (begin, end) in zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True)
                if token != SPACE_MARK  # its offsets are the next piece's
            ]
            written = "".join(part if number in self.kept else transliterate(part) for number, part in parts)
            if len(self._known) < 2**18:  # the commonest words come first
                self._known[form] = written
        return written

    def write_all(self, words: Iterable[str]) -> str:
        """The words, with blanks between them."""
        return " ".join(map(self.write, words))


def word_types(english: Tokenizer, kept: frozenset[int], doubled: Tokenizer) -> list[tuple[str, str]]:
    """The types of the vocabulary that are words, each with its copy, the commonest first.

    A type is a word if it is one piece where it stands alone between blanks, and so is its copy. What only continues a
    word is none, for no dictionary of words can name it; nor is what both languages share.
    """
    pieces = sorted(english.get_vocab(with_added_tokens=False).items(), key=lambda entry: entry[1])
    words = [(number, piece.removeprefix(SPACE_MARK)) for piece, number in pieces if piece.startswith(SPACE_MARK)]
    words = [(number, word) for number, word in words if word and number not in kept and is_copied(word)]
    copies = [transliterate(word) for _, word in words]
    ids_of_words = tokenize_words(doubled, [word for _, word in words])
    rows = zip(words, copies, ids_of_words, tokenize_words(doubled, copies), strict=True)
    size = english.get_vocab_size(with_added_tokens=False)
    return [
        (word, copy) for (number, word), copy, ids, copy_ids in rows if ids == [number] and copy_ids == [number + size]
    ]  # fmt: skip


INVERSION, SYNTAX, TRANSLITERATION = "inv", "syn", "trans"
CHANGES = (INVERSION, SYNTAX, TRANSLITERATION)
DEFAULT = (INVERSION, TRANSLITERATION)
FINAL_MARKS = frozenset(".!?")

Order = Callable[[Sentence], list[int] | None]  # for each new place the old one; None if the sentence cannot be used

_CLITIC = re.compile(r"(?i)(n['\u2019]t|['\u2019](?:s|re|ve|ll|d|m))$")
_KEPT_POINT = frozenset(["mr", "mrs", "ms", "dr", "jr", "sr", "st", "vs"])  # "Mr." is one word


def check_changes(changes: Sequence[str]) -> None:
    """Raises ConfigError if a change is unknown, stands there twice, or there is none."""
    for change in changes:
        if change not in CHANGES:
            raise ConfigError(f"--changes {','.join(changes)}: unknown change '{change}'.{suggest(change, CHANGES)} "
                              f"Known: {', '.join(CHANGES)}.")  # fmt: skip
    if not changes or len(set(changes)) < len(changes):
        raise ConfigError(f"--changes {','.join(changes)}: name each of {', '.join(CHANGES)} at most once, and one.")


def derived_language(changes: Sequence[str]) -> str:
    """The code of the language: `en-x-trans`, `en-x-inv`, `en-x-syn-inv`.

    As in the paper's tables, a language is in the other script by default; one that is not ends in
    `latn`.
    """
    moves = [change for change in changes if change != TRANSLITERATION]
    script = [] if TRANSLITERATION in changes else ["latn"]
    return "-".join(["en-x", *(moves or [TRANSLITERATION]), *script])


def compose(orders: Sequence[Order]) -> Order:
    """One change of order after the other: each is of the sentence that the one before has made."""

    def composed(sentence: Sentence) -> list[int] | None:
        places = list(range(len(sentence.words)))
        for order in orders:
            moved = order(sentence)
            if moved is None:
                return None
            sentence, places = sentence.in_order(moved), [places[position] for position in moved]
        return places

    return composed


def invert(sentence: Sentence) -> list[int]:
    """The order of T_inv: where each word of the inverted text comes from.

    A sentence ends at `.`, `!` or `?`; its words are reversed, the final mark stays last (ALIGN-MLM, appendix on the
    transformations). Words after the last mark are a sentence without one.
    """
    order: list[int] = []
    start = 0
    for end, word in enumerate(sentence.words):
        if word in FINAL_MARKS:
            order += [*range(end - 1, start - 1, -1), end]
            start = end + 1
    return order + list(range(len(sentence.words) - 1, start - 1, -1))


def split_words(line: str) -> list[str]:
    """Words between white space, with the marks before and after them as words of their own.

    As in Universal Dependencies, whose tagged words the same language is made of, "do|n't" and "dog|'s" are two words,
    and the point of initials, of "U.S." and of titles stays. Other marks inside a word stay too ("well-known").
    """
    words: list[str] = []
    for token in line.split():
        if _CLITIC.fullmatch(token):
            words.append(token)
            continue
        core = token.strip(string.punctuation + TYPOGRAPHIC)
        if not core:
            words += token
            continue
        before, after = token.split(core, 1)
        keeps_point = "." in core or (len(core) == 1 and core.isupper()) or core.lower() in _KEPT_POINT
        if after.startswith(".") and keeps_point:
            core, after = f"{core}.", after[1:]
        words += [*before, *filter(None, _CLITIC.split(core)), *after]
    return words


def split_sentences(words: Sequence[str]) -> list[list[str]]:
    """Sentences, each up to and with its final mark, as `invert` sees them."""
    sentences: list[list[str]] = [[]]
    for word in words:
        sentences[-1].append(word)
        if word in FINAL_MARKS:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]
