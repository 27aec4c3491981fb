"""Small tokenizers of every family that users bring, trained on the spot, and lines that are hard to cut."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from xalign_ray.config.sources import BpeTokenizer
from xalign_ray.vocabulary.tokenizer import SPECIALS, train_bpe

WORDS = (
    "the", "cat", "sat", "on", "mat", "watermelon", "it's", "don't", "3.14", "U.S.A.", "e-mail", "naive", "na\xefve",
    "Stra\xdfe", "\xfcber", "gro\xdf", "na\u0303o", "\u041c\u043e\u0441\u043a\u0432\u0430", "\u0434\u043e\u043c",
    "\u0391\u03b8\u03ae\u03bd\u03b1", "\u039f\u0394\u039f\u03a3", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u05e9\u05dc\u05d5\u05dd",
    "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0915\u094d\u200d\u0937", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22",
    "\u6211\u4eec\u4eca\u5929\u53bb\u5b66\u6821", "\u65e5\u672c\u8a9e\u306e\u6587", "\ud55c\uad6d\uc5b4",
    "\U00010400\U0001f600", "--", "...", "\u2013",
)  # fmt: skip

HOSTILE = (
    "", " ", "  two  blanks  ", " leading", "trailing ", "tab\there", "a\xa0b", "a \xa0 b", "wide\u3000blank",
    "x\u2028y", "x\u2029y", "next\x85line", "zero\u200bwidth", "\u200bfirst", "last\u200b next", "word\u2060joiner",
    "bom\ufeffinside", "\ufefffirst", "bidi \u202eabc\u202c def", "mark\u200e \u200fmark", "soft\xadhyphen",
    "\xad alone \xad", "join\u200der \u200d alone", "control\x01here", "a \x02 b", "bell\x07", "\x1funit", "a\x7fb",
    "vertical\x0btab", "form\x0cfeed", "carriage\rreturn", "a \u0301b", "\u0301start", "e\u0301 e \u0301",
    "a \u0338b", "\u1100\u1161 \u1100 \u1161", "\u0d4e \u0d15", "\U000111c2 a", "\u0600 12",
    "[MASK] [CLS]the[SEP] [UNK]", "[PAD]", "a[MASK]b", "<s> </s> <mask>",
    "\u2581 \u2581the the\u2581cat \u2581\u2581", "##ing a##b", "\xa8 x", "x \xb4", "\u2017a b\u203e",
    "\ufdfa \ufdfb", "\ufb01sh \uff21\uff22\uff23", "\u0130 I \u0131 i\u0307", "\u1e9e \xdf \u017f",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f \u2764 \ufe0f",
    "\U0010fffd \ue000 \ufffd \ufffe", "\U000e0001tag", "x" * 300,
    "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa b",
    "\u0e20\u0e32\u0e29\u0e32" * 30,
    "\u6587" * 60 + " end",
    "1 2 3 " * 40,
    "a 's 't 'll", "a 's's", "'s", "don 't", "\u2019s x", "1,000 .5 5. . , ;", "\u1680ogham blank",
    "mongolian\u180evowel", "\u2003em", "a\u205fb", "http://x.y/z?a=b&c=d", "\u0e33 \u0e31", "\u0f0b\u0f51",
    "\u17d2\u1780", "\xb5 \u212b \u2126", "\u0344 \u0374 \u037e", "new york is New  York", "newyork city",
    "x newyorkx", "NEWYORK", "a\u6587b", "\u6587\u0301x", "\u6587\ufe00\u5b57", "\u6587 \u3000\u5b57\u3002\u5b57",
    "\uf900\ufa0e\U0002f800", "\u6587\u200d\u5b57", "\u6587\xa0\u5b57", "foo bar", "<blank>", "a<blank> b",
    "a <blank>b", "\u037a \u1fbd", "\ufc5e a \ufe70", "a \ufe70",
)  # fmt: skip


def hostile_lines(count: int, seed: int = 0) -> list[str]:
    """Every hostile line, then lines of ordinary words into which odd ones and odd blanks are mixed."""
    source = random.Random(seed)
    odd = [pretoken for line in HOSTILE for pretoken in line.split(" ")]
    lines = list(HOSTILE)
    while len(lines) < count:
        words = [
            source.choice(odd) if source.random() < 0.04 else source.choice(WORDS)
            for _ in range(source.randrange(1, 14))
        ]
        words = [word if source.random() < 0.7 else word + source.choice([",", ".", "!", ")", "s"]) for word in words]
        blank = source.choice(["  ", "\u00a0", "\t", "\u3000", "\u200b"]) if source.random() < 0.03 else " "
        lines.append(" ".join(words[:-1]) + blank + words[-1])
    return lines


def word_piece() -> Tokenizer:
    """BERT's: a vocabulary of characters and some words, cut by BERT's rules."""
    characters = sorted({c for word in WORDS for c in normalizers.NFD().normalize_str(word.lower())})
    pieces = [
        *SPECIALS,
        *characters,
        *(f"##{c}" for c in characters),
        *WORDS,
        "##ing",
        "##elon",
        "water",
        "stra",
        "##sse",
    ]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(list(SPECIALS))
    return made


def cased_word_piece() -> Tokenizer:
    """BERT's with case and accents kept, as mBERT."""
    made = word_piece()
    made.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    return made


