"""Trains a byte-pair vocabulary, splits text into words and pieces, and writes the frame of special tokens."""

from __future__ import annotations

import json
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.shards.rows import Index, Ints, run_index
from xalign_ray.vocabulary.dictionary import look_up_form
from xalign_ray.vocabulary.words import BLANKS, WORD, find_line_words

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALPHABET_SHARE = 0.5  # at most so much of a trained vocabulary is single characters; rarer ones become [UNK]
LONGEST_WORD = 16  # pieces; a longer word is masked piece by piece. In a row of 128 tokens 19 are predicted
_WORD_BEFORE = "a"
RARE = "\U00016800"  # a letter that no vocabulary has


@dataclass(frozen=True)
class TokenizedLines:
    """Lines split into words and pieces, as flat arrays.

    pieces [T] piece ids; word_length [W] pieces of each word; forms: the form of each word for look-ups, empty where
    it has none; joined: of each word that shares a piece with punctuation, which its form leaves out, its forms with
    the punctuation behind it, on both sides, and before it; lettered [W] whether it counts as a word: not punctuation,
    nor a later piece of a word that was split;
    line_end [W] where each word ends in its line (in NFC), in characters; blank_word [W] the number, in its line, of
    the word between blanks that each word begins in; line_words [N] words of each line, blank_words [N] its words
    between blanks.
    """

    pieces: Ints
    word_length: Ints
    forms: list[str]
    joined: Mapping[int, tuple[str, str, str]]
    lettered: NDArray[np.bool_]
    line_end: Index
    blank_word: Ints
    line_words: Ints
    blank_words: Ints


def train_bpe(settings: BpeTokenizer, lines: Callable[[], Iterable[str]]) -> Tokenizer:
    """A byte-pair vocabulary over BERT's words, each led by a mark, so that a word has the same pieces everywhere.

    BPE, because training it is deterministic where training WordPiece is not, as long as the alphabet is limited by us
    and not by the trainer (tokenizers 0.23: ties at its limit fall as the hash order does). `lines` is read twice.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.BertNormalizer(lowercase=settings.lowercase, strip_accents=False)]
    )
    words = pre_tokenizers.Sequence(
        [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Metaspace(prepend_scheme="always", split=False)]
    )
    tokenizer.pre_tokenizer = words
    normalize = tokenizer.normalizer.normalize_str
    characters = Counter(character for line in lines() for character in normalize(line) if not character.isspace())
    most = int(settings.vocab_size * ALPHABET_SHARE)
    alphabet = sorted(characters, key=lambda c: (-characters[c], c))[:most]
    drop = {ord(character): " " for character in characters.keys() - set(alphabet)}
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        special_tokens=list(SPECIALS),
        show_progress=False,
        initial_alphabet=sorted(alphabet),
    )
    tokenizer.train_from_iterator((normalize(line).translate(drop) for line in lines()), trainer)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always", split=False)
    ids = {name: tokenizer.token_to_id(name) for name in SPECIALS}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return tokenizer


def encode_text(backend: Tokenizer, texts: Sequence[str]) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """Piece ids of each text, and where in it each piece stands; no special tokens, also where a text spells one out.

    Vocabularies of SentencePiece's kind hold `</s>` or `<mask>` as an ordinary piece with the id of the special token.
    A text that spells one is tokenized again, with a blank behind the token's first character.
    """
    backend.encode_special_tokens = True
    backend.no_truncation()
    backend.no_padding()
    encodings = backend.encode_batch(texts, add_special_tokens=False)
    ids, offsets = [encoding.ids for encoding in encodings], [encoding.offsets for encoding in encodings]
    special = special_tokens(backend)
    for number in (number for number, pieces in enumerate(ids) if not special.keys().isdisjoint(pieces)):
        text = texts[number]
        cuts = []
        for piece, (begin, end) in zip(ids[number], offsets[number], strict=True):
            if token := special.get(piece):
                begin_of_token = text.find(
                    token, begin, end + 1
                )  # 1 more: offsets behind a dropped first character lack it
                if begin_of_token >= 0 or token in normalized(
                    backend, text[begin:end]
                ):  # else it is an unknown character
                    cuts.append(max(begin_of_token, begin) + 1)
        if not cuts:
            continue
        parts = [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]
        blanks = [cut + before for before, cut in enumerate(cuts)]
        again = backend.encode(" ".join(parts), add_special_tokens=False)
        ids[number] = again.ids
        offsets[number] = [(at - bisect_left(blanks, at), to - bisect_left(blanks, to)) for at, to in again.offsets]
    return ids, offsets


# Gemma's list of 6,415 added tokens takes 7 ms. A tokenizer that nobody else holds goes: XLM-R's takes 300 MB.
_SPECIAL: WeakKeyDictionary[Tokenizer, dict[int, str]] = WeakKeyDictionary()


def special_tokens(backend: Tokenizer) -> dict[int, str]:
    """The special tokens of a vocabulary by id."""
    if backend not in _SPECIAL:
        added = backend.get_added_tokens_decoder()
        _SPECIAL[backend] = {number: token.content for number, token in added.items() if token.special}
    return _SPECIAL[backend]


def normalized(backend: Tokenizer, text: str) -> str:
    """A text as the tokenizer's normalizer leaves it."""
    return backend.normalizer.normalize_str(text) if backend.normalizer else text


