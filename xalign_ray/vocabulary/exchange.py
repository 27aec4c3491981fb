"""Starts an encoder's rows for another vocabulary: rows of shared pieces are copied, others made from old rows.

Formulas, and how the papers were read: docs/explanation/methods.md, Another vocabulary.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, pre_tokenizers

from xalign_ray.shards.rows import Ints
from xalign_ray.vocabulary.cached_tokenizer import BLANK_MARK
from xalign_ray.vocabulary.dictionary import look_up_form
from xalign_ray.vocabulary.tokenizer import RARE, encode_text, special_tokens, tokenize_words
from xalign_ray.vocabulary.words import find_line_words

Combine = Callable[[Mapping[int, int], Collection[int]], Mapping[int, Mapping[int, float]]]
Piece = tuple[bool, bytes]  # whether it begins a word, and its text in UTF-8
SHARED, TRANSLATED, COMBINED, PIECES, RANDOM = "copied", "from_translations", "from_similar", "from_pieces", "random"
_INNER = "##"  # of WordPiece
_TRIED = 1 << 14  # pieces that are tokenized together


@dataclass(frozen=True)
class StartRows:
    """What each row of a new vocabulary starts as: a weighted sum of old rows, as flat arrays.

    counts [V] old rows of each new one, 0 where it is drawn at random; olds [K] their ids; weights [K].
    """

    counts: Ints
    olds: Ints
    weights: NDArray[np.float32]


def read_pieces(tokenizer: Tokenizer, special: Iterable[int]) -> dict[int, Piece]:
    """What each piece stands for, whatever the tokenizer's way to write it; special pieces are left out.

    WordPiece writes `##ing` inside a word, SentencePiece and Gemma U+2581 for the blank before one, and byte-level
    tokenizers one character for each byte.
    """
    vocabulary = tokenizer.get_vocab()
    bytes_of = _byte_alphabet() if "ByteLevel" in tokenizer.to_str() else None
    is_word_piece = type(tokenizer.model).__name__ == "WordPiece"
    skip = frozenset(special)
    pieces: dict[int, Piece] = {}
    # Bytes first, then the highest numbers: of pieces that stand for the same, find_shared takes the last.
    for piece, number in sorted(vocabulary.items(), key=lambda one: (not one[0].startswith("<0x"), -one[1])):
        if number in skip:
            continue
        if bytes_of is not None and all(character in bytes_of for character in piece):
            text = bytes(bytes_of[character] for character in piece)
            pieces[number] = (text.startswith(b" "), text.lstrip(b" ") or text)
        elif is_word_piece:
            pieces[number] = (not piece.startswith(_INNER), piece.removeprefix(_INNER).encode() or piece.encode())
        elif len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            pieces[number] = (False, bytes.fromhex(piece[3:5]))
        else:
            text = piece.lstrip(BLANK_MARK)
            pieces[number] = (piece.startswith(BLANK_MARK), text.encode("utf-8", "surrogatepass") or b" ")
    return pieces


def _byte_alphabet() -> dict[str, int]:
    """The byte of each character of byte-level pieces: printable bytes are their own, the others follow U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
    assert set(pre_tokenizers.ByteLevel.alphabet()) == alphabet.keys()
    return alphabet


def find_shared(old: Mapping[int, Piece], new: Mapping[int, Piece]) -> dict[int, int]:
    """The old piece of each new one that stands for the same; of signs, which have no letters, wherever they stand."""
    numbers = {piece: number for number, piece in old.items()}
    shared: dict[int, int] = {}
    for number, (begins, text) in new.items():
        same = numbers.get((begins, text))
        if same is None and not any(map(str.isalnum, text.decode("utf-8", "replace"))):
            same = numbers.get((not begins, text))
        if same is not None:
            shared[number] = same
    return shared


