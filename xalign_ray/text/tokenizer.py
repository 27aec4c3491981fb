"""Trains a byte-pair vocabulary, and cuts text into words and pieces."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from xalign_ray.config.choices import BpeTokenizer

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALPHABET_SHARE = 0.5  # at most so much of a trained vocabulary is single characters; rarer ones become [UNK]
LONGEST_WORD = 8  # pieces; a longer "word" (a script without blanks) is masked piece by piece (METHODS 1.2)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a sentence: its pieces, and its form for look-ups (NFC, lower case)."""

    pieces: tuple[int, ...]
    form: str


def train_bpe(settings: BpeTokenizer, lines: Callable[[], Iterable[str]]) -> Tokenizer:
    """A byte-pair vocabulary over BERT's words, each led by a mark, so that a word is cut the same everywhere.

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
    kept = sorted(characters, key=lambda c: (-characters[c], c))[:most]
    drop = {ord(character): " " for character in characters.keys() - set(kept)}
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocab_size,
        special_tokens=list(SPECIALS),
        show_progress=False,
        initial_alphabet=sorted(kept),
    )
    tokenizer.train_from_iterator((normalize(line).translate(drop) for line in lines()), trainer)
    ids = {name: tokenizer.token_to_id(name) for name in SPECIALS}
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return tokenizer


def cut_words(backend: Tokenizer, lines: Sequence[str], longest: int = LONGEST_WORD) -> list[list[Word]]:
    """The words of each line, by the tokenizer's own word ids; no special tokens, also where a text spells one out.

    A word of more than `longest` pieces is cut into its pieces, each a word without a form to look up.
    """
    result = []
    backend.encode_special_tokens = True
    lines = [unicodedata.normalize("NFC", line) for line in lines]  # else offsets leave out a word's last accent
    for line, encoding in zip(lines, backend.encode_batch(lines, add_special_tokens=False), strict=True):
        words: list[Word] = []
        ids, offsets, numbers = encoding.ids, encoding.offsets, encoding.word_ids
        begin, count = 0, len(ids)
        while begin < count:
            end = begin + 1
            while end < count and numbers[end] == numbers[begin]:
                end += 1
            if end - begin > longest:
                words += [Word((piece,), "") for piece in ids[begin:end]]
            else:
                words.append(Word(tuple(ids[begin:end]), look_up_form(line[offsets[begin][0] : offsets[end - 1][1]])))
            begin = end
        result.append(words)
    return result


def look_up_form(word: str) -> str:
    """The form under which a word stands in the dictionary: NFC, lower case, no surrounding blanks."""
    return unicodedata.normalize("NFC", word).lower().strip()