def our_bpe() -> Tokenizer:
    """What a recipe trains when it names no tokenizer."""
    return train_bpe(BpeTokenizer(vocab_size=400), lambda: hostile_lines(600, 1))


def byte_bpe() -> Tokenizer:
    """GPT-2's and RoBERTa's: bytes, the blank part of the word after it, so a line's first word differs."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return _train_bpe(made, pre_tokenizers.ByteLevel.alphabet())


def prefixed_byte_bpe() -> Tokenizer:
    """RoBERTa's with a blank put before the line, and offsets that hold the blank."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, trim_offsets=False)
    return _train_bpe(made, pre_tokenizers.ByteLevel.alphabet())


def unigram() -> Tokenizer:
    """SentencePiece's Unigram as XLM-R's fast tokenizer has it: compatibility forms, blanks squeezed, Metaspace."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return _train_unigram(made)


def unigram_first() -> Tokenizer:
    """Unigram whose mark of a word is put before the first one only, as newer conversions do."""
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return _train_unigram(made)


def never_prefixed() -> Tokenizer:
    """Metaspace that puts no mark before the line: a line's first word differs."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Strip()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="first")]
    )
    return _train_unigram(made)


def with_added_tokens() -> Tokenizer:
    """Added tokens that are cut out of text before words are: some with a blank in reach, one within words."""
    made = word_piece()
    made.add_tokens([AddedToken("newyork", normalized=True), AddedToken("<blank>", lstrip=True, rstrip=True)])
    return made


def with_runs_added() -> Tokenizer:
    """Runs of blanks as tokens, as code models have them."""
    made = byte_bpe()
    made.add_tokens([AddedToken("   ", normalized=False), AddedToken("  ", normalized=False)])
    return made


def over_blanks() -> Tokenizer:
    """No pre-tokenizer: pieces run over blanks, so no line may be cut by pretokens."""
    made = Tokenizer(models.BPE(unk_token="[UNK]"))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    return _train_bpe(made, [])


LLAMA_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def llama_bpe() -> Tokenizer:
    """Llama 3's and EuroBERT's: bytes behind a rule of its own, in which a sign may lead a word."""
    made = Tokenizer(models.BPE(ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    return _train_bpe(made, pre_tokenizers.ByteLevel.alphabet())


def gemma_bpe() -> Tokenizer:
    """Gemma's and mmBERT's: blanks become a mark, no rule between words, bytes for what is unknown, many added tokens.

    Its pieces never hold a mark behind another character but for one, `>\u2581</`, as Gemma's own.
    """
    made = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    made = _train_bpe(made, ["<", "/", ">", "\u2581"])
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    state = json.loads(made.to_str())
    vocabulary, merges = state["model"]["vocab"], state["model"]["merges"]
    first = [["<", "/"], ["\u2581", "</"], [">", "\u2581</"]]
    for left, right in first:
        vocabulary.setdefault(left + right, len(vocabulary))
    state["model"]["merges"] = [*first, *(merge for merge in merges if merge not in first)]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    made = Tokenizer.from_str(json.dumps(state))
    added = ("\n", "\n\n", "\t", "\u2581\u2581", "<table>", "</td>", "[multimodal]")
    made.add_tokens([AddedToken(token, normalized=False) for token in added])
    return made


def with_pieces_of_two_words() -> Tokenizer:
    """Gemma's kind with a piece that ends in the mark of a blank: any two words may share a piece."""
    state = json.loads(gemma_bpe().to_str())
    vocabulary = state["model"]["vocab"]
    vocabulary["e\u2581"] = max(vocabulary.values()) + 100
    state["model"]["merges"].insert(0, ["e", "\u2581"])
    return Tokenizer.from_str(json.dumps(state))


def with_phrase_added() -> Tokenizer:
    """An added token of two words."""
    made = word_piece()
    made.add_tokens([AddedToken("the cat")])
    return made


def truncating() -> Tokenizer:
    """A file that was saved with truncation and padding switched on."""
    made = word_piece()
    made.enable_truncation(6)
    made.enable_padding(length=8)
    return made


def _train_bpe(made: Tokenizer, alphabet: list[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=list(SPECIALS), show_progress=False, initial_alphabet=sorted(alphabet)
    )
    made.train_from_iterator(hostile_lines(600, 1), trainer)
    return made


def _train_unigram(made: Tokenizer) -> Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=500, special_tokens=list(SPECIALS), unk_token="[UNK]", show_progress=False
    )
    made.train_from_iterator(hostile_lines(600, 1), trainer)
    return made


LOCAL: dict[str, Callable[[], Tokenizer]] = {
    make.__name__: make
    for make in (
        word_piece, cased_word_piece, our_bpe, byte_bpe, prefixed_byte_bpe, unigram, unigram_first, never_prefixed,
        with_added_tokens, with_runs_added, truncating, llama_bpe, gemma_bpe,
    )
}  # fmt: skip
NOT_LOCAL: dict[str, Callable[[], Tokenizer]] = {
    make.__name__: make for make in (over_blanks, with_phrase_added, with_pieces_of_two_words)
}