def start_rows(
    old: Tokenizer,
    new: Tokenizer,
    special: Mapping[int, int | None],
    unknown: int,
    translations: Mapping[str, Sequence[str]],
    combine: Combine | None = None,
    *,
    from_pieces: bool = True,
) -> tuple[StartRows, dict[str, int]]:
    """The initial rows of a new vocabulary, and the number of each kind.

    Args:
        special: the old id of each new special piece, by their purpose; None where there is none.
        unknown: id of the old unknown piece; -1 if there is none.
        translations: the trained pairs of the dictionary, by `look_up_form`; empty to use none.
        combine: weights of old pieces for new ones that are not shared, of those that it has any for.
        from_pieces: start other rows as the mean of the old pieces of their text; else they are drawn.
    """
    same_rows = {number: same for number, same in special.items() if same is not None}
    ours = read_pieces(new, special)
    shared = find_shared(read_pieces(old, same_rows.values()), ours)
    sources: dict[int, Mapping[int, float]] = {number: {same: 1.0} for number, same in (same_rows | shared).items()}
    counts = {SHARED: len(sources)}
    texts = {
        number: (begins, text.decode("utf-8").strip())
        for number, (begins, text) in ours.items()
        if number not in sources and _is_text(text)
    }
    translated = {
        number: translations.get(look_up_form(text), ()) for number, (begins, text) in texts.items() if begins
    }
    pieces = _pieces_of(
        old, {word for some in translated.values() for word in some} | {text for _, text in texts.values()}
    )
    for number, some in translated.items():
        single = sorted({pieces[word][0] for word in some if len(pieces[word]) == 1} - {unknown})
        if single and (len(pieces[texts[number][1]]) != 1 or unknown in pieces[texts[number][1]]):
            sources[number] = _mean(single)
    counts[TRANSLATED] = len(sources) - sum(counts.values())
    if combine is not None:
        sources = {**combine(shared, texts.keys() - sources.keys()), **sources}
    counts[COMBINED] = len(sources) - sum(counts.values())
    for number, (_, text) in texts.items() if from_pieces else ():
        olds = [piece for piece in pieces[text] if piece != unknown]
        if number not in sources and olds:
            sources[number] = _mean(olds)
    counts[PIECES] = len(sources) - sum(counts.values())
    size = 1 + max(new.get_vocab().values())
    counts[RANDOM] = size - len(sources)
    rows = [sources.get(number, {}) for number in range(size)]
    return (
        StartRows(
            np.asarray([len(row) for row in rows], np.int32),
            np.asarray([old for row in rows for old in row], np.int32),
            np.asarray([weight for row in rows for weight in row.values()], np.float32),
        ),
        counts,
    )


def _mean(olds: Sequence[int]) -> dict[int, float]:
    weights: dict[int, float] = {}
    for old in olds:
        weights[old] = weights.get(old, 0.0) + 1 / len(olds)
    return weights


def _is_text(piece: bytes) -> bool:
    try:
        return bool(piece.decode("utf-8").strip())
    except UnicodeDecodeError:
        return False


