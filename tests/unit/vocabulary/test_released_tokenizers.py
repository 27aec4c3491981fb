"""Words of released tokenizers: the same for all, ids equal to the tokenizer's own, and special tokens as they are."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.parity.wild_lines import SPELLED, wild_lines
from xalign_ray.models.tokenized import Inputs
from xalign_ray.vocabulary.cached_tokenizer import CachedTokenizer, find_pretoken_rules
from xalign_ray.vocabulary.tokenizer import LONGEST_WORD, encode_text, tokenize_behind, tokenize_lines, tokenize_words
from xalign_ray.vocabulary.tokenizer_folder import framed, open_tokenizer, vocabulary

NAMES = ("e5-small", "minilm", "gemma", "llama3")
LINES = {
    "en": "The (old) cat didn't sit: it's 35 kg, \"heavy\".",
    "de": "Der Hund l\u00e4uft \u00fcber die Stra\u00dfe \u2013 schnell!",
    "fr": "L\u2019eau d'un lac, aujourd'hui.",
    "ru": "\u041a\u043e\u0448\u043a\u0430 \u0441\u0438\u0434\u0438\u0442 (\u043d\u0430 \u043e\u043a\u043d\u0435).",
    "hi": (
        "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u0915\u094d\u092f\u093e \u0939\u0948\u0964"
    ),
    "ar": (
        "\u0630\u0647\u0628 \u0627\u0644\u0648\u0644\u062f\u060c "
        "\u0625\u0644\u0649 \u0627\u0644\u0645\u062f\u0631\u0633\u0629."
    ),
    "tr": "\u0130stanbul'da I\u015f\u0131k var m\u0131?",
    "ko": "\ub098\ub294 \ud559\uad50\uc5d0 \uac04\ub2e4.",
}  # fmt: skip
SPECIAL = {  # pad, cls, sep, mask, unknown
    "e5-small": (1, 0, 2, 250_001, 3),
    "minilm": (0, 101, 102, 103, 100),
    "gemma": (0, 2, 106, 4, 3),
    "llama3": (128_001, 128_000, 128_001, -1, -1),
}
pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def opened(released_models: Path) -> Callable[[str], Tokenizer]:
    return cache(lambda name: Tokenizer.from_file(str(released_models / name / "tokenizer.json")))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("language", LINES)
def test_words_of_letters_are_the_same_for_all(opened: Callable[[str], Tokenizer], name: str, language: str) -> None:
    kept = [tokenize_lines(opened(one), [LINES[language]], 32, language=language).forms for one in (name, "e5-small")]
    letters = [[form for form in forms if any(map(str.isalnum, form))] for forms in kept]
    assert letters[0] == letters[1]


@pytest.mark.parametrize("name", NAMES)
def test_pretokens_are_cached(opened: Callable[[str], Tokenizer], name: str) -> None:
    assert find_pretoken_rules(opened(name), LONGEST_WORD) is not None


@pytest.mark.parametrize("name", NAMES)
def test_ids_and_words_of_wild_lines_are_the_tokenizers_own(opened: Callable[[str], Tokenizer], name: str) -> None:
    backend = opened(name)
    added = [token.content for token in backend.get_added_tokens_decoder().values()]
    lines = wild_lines(3_000, 0, [*SPELLED, *added[:: max(1, len(added) // 40)]])
    found, words = CachedTokenizer(backend, {}).tokenize(lines, 0), tokenize_lines(backend, lines, language=None)
    pieces = np.concatenate(([0], np.cumsum(found.word_length)))[np.cumsum(found.line_words)]
    wanted, _ = encode_text(backend, [unicodedata.normalize("NFC", line) for line in lines])
    assert [one.tolist() for one in np.split(found.pieces, pieces[:-1])] == [*wanted]
    cut = [np.split(one.word_length, np.cumsum(one.line_words)[:-1]) for one in (found, words)]
    # Behind a first character that a tokenizer drops, its own offsets are off by one up to the line's end.
    differ = [line for line, one, two in zip(lines, *cut, strict=True) if line[:1].isprintable() and [*one] != [*two]]
    assert not differ


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text", ["a </s> b", "x<mask>y", "<mask>", "\uff1cmask\uff1e <pad><pad>", "an <unk> [MASK]", "<eos>"]
)
def test_special_token_spelled_in_text_is_text(released_models: Path, name: str, text: str) -> None:
    tokenizer = open_tokenizer(str(released_models / name))
    backend = tokenizer.backend_tokenizer
    known = vocabulary(tokenizer)
    special = {known.pad, known.cls, known.sep, known.mask, backend.token_to_id("<eos>")}
    special |= {known.unknown} if text.isascii() else set()
    inputs = Inputs(tokenizer, (), (), (), 512, (), 1, name)
    cached = CachedTokenizer(backend, {}).tokenize([text, f"{text} {text}"], 0).pieces.tolist()
    pieces = [*tokenize_lines(backend, [text]).pieces.tolist(), *cached, *tokenize_words(backend, [text])[0]]
    assert not special & {*pieces, *inputs.piece_texts([text])[0]}
    assert inputs.piece_texts([text])[0] == tokenize_lines(backend, [text]).pieces.tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("prompt", ["query: ", "search_query:", "Instruct: find it\nQuery:\n"])
def test_a_sentence_behind_a_prompt_is_cut_as_both_in_one_text(
    opened: Callable[[str], Tokenizer], name: str, prompt: str
) -> None:
    for line in (*LINES.values(), "\u4e2d\u6587\u5206\u8bcd", "\u00abOui\u00bb", "\u0e44\u0e17\u0e22"):
        found = tokenize_lines(opened(name), [line])
        first, rest = found.pieces[: found.word_length[0]].tolist(), found.pieces[found.word_length[0] :].tolist()
        wanted = opened(name).encode(prompt + unicodedata.normalize("NFC", line), add_special_tokens=False).ids
        assert [*tokenize_behind(opened(name), prompt, first), *rest] == wanted, line


@pytest.mark.parametrize("name", NAMES)
def test_folders_are_taken_as_they_are(released_models: Path, name: str) -> None:
    """transformers may open a file of Gemma's as a class that builds the tokenizer anew: its ids are the file's."""
    tokenizer = framed(open_tokenizer(str(released_models / name)))
    special = vocabulary(tokenizer)
    assert (special.pad, special.cls, special.sep, special.mask, special.unknown) == SPECIAL[name]
    raw = Tokenizer.from_file(str(released_models / name / "tokenizer.json"))
    raw.no_padding()
    raw.no_truncation()
    for line in (unicodedata.normalize("NFC", one) for one in LINES.values()):
        wanted = raw.encode(line, add_special_tokens=False).ids
        assert tokenizer(line)["input_ids"] == [special.cls, *wanted, special.sep]