def tokenize_lines(
    backend: Tokenizer,
    lines: Sequence[str],
    longest: int = LONGEST_WORD,
    *,
    place: bool = False,
    language: str | None = "",
) -> TokenizedLines:
    """Words of each line by vocabulary/words.py; no special tokens, also where a text spells one out.

    Words that share a piece are one word, known by its text from the first letter to the last: the piece `(the` is
    the word `the`. A piece of blanks alone belongs to the word that follows it. A word of more than `longest` pieces is
    split: each piece is a word without a form to look up. A word without pieces is left out.

    Args:
        place: find out which word between blanks each word begins in; without it a line counts as one.
        language: whose rules the forms follow, see look_up_form; None where nothing is looked up: all are empty.
    """
    lines = [unicodedata.normalize("NFC", line) for line in lines]
    ids_of_lines, offsets_of_lines = encode_text(backend, lines)
    line_pieces = np.fromiter(map(len, ids_of_lines), np.int64, len(lines))
    ids = np.asarray([*chain(*ids_of_lines)], np.int32)
    offsets = np.asarray([*chain(*offsets_of_lines)], np.int64).reshape(-1, 2)
    piece_line = run_index(line_pieces)
    _drop_blanks_of_other_words(backend, ids, piece_line, offsets)
    words = find_line_words(lines)
    at = words.line_begin[piece_line]
    first_word = words.first[at + offsets[:, 0]]
    last_word = np.maximum.accumulate(np.maximum(first_word, words.last[at + offsets[:, 1]]))
    shares = np.zeros(len(ids), bool)
    shares[1:] = first_word[1:] <= last_word[:-1]
    lengths = np.diff(np.flatnonzero(np.append(~shares, True)))
    alone = np.repeat(lengths > longest, lengths)  # pieces that are words of their own
    begins = np.flatnonzero(~shares | alone)
    lengths = np.diff(np.append(begins, len(ids)))
    word_line = piece_line[begins]
    formless = alone[begins]
    untrimmed = first_word[begins], last_word[begins + lengths - 1]
    first_word, last_word, lettered = words.trim(*untrimmed)
    lettered &= ~shares[begins]  # of a word that was split, the first piece stands for it
    line_begin = np.where(formless, at[begins] + offsets[begins, 0], words.begin[first_word]) - at[begins]
    line_end = np.where(formless, at[begins] + offsets[begins, 1], words.end[last_word]) - at[begins]
    trimmed = np.flatnonzero(~formless & ((first_word != untrimmed[0]) | (last_word != untrimmed[1])))
    all_begin, all_end = words.begin[untrimmed[0]] - at[begins], words.end[untrimmed[1]] - at[begins]
    spans = list(zip(word_line.tolist(), line_begin.tolist(), line_end.tolist(), strict=True))
    if place:
        blank_word, blank_words = _find_blank_words(lines, spans)
    else:
        blank_word = np.zeros(len(begins), np.int32)
        blank_words = np.asarray([bool(line.strip()) for line in lines], np.int32)

    def form_of(line: int, begin: int, end: int) -> str:
        return "" if language is None else look_up_form(lines[line][begin:end], language)

    return TokenizedLines(
        pieces=ids,
        word_length=lengths.astype(np.int32),
        forms=[
            "" if is_formless else form_of(*span) for span, is_formless in zip(spans, formless.tolist(), strict=True)
        ],
        joined={
            number: (form_of(line, begin, right), form_of(line, left, right), form_of(line, left, end))
            for number, left, right in zip(
                trimmed.tolist(), all_begin[trimmed].tolist(), all_end[trimmed].tolist(), strict=True
            )
            for line, begin, end in (spans[number],)
        },
        lettered=lettered,
        line_end=line_end,
        blank_word=blank_word,
        line_words=np.bincount(word_line, minlength=len(lines)).astype(np.int32),
        blank_words=blank_words,
    )


def _drop_blanks_of_other_words(backend: Tokenizer, ids: Ints, piece_line: Index, offsets: Index) -> None:
    """Lets added tokens that take the blank before them begin behind the piece before them, in place.

    A blank that a normalizer puts behind a Chinese character has the offsets of that character.
    """
    begin, before, end = offsets[1:, 0], offsets[:-1, 1], offsets[1:, 1]
    at = np.flatnonzero((begin < before) & (before < end) & (piece_line[1:] == piece_line[:-1])) + 1
    if len(at):
        taking = [number for number, token in backend.get_added_tokens_decoder().items() if token.lstrip]
        at = at[np.isin(ids[at], taking)]
        offsets[at, 0] = offsets[at - 1, 1]


