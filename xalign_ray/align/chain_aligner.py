"""The hmm aligner: IBM model 1, then a hidden Markov model of word positions, over padded blocks of pairs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xalign_ray.align.links import GROW_DIAG_FINAL_AND, SYMMETRISERS, Link, WordPair
from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import write_atomic

Index = NDArray[np.int64]
Reals = NDArray[np.float32]

BLOCK_PAIRS = 256
BLOCK_CELLS = 1 << 17  # cells worked on together: what stays in a core's cache

PADDING, UNKNOWN = -2, -1


@dataclass(frozen=True)
class Block:
    """Pairs [B] whose words are numbered: first [B, I] and second [B, J], filled up with PADDING."""

    pairs: Index
    first: Index
    second: Index

    @property
    def shape(self) -> tuple[int, int, int]:
        """B, J, I: of arrays with a cell for each word of the second side and each of the first."""
        return len(self.pairs), self.second.shape[1], self.first.shape[1]

    def keys(self, second_words: int) -> Index:
        """A number for each cell's pair of words, [B, J, I]; negative where a word is padding or unknown."""
        first, second = self.first[:, None, :], self.second[:, :, None]
        return np.where((first < 0) | (second < 0), np.minimum(first, second), first * second_words + second)


def make_blocks(first: Sequence[Index], second: Sequence[Index]) -> Iterator[Block]:
    """Groups pairs by length, so that little is padding; pairs with an empty side are in no block."""
    lengths = np.asarray([(len(a), len(b)) for a, b in zip(first, second, strict=True)], np.int64).reshape(-1, 2)
    full = np.flatnonzero(lengths.min(axis=1) > 0)
    order = full[np.lexsort((lengths[full, 1], lengths[full, 0] // 4))]
    begin = 0
    while begin < len(order):
        end = begin + 1
        high = lengths[order[begin]]
        while end < len(order) and end - begin < BLOCK_PAIRS:
            higher = np.maximum(high, lengths[order[end]])
            if (end + 1 - begin) * higher[0] * higher[1] > BLOCK_CELLS:
                break
            high, end = higher, end + 1
        chosen = order[begin:end]
        yield Block(chosen, _pad([first[n] for n in chosen], high[0]), _pad([second[n] for n in chosen], high[1]))
        begin = end


def number_words(texts: Sequence[Sequence[str]], known: Mapping[str, int], longest: int) -> list[Index]:
    """The numbers of the first `longest` words of each side, UNKNOWN where a word has none."""
    return [np.asarray([known.get(word, UNKNOWN) for word in text[:longest]], np.int64) for text in texts]


def _pad(texts: Sequence[Index], length: int) -> Index:
    padded = np.full((len(texts), length), PADDING, np.int64)
    for row, text in zip(padded, texts, strict=True):
        row[: len(text)] = text
    return padded


NULL = 0.2  # probability that a word comes from none of the other side
LONGEST_JUMP = 10  # longer jumps share a probability


def first_jumps() -> NDArray[np.float64]:
    """Weights of jumps from -LONGEST_JUMP to LONGEST_JUMP before any is counted: one word on is the most likely."""
    return np.exp(-np.abs(np.arange(-LONGEST_JUMP, LONGEST_JUMP + 1) - 1) / 2)


def posteriors(
    emission: Reals, null: Reals, states: NDArray[np.bool_], jumps: NDArray[np.float64]
) -> tuple[Reals, NDArray[np.float64]]:
    """The probability that word j comes from state i, and how often each jump is expected, by forward and backward.

    Vogel, Ney and Tillmann (1996), with a null word that stays where it is (Och and Ney 2003, section 2.1.2).

    Args:
        emission: [B, J, I] probability of word j where it comes from state i; 0 at padding.
        null: [B, J] probability of word j where it comes from the null word; 0 at padding, where nothing happens.
        states: [B, I] whether a state is there: False at padding.
        jumps: [2 * LONGEST_JUMP + 1] weights, relative to each other.

    Returns:
        [B, J, I], which sums over I to 1 minus the null word's share; and [2 * LONGEST_JUMP + 1].
    """
    b, words, width = emission.shape
    distance = np.arange(width)[None, :] - np.arange(width)[:, None]
    distance = np.clip(distance, -LONGEST_JUMP, LONGEST_JUMP) + LONGEST_JUMP
    jump = jumps[distance].astype(np.float32)
    share = 1 / (states.astype(np.float32) @ jump.T)  # so that the jumps from each state sum to 1
    emission = np.ascontiguousarray(emission.transpose(1, 0, 2)) * np.float32(1 - NULL)
    none = np.where(null.T > 0, null.T * np.float32(NULL), np.float32(1))[:, :, None]
    before = np.empty((words, b, width), np.float32)  # where the chain stands before word j, spread over jumps
    real = np.empty_like(before)
    scale = np.empty((words, b, 1), np.float32)
    now = states / states.sum(axis=1, keepdims=True, dtype=np.float32)
    for j in range(words):
        before[j] = now * share
        real[j] = (before[j] @ jump if j else now) * emission[j]
        now = real[j] + now * none[j]
        scale[j] = now.sum(axis=1, keepdims=True)
        real[j] /= scale[j]
        now = now / scale[j]
    ahead = np.ones((b, width), np.float32)
    seen = emission  # is overwritten: what follows from word j on, seen from its state
    for j in range(words - 1, -1, -1):
        real[j] *= ahead
        stay = none[j] * ahead / scale[j]
        seen[j] *= ahead
        seen[j] /= scale[j]
        ahead = (seen[j] @ jump.T) * share + stay
    moves = (before[1:].reshape(-1, width).T @ seen[1:].reshape(-1, width)) * jump
    return real.transpose(1, 0, 2), np.bincount(distance.ravel(), moves.ravel(), len(jumps)).astype(np.float64)


LEXICON_ROUNDS, CHAIN_ROUNDS = 4, 3  # of expectation and maximisation; Liang et al. do 5 and 5, we have less text
LONGEST_TRAINED = 80  # words of a side; longer pairs are left out of training
LONGEST_ALIGNED = 512  # words of a side; what follows them is not aligned
MIN_KEPT = 1e-4  # word pairs less probable than this in both directions are not saved
UNSEEN = np.float32(1e-7)  # probability of two known words that were not saved together
TALLY = 1 << 22  # cells counted together: bounds what counting takes besides the cells
MODEL, WORDS = "model.npz", "words.json"


@dataclass(frozen=True)
class Chains:
    """The kind `hmm`: needs nothing but numpy, and is the one to take unless there is a reason for another."""

    name: ClassVar[str] = "hmm"
    default_method: ClassVar[str] = GROW_DIAG_FINAL_AND
    learns: ClassVar[bool] = True

    def identity(self) -> dict[str, Any]:
        """What its alignments depend on, besides the pairs it is trained on."""
        return {"kind": self.name}

    def train(self, pairs: Sequence[WordPair], folder: Path) -> None:
        """Trains on the pairs and writes the model's files."""
        train_chains(pairs).save(folder)

    def open(self, folder: Path) -> ChainAligner:
        """The trained model in a folder."""
        return open_chains(folder)


@dataclass(frozen=True)
class ChainAligner:
    """A trained model: translation probabilities of word pairs in both directions, and how the words move."""

    first: dict[str, int]
    second: dict[str, int]
    keys: Index  # sorted: first word * number of second words + second word
    forward: Reals  # probability of the second word, given the first
    backward: Reals
    frequencies: tuple[Reals, Reals]  # of each side's words, as _frequencies gives them: the null word's emissions
    jumps: tuple[NDArray[np.float64], NDArray[np.float64]]  # forward: between words of the first side

    def align(self, pairs: Sequence[WordPair], method: str) -> list[list[Link]]:
        """Links by the most probable partner of each word in each direction, made one by `method`."""
        first = number_words([a for a, _ in pairs], self.first, LONGEST_ALIGNED)
        second = number_words([b for _, b in pairs], self.second, LONGEST_ALIGNED)
        directions: list[tuple[set[Link], set[Link]]] = [(set(), set()) for _ in pairs]
        for block in make_blocks(first, second):
            forward, backward = self._emissions(block)
            onto, _ = _forward(block, forward, self.frequencies[1], self.jumps[0])
            back, _ = _backward(block, backward, self.frequencies[0], self.jumps[1])
            for pair, j, i in _best(onto):
                directions[block.pairs[pair]][0].add((i, j))
            for pair, i, j in _best(back.transpose(0, 2, 1)):
                directions[block.pairs[pair]][1].add((i, j))
        symmetrise = SYMMETRISERS[method]
        return [sorted(symmetrise(onto, back)) for onto, back in directions]

    def _emissions(self, block: Block) -> tuple[Reals, Reals]:
        """[B, J, I] of both directions; an unknown word is as likely from each word, so its place decides."""
        keys = block.keys(len(self.second))
        row = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        is_known = self.keys[row] == keys
        emissions = []
        for table, words in ((self.forward, len(self.second)), (self.backward, len(self.first))):
            values = np.where(is_known, table[row], UNSEEN)
            values[keys < 0] = 1 / words
            values[keys == PADDING] = 0
            emissions.append(values)
        return emissions[0], emissions[1]

    def save(self, folder: Path) -> None:
        """Writes the model's files."""
        memory = io.BytesIO()
        arrays = {
            "keys": self.keys,
            "forward": self.forward,
            "backward": self.backward,
            "first_frequencies": self.frequencies[0],
            "second_frequencies": self.frequencies[1],
            "forward_jumps": self.jumps[0],
            "backward_jumps": self.jumps[1],
        }
        np.savez(memory, allow_pickle=False, **arrays)
        write_atomic(folder / MODEL, memory.getvalue())
        write_atomic(folder / WORDS, json.dumps([list(self.first), list(self.second)], ensure_ascii=False))


def open_chains(folder: Path) -> ChainAligner:
    """A model as save() wrote it."""
    first, second = json.loads((folder / WORDS).read_text(encoding="utf-8"))
    with np.load(folder / MODEL) as saved:
        return ChainAligner(
            {word: number for number, word in enumerate(first)},
            {word: number for number, word in enumerate(second)},
            saved["keys"],
            saved["forward"],
            saved["backward"],
            (saved["first_frequencies"], saved["second_frequencies"]),
            (saved["forward_jumps"], saved["backward_jumps"]),
        )


def train_chains(pairs: Sequence[WordPair]) -> ChainAligner:
    """Trains both directions jointly: their posteriors are multiplied, and both count the product.

    First word pairs alone (IBM model 1), then the chains. Liang, Taskar and Klein (2006), section 3.2: the product is
    the agreement of the two directions, which keeps rare words from gathering the links of others.
    """
    short_pairs = [(a, b) for a, b in pairs if 0 < len(a) <= LONGEST_TRAINED and 0 < len(b) <= LONGEST_TRAINED]
    if not short_pairs:
        raise DataError(f"None of {len(pairs):,} sampled pairs has 1 to {LONGEST_TRAINED} words on both sides: "
                        "there is nothing to train an aligner on. Check that the sources hold sentences.")  # fmt: skip
    first = _vocabulary([a for a, _ in short_pairs])
    second = _vocabulary([b for _, b in short_pairs])
    sample = _Sample(short_pairs, first, second)
    forward, backward = sample.maximise(np.ones(len(sample.keys)))
    jumps = first_jumps(), first_jumps()
    for _ in range(LEXICON_ROUNDS):
        forward, backward = sample.maximise(sample.agree_on_words(forward, backward))
    for _ in range(CHAIN_ROUNDS):
        counts, jumps = sample.agree_on_chains(forward, backward, jumps)
        forward, backward = sample.maximise(counts)
    keep = (np.maximum(forward, backward) > MIN_KEPT) & (sample.keys >= 0)
    return ChainAligner(first, second, sample.keys[keep], forward[keep], backward[keep], sample.frequencies, jumps)


class _Sample:
    """The pairs that are trained on, a cell for each two words of a pair; `keys` are the distinct pairs of words."""

    def __init__(self, pairs: Sequence[WordPair], first: dict[str, int], second: dict[str, int]) -> None:
        self.sizes = len(first), len(second)
        texts = [
            number_words([pair[which] for pair in pairs], (first, second)[which], LONGEST_TRAINED) for which in (0, 1)
        ]
        self.frequencies = _frequencies(texts[0], len(first)), _frequencies(texts[1], len(second))
        self.blocks = list(make_blocks(*texts))
        keys = np.concatenate([block.keys(self.sizes[1]).ravel() for block in self.blocks])
        self.keys, cells = np.unique(keys, return_inverse=True)
        self.cells = cells.astype(np.int32)
        self.ends = list(accumulate(int(np.prod(block.shape)) for block in self.blocks))
        self.found = np.empty(len(self.cells), np.float32)  # results of a round, a value a cell

    def maximise(self, counts: NDArray[np.float64]) -> tuple[Reals, Reals]:
        """Probabilities of each key in both directions from expected counts; 0 for padding."""
        counts = np.where(self.keys >= 0, counts, 0)
        first, second = np.maximum(self.keys, 0) // self.sizes[1], np.maximum(self.keys, 0) % self.sizes[1]
        by_first = np.bincount(first, counts, self.sizes[0])[first]
        by_second = np.bincount(second, counts, self.sizes[1])[second]
        tiny = np.finfo(np.float64).tiny
        return (
            (counts / np.maximum(by_first, tiny)).astype(np.float32),
            (counts / np.maximum(by_second, tiny)).astype(np.float32),
        )

    def agree_on_words(self, forward: Reals, backward: Reals) -> NDArray[np.float64]:
        """Expected counts of each key if words are linked by translation alone."""
        for block, cells, expected in self._each():
            onto, back = forward[cells].reshape(block.shape), backward[cells].reshape(block.shape)
            onto /= onto.sum(axis=2, keepdims=True) + np.float32(NULL / self.sizes[1])
            back /= back.sum(axis=1, keepdims=True) + np.float32(NULL / self.sizes[0])
            expected[:] = (onto * back).ravel()
        return self._tally()

    def agree_on_chains(
        self, forward: Reals, backward: Reals, jumps: tuple[NDArray[np.float64], NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Expected counts of each key if words are linked by both chains, and the jumps that each chain made."""
        made = np.zeros_like(jumps[0]), np.zeros_like(jumps[1])
        for block, cells, expected in self._each():
            onto, jumped = _forward(block, forward[cells].reshape(block.shape), self.frequencies[1], jumps[0])
            made[0][:] += jumped
            back, jumped = _backward(block, backward[cells].reshape(block.shape), self.frequencies[0], jumps[1])
            made[1][:] += jumped
            expected[:] = (onto * back).ravel()
        return self._tally(), (_smooth(made[0]), _smooth(made[1]))

    def _each(self) -> Iterator[tuple[Block, NDArray[np.int32], Reals]]:
        for block, begin, end in zip(self.blocks, [0, *self.ends], self.ends, strict=False):
            yield block, self.cells[begin:end], self.found[begin:end]

    def _tally(self) -> NDArray[np.float64]:
        total = np.zeros(len(self.keys))
        for begin in range(0, len(self.cells), TALLY):
            part = slice(begin, begin + TALLY)
            total += np.bincount(self.cells[part], self.found[part], len(self.keys))
        return total


def _vocabulary(texts: Sequence[Sequence[str]]) -> dict[str, int]:
    words: dict[str, int] = {}
    for text in texts:
        for word in text:
            words.setdefault(word, len(words))
    return words


def _frequencies(texts: Sequence[Index], words: int) -> Reals:
    """The share of each word in its side; then two more, for the numbers PADDING (-2) and UNKNOWN (-1)."""
    counts = np.bincount(np.concatenate(texts), minlength=words)
    return np.concatenate([counts / counts.sum(), [0, 1 / words]]).astype(np.float32)


def _forward(
    block: Block, emission: Reals, frequencies: Reals, jumps: NDArray[np.float64]
) -> tuple[Reals, NDArray[np.float64]]:
    """Each word of the second side comes from one of the first; [B, J, I]."""
    return posteriors(emission, frequencies[block.second], block.first != PADDING, jumps)


def _backward(
    block: Block, emission: Reals, frequencies: Reals, jumps: NDArray[np.float64]
) -> tuple[Reals, NDArray[np.float64]]:
    """Each word of the first side comes from one of the second; [B, J, I] too."""
    shares, jumped = posteriors(emission.transpose(0, 2, 1), frequencies[block.first], block.second != PADDING, jumps)
    return shares.transpose(0, 2, 1), jumped


def _smooth(jumped: NDArray[np.float64]) -> NDArray[np.float64]:
    return (jumped + 1e-3) / (jumped + 1e-3).sum()


def _best(found: Reals) -> Iterator[tuple[int, int, int]]:
    """Pair, word and the state it most probably comes from, where that is more probable than the null word."""
    states = found.argmax(axis=2)
    most = np.take_along_axis(found, states[:, :, None], 2)[:, :, 0]
    linked = most > 1 - found.sum(axis=2)
    pairs, words = np.nonzero(linked & (most > 0))
    return zip(pairs.tolist(), words.tolist(), states[pairs, words].tolist(), strict=True)
