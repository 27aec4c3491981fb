"""New whole words of a tokenizer: found, cut as one, and the old pieces that each starts from."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from tests.parity.tokenizer_zoo import LOCAL
from xalign_ray.vocabulary.new_pieces import choose_rows, extend_tokenizer
from xalign_ray.vocabulary.tokenizer import tokenize_lines

UNKNOWN = 1
INU = "\u72ac"  # dog, in a script that the old vocabulary lacks
OLD = {"dog": [10], "hound": [11], "hot dog": [20, 10], "hund": [30, 31], "katze": [32, UNKNOWN], INU: [UNKNOWN]}
DICTIONARY = {"hund": ["hound", "dog"], "wurst": ["hot dog"], INU: ["dog", INU]}


def rows(word: str) -> list[int]:
    return choose_rows({40: word}, lambda text: OLD.get(text, [33, 34, 35]), DICTIONARY, UNKNOWN)[40]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("hund", [10, 11]),  # both translations are pieces of the old vocabulary
        (INU, [10]),  # one is; the word itself would be unknown
        ("wurst", [33, 34, 35]),  # its translation takes several pieces: its own parts
        ("katze", [32]),  # not in the dictionary, and partly unknown
        ("vogel", [33, 34, 35]),
    ],
)
def test_rows_come_from_the_dictionary_first(word: str, expected: list[int]) -> None:
    assert rows(word) == expected


def test_a_piece_of_which_nothing_is_known_starts_as_the_unknown_piece() -> None:
    assert choose_rows({40: INU}, lambda _: [UNKNOWN], {}, UNKNOWN) == {40: [UNKNOWN]}


def test_every_new_piece_has_rows_of_its_own() -> None:
    found = choose_rows({40: "hund", 41: "vogel"}, lambda text: OLD.get(text, [33]), DICTIONARY, UNKNOWN)
    assert found == {40: [10, 11], 41: [33]}


LINES = ["a mat, Katze!", "hund sat on the HUND", "Katze hund 3.14 hund2 x-hund", "the vogel", "Katze"]


@pytest.fixture(params=["our_bpe", "word_piece", "cased_word_piece", "byte_bpe", "prefixed_byte_bpe", "unigram"])
def old(request: pytest.FixtureRequest) -> Tokenizer:
    return LOCAL[request.param]()


def pieces(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def test_the_commonest_words_of_several_pieces_become_one_piece_and_one_word(old: Tokenizer) -> None:
    before = old.get_vocab_size()
    lowers = old.normalizer is not None and old.normalizer.normalize_str("HUND") == "hund"
    made, new = extend_tokenizer(old, LINES, 2, {}, UNKNOWN)
    words = ["katze", "hund"] if lowers else ["Katze", "hund"]
    # Three of each where case does not count, else "hund" stands twice.
    assert sorted(new) == [before, before + 1]
    assert {made.id_to_token(number) for number in new} == set(words)
    encoding = made.encode("the Katze sat on hund", add_special_tokens=False)
    places = [at for at, number in enumerate(encoding.ids) if number in new]
    assert len(places) == 2
    assert all(encoding.word_ids.count(encoding.word_ids[at]) == 1 for at in places)
    assert tokenize_lines(made, ["the Katze sat on hund"]).forms == ["the", "katze", "sat", "on", "hund"]
    assert old.get_vocab_size() == before, "the old tokenizer stays as it is"


def test_other_text_is_cut_as_before_and_longer_words_too(old: Tokenizer) -> None:
    made, _ = extend_tokenizer(old, LINES, 2, {}, UNKNOWN)
    for text in ("the cat sat on a mat", "hunde sat", "xhund", "3.14 the"):
        assert pieces(made, text) == pieces(old, text)


def test_rows_are_the_old_pieces_of_the_translation_or_of_the_word(old: Tokenizer) -> None:
    made, new = extend_tokenizer(old, LINES, 2, {"hund": ["mat"]}, UNKNOWN)
    mat = pieces(old, " mat")
    assert len(mat) == 1, "a word of the old vocabulary"
    assert new[made.token_to_id("hund")] == mat
    katze = next(word for word in ("katze", "Katze") if made.token_to_id(word) is not None)
    parts = [piece for piece in pieces(old, f" {katze}") if piece != UNKNOWN]
    assert new[made.token_to_id(katze)] == (parts or [UNKNOWN])


def test_an_extended_tokenizer_is_the_same_each_time_and_survives_its_file(old: Tokenizer) -> None:
    made, new = extend_tokenizer(old, LINES, 3, {}, UNKNOWN)
    again, same = extend_tokenizer(old, list(LINES), 3, {}, UNKNOWN)
    assert (made.to_str(), new) == (again.to_str(), same)
    opened = Tokenizer.from_str(made.to_str())
    assert pieces(opened, "Katze, hund vogel") == pieces(made, "Katze, hund vogel")


@pytest.mark.parametrize("prepended", ["", "\u2581"])
def test_a_word_that_is_spelt_as_a_piece_keeps_the_row_of_that_piece(prepended: str) -> None:
    names = ["[UNK]", "a", "s", "u", "n", f"{prepended}sun"]
    made = Tokenizer(models.Unigram([(name, -9.0 if "sun" in name else -1.0) for name in names], 0))
    made.normalizer, made.pre_tokenizer = normalizers.Prepend(prepended), pre_tokenizers.WhitespaceSplit()
    made, new = extend_tokenizer(made, ["sun sun nun"], 2, {}, UNKNOWN)
    assert [made.id_to_token(number) for number in new] == [f"{prepended}nun"]
    assert [*new] == [len(names)]


def test_words_that_are_one_piece_already_and_numbers_are_not_added() -> None:
    made, new = extend_tokenizer(LOCAL["word_piece"](), ["the mat the mat 3.14 2020 2020 hund"], 9, {}, UNKNOWN)
    assert [made.id_to_token(number) for number in new] == ["hund"]