def _pieces_of(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[str, list[int]]:
    ordered = sorted(texts)
    pieces: dict[str, list[int]] = {}
    for begin in range(0, len(ordered), _TRIED):
        some = ordered[begin : begin + _TRIED]
        pieces |= zip(some, tokenize_words(tokenizer, some), strict=True)
    return pieces


def fertility(tokenizer: Tokenizer, lines: Sequence[str]) -> tuple[float, float]:
    """Pieces of lines for each of their words, which are more than punctuation, and the share of unknown pieces."""
    words = find_line_words([unicodedata.normalize("NFC", line) for line in lines])
    *texts, of_rare = encode_text(tokenizer, [*lines, RARE])[0]
    pieces = np.asarray([*chain(*texts)], np.int64)
    unknown = np.isin(pieces, [*special_tokens(tokenizer).keys() & of_rare])
    return len(pieces) / max(int(words.lettered.sum()), 1), float(unknown.mean()) if len(pieces) else 0.0


def show_fertility(by_language: Mapping[str, Sequence[float]]) -> str:
    """Such as `en 1.43, dz 6.12 (48.1 % unknown)`: pieces a word, and the share of them that is unknown."""
    return ", ".join(
        f"{language} {pieces:.2f}{f' ({100 * unknown:.1f} % unknown)' if unknown >= 0.0005 else ''}"
        for language, (pieces, unknown) in by_language.items()
    )


# Weighs shared pieces by how alike they are used to a piece that only the new vocabulary has (FOCUS).
#
# Formulas, and how the papers were read: docs/explanation/methods.md, Another vocabulary.

WINDOW = 5  # pieces to each side that count as used together
WIDTH = 300  # of a vector
_BLOCK = 512  # pieces that are compared at once

Vectors = NDArray[np.float32]


def piece_vectors(tokenizer: Tokenizer, lines: Sequence[str]) -> tuple[NDArray[np.int64], Vectors]:
    """The pieces of lines [N], ascending, and a unit vector for each [N, d] by the pieces around it.

    Positive pointwise mutual information of pieces in a window, reduced by a singular value decomposition (Levy and
    Goldberg 2014). Pieces with no such information are left out.
    """
    from scipy import sparse
    from sklearn.decomposition import TruncatedSVD

    encoded = [np.asarray(encoding.ids) for encoding in tokenizer.encode_batch(list(lines), add_special_tokens=False)]
    numbers, index = np.unique(np.concatenate([*encoded, np.zeros(0, int)]), return_inverse=True)
    if len(numbers) < 2:
        return np.zeros(0, np.int64), np.zeros((0, 1), np.float32)
    line = np.repeat(np.arange(len(encoded)), [len(ids) for ids in encoded])
    pairs = [
        (index[:-step][same], index[step:][same])
        for step in range(1, WINDOW + 1)
        for same in (line[:-step] == line[step:],)
    ]
    left, right = (np.concatenate(side) for side in zip(*pairs, strict=True))
    shape = (len(numbers), len(numbers))
    counts = sparse.coo_matrix((np.ones(len(left)), (left, right)), shape=shape).tocsr()
    counts = (counts + counts.T).tocoo()
    single = np.asarray(counts.sum(axis=1)).ravel()
    information = np.log(counts.data * counts.sum() / (single[counts.row] * single[counts.col]))
    positive = sparse.coo_matrix((np.maximum(information, 0), (counts.row, counts.col)), shape=shape).tocsr()
    reduced = TruncatedSVD(min(WIDTH, len(numbers) - 1), random_state=0).fit_transform(positive)
    lengths = np.linalg.norm(reduced, axis=1)
    has_length = lengths > 1e-6
    return numbers[has_length], (reduced[has_length] / lengths[has_length, None]).astype(np.float32)


def sparsemax(scores: NDArray[np.floating]) -> NDArray[np.floating]:
    """The nearest point of the simplex to each row [N, K]: mostly zeros (Martins and Astudillo 2016)."""
    ordered = -np.sort(-scores, axis=1)
    sums = np.cumsum(ordered, axis=1)
    rank = np.arange(1, scores.shape[1] + 1)
    support = (1 + rank * ordered > sums).sum(axis=1)
    threshold = (sums[np.arange(len(scores)), support - 1] - 1) / support
    return np.maximum(scores - threshold[:, None], 0)


def combine_similar(
    tokenizer: Tokenizer, lines: Sequence[str], shared: Mapping[int, int], wanted: Collection[int]
) -> dict[int, dict[int, float]]:
    """For each wanted piece of the lines the weights of old pieces: sparsemax of its cosines with shared ones.

    Args:
        shared: the old piece of each shared new one.
    """
    numbers, vectors = piece_vectors(tokenizer, lines)
    of_shared = np.flatnonzero(np.isin(numbers, [*shared]))
    of_wanted = np.flatnonzero(np.isin(numbers, [*wanted]))
    found: dict[int, dict[int, float]] = {}
    if not len(of_shared):
        return found
    olds = np.asarray([shared[number] for number in numbers[of_shared].tolist()])
    for begin in range(0, len(of_wanted), _BLOCK):
        block = of_wanted[begin : begin + _BLOCK]
        weights = sparsemax((vectors[block] @ vectors[of_shared].T).astype(np.float64))
        for number, row in zip(numbers[block].tolist(), weights, strict=True):
            mine = found[number] = {}
            for at in np.flatnonzero(row).tolist():  # signs that a word begins with, or not, are one old piece
                mine[int(olds[at])] = mine.get(int(olds[at]), 0.0) + float(row[at])
    return found
