"""The `hmm` aligner: hidden Markov chains in both directions that are trained to agree (Liang et al. 2006)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xalign_ray.data.word_alignment.blocks import PADDING, Block, Index, Reals, make_blocks, number_words
from xalign_ray.data.word_alignment.hmm import NULL, first_jumps, posteriors
from xalign_ray.data.word_alignment.links import GROW_DIAG_FINAL_AND, SYMMETRISERS, Link, WordPair
from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import write_atomic

VERSION = 1  # raise it when the same pairs would give other links
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
    methods: ClassVar[tuple[str, ...]] = tuple(SYMMETRISERS)
    default_method: ClassVar[str] = GROW_DIAG_FINAL_AND
    learns: ClassVar[bool] = True

    def identity(self) -> dict[str, Any]:
        """What its alignments depend on, besides the pairs it is trained on."""
        return {"kind": self.name, "version": VERSION}

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
    frequencies: tuple[Reals, Reals]  # of each side's words, as _frequencies gives them: what the null word says
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
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = self.keys[place] == keys
        found = []
        for table, words in ((self.forward, len(self.second)), (self.backward, len(self.first))):
            values = np.where(known, table[place], UNSEEN)
            values[keys < 0] = 1 / words
            values[keys == PADDING] = 0
            found.append(values)
        return found[0], found[1]

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
    what the two directions agree on, which keeps rare words from gathering the links of others.
    """
    kept = [(a, b) for a, b in pairs if 0 < len(a) <= LONGEST_TRAINED and 0 < len(b) <= LONGEST_TRAINED]
    if not kept:
        raise DataError(f"None of {len(pairs):,} sampled pairs has 1 to {LONGEST_TRAINED} words on both sides: "
                        "there is nothing to train an aligner on. Check that the sources hold sentences.")  # fmt: skip
    first = _vocabulary([a for a, _ in kept])
    second = _vocabulary([b for _, b in kept])
    sample = _Sample(kept, first, second)
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
        self.found = np.empty(len(self.cells), np.float32)  # what a round finds, a value a cell

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
        for block, cells, found in self._each():
            onto, back = forward[cells].reshape(block.shape), backward[cells].reshape(block.shape)
            onto /= onto.sum(axis=2, keepdims=True) + np.float32(NULL / self.sizes[1])
            back /= back.sum(axis=1, keepdims=True) + np.float32(NULL / self.sizes[0])
            found[:] = (onto * back).ravel()
        return self._tally()

    def agree_on_chains(
        self, forward: Reals, backward: Reals, jumps: tuple[NDArray[np.float64], NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Expected counts of each key if words are linked by both chains, and the jumps that each chain made."""
        made = np.zeros_like(jumps[0]), np.zeros_like(jumps[1])
        for block, cells, found in self._each():
            onto, jumped = _forward(block, forward[cells].reshape(block.shape), self.frequencies[1], jumps[0])
            made[0][:] += jumped
            back, jumped = _backward(block, backward[cells].reshape(block.shape), self.frequencies[0], jumps[1])
            made[1][:] += jumped
            found[:] = (onto * back).ravel()
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
    """The share of each word in its side; then two more, for what is numbered PADDING (-2) and UNKNOWN (-1)."""
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
    found, jumped = posteriors(emission.transpose(0, 2, 1), frequencies[block.first], block.second != PADDING, jumps)
    return found.transpose(0, 2, 1), jumped


def _smooth(jumped: NDArray[np.float64]) -> NDArray[np.float64]:
    return (jumped + 1e-3) / (jumped + 1e-3).sum()


def _best(found: Reals) -> Iterator[tuple[int, int, int]]:
    """Pair, word and the state it most probably comes from, where that is more probable than the null word."""
    states = found.argmax(axis=2)
    most = np.take_along_axis(found, states[:, :, None], 2)[:, :, 0]
    linked = most > 1 - found.sum(axis=2)
    pairs, words = np.nonzero(linked & (most > 0))
    return zip(pairs.tolist(), words.tolist(), states[pairs, words].tolist(), strict=True)