def tokenize_words(backend: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    """The pieces of each word as it stands inside a sentence, with the blank before it where that is part of a piece.

    A word given alone is the first of its line, and many tokenizers (of bytes, of SentencePiece's kind) split that one
    in another way; so it is tokenized behind another word, whose pieces are left out. A word that spells a special
    token is text.
    """
    begin = len(_WORD_BEFORE)
    return [
        [piece for piece, offset in zip(ids, offsets, strict=True) if offset[0] >= begin]
        for ids, offsets in zip(*encode_text(backend, [f"{_WORD_BEFORE} {word}" for word in words]), strict=True)
    ]


def tokenize_behind(backend: Tokenizer, prompt: str, word: Sequence[int]) -> list[int]:
    """The pieces of a prompt and of the word that begins a sentence behind it, cut as one text.

    Args:
        word: its pieces at the beginning of a text. One that they do not spell, such as an unknown one, keeps them.
    """
    spelled = backend.decode([*word])
    alone, together, bare = (
        backend.encode(text, add_special_tokens=False).ids for text in (spelled, prompt + spelled, prompt.rstrip())
    )
    return together if alone == [*word] else [*bare, *word]


def _find_blank_words(lines: Sequence[str], surfaces: Sequence[tuple[int, int, int]]) -> tuple[Ints, Ints]:
    """For each (line, begin, end) the word between blanks that holds its first character; how many each line has."""
    ends = [[match.end() for match in WORD.finditer(line)] for line in lines]
    found = np.zeros(len(surfaces), np.int32)
    for at, (line, begin, end) in enumerate(surfaces):
        if len(ends[line]) > 1:
            surface = lines[line][begin:end]
            first = begin + len(surface) - len(surface.lstrip(BLANKS))
            found[at] = min(bisect_right(ends[line], first), len(ends[line]) - 1)
    return found, np.fromiter(map(len, ends), np.int32, len(ends))


# Writes the special tokens around a text and a pair, as the rows of training have them, into a tokenizer.

_TRIMS = ("ByteLevel", "RobertaProcessing")  # templates that also take the blank off the offsets of a piece


def put_frame(tokenizer: Tokenizer, first: str, separator: str, between: int | None = None) -> bool:
    """Lets a tokenizer put `[CLS] text [SEP]` and `[CLS] text [SEP] text [SEP]` around texts, in place.

    Args:
        first: the token before a text.
        separator: the token behind each text.
        between: separators between the two texts of a pair; None leaves pairs unchanged where single texts are right.

    Returns:
        Whether the tokenizer did it otherwise before.
    """
    cls, sep = tokenizer.token_to_id(first), tokenizer.token_to_id(separator)
    single_is_right = frame_of(tokenizer) == [[cls], [sep]]
    if single_is_right and between is None:
        return False
    middle = between or 1
    if single_is_right and frame_of(tokenizer, pair=True) == [[cls], [sep] * middle, [sep]]:
        return False
    template = processors.TemplateProcessing(
        single=f"{first} $A {separator}",
        pair=f"{first} $A {' '.join([separator] * middle)} $B:1 {separator}:1",
        special_tokens=[(first, cls), (separator, sep)],
    )
    trimming = _trimming(tokenizer)
    tokenizer.post_processor = processors.Sequence([trimming, template]) if trimming else template  # type: ignore[list-item]
    return True


def frame_of(tokenizer: Tokenizer, pair: bool = False) -> list[list[int]]:
    """The ids that a tokenizer puts before a text and behind it; of a pair, before, between and behind.

    Switches off padding and truncation, which a file may have saved: both are for batches.
    """
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encoding = tokenizer.encode("a", "a") if pair else tokenizer.encode("a")
    texts = [number for number in encoding.sequence_ids if number is not None]
    parts: list[list[int]] = [[] for _ in range(3 if pair else 2)]
    passed = 0
    for piece, text in zip(encoding.ids, encoding.sequence_ids, strict=True):
        if text is None:
            begun = texts[:passed]
            parts[0 if not begun else 2 if pair and begun[-1] == 1 else 1].append(piece)
        else:
            passed += 1
    return parts


def _trimming(tokenizer: Tokenizer) -> processors.ByteLevel | None:
    """The part of a byte-level tokenizer's post-processor that is no template."""
    if tokenizer.post_processor is None:
        return None
    state = json.loads(tokenizer.post_processor.__getstate__())
    for part in [state, *state.get("processors", [])]:
        if part["type"] in _TRIMS:
            return processors.ByteLevel(trim_offsets=part["trim_offsets"])
    return None
