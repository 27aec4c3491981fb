"""Windows over long contexts: where the answer is in them, which window speaks for a piece, and back to the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.models.tokenized import Features, Inputs
from xalign_ray.tasks.question_answering import Answer, Context, Question, Window, best_span, piece_contexts
from xalign_ray.tasks.registry import TUNED_TASKS

MLQA = TUNED_TASKS["mlqa"]

LETTERS = list("abcdefghij")
WORDS = [*LETTERS, "who", "un", "##do", "##ing"]


def ask(context: str, answer: str, question: str = "who", languages: tuple[str, str] = ("en", "en")) -> Question:
    answers = (Answer(answer, context.index(answer)),) if answer else ()
    return Question("q", question, context, answers, *languages)


def open_inputs(folder: Path) -> Inputs:
    return Encoder.open(open_encoder(folder)).inputs


def texts(inputs: Inputs, windows: Sequence[Features]) -> list[str]:
    return [" ".join(inputs.tokenizer.convert_ids_to_tokens(window["input_ids"])) for window in windows]


def test_a_window_holds_question_and_context_and_points_at_the_answer(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(WORDS))
    ((window,),) = MLQA.features(inputs, [ask("a b undoing d", "undoing")], ())
    assert texts(inputs, [window]) == ["[CLS] who [SEP] a b un ##do ##ing d [SEP]"]
    assert (window["window"].shift, window["start_positions"], window["end_positions"]) == (3, 5, 7)
    batch = inputs.collate([window])
    assert (batch["start_positions"].tolist(), batch["end_positions"].tolist()) == ([5], [7])
    assert batch["token_type_ids"].tolist() == [[0] * 3 + [1] * 7]


def test_windows_overlap_by_half_in_a_short_model_and_those_without_the_answer_point_at_the_first_token(
    make_bert: Callable[..., Path],
):
    inputs = open_inputs(make_bert(WORDS, positions=8))  # room for 5: a piece of question, 4 of context
    (windows,) = MLQA.features(inputs, [ask("a b c d e f g", "e f")], ())
    assert texts(inputs, windows) == [
        "[CLS] who [SEP] a b c d [SEP]", "[CLS] who [SEP] c d e f [SEP]", "[CLS] who [SEP] e f g [SEP]"
    ]  # fmt: skip
    assert [(window["start_positions"], window["end_positions"]) for window in windows] == [(0, 0), (5, 6), (3, 4)]


def test_an_answer_that_is_cut_by_a_window_is_not_in_it(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(WORDS, positions=8))
    (windows,) = MLQA.features(inputs, [ask("a b c d e f g", "b c d e f")], ())
    assert {(window["start_positions"], window["end_positions"]) for window in windows} == {(0, 0)}


def test_a_full_model_takes_384_pieces_a_stride_of_128_and_64_of_the_question(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(WORDS, positions=512))
    context = " ".join(LETTERS[number % 10] for number in range(700))
    (windows,) = MLQA.features(inputs, [ask(context, "a", " ".join(["who"] * 90))], ())
    assert [(window["window"].begin, window["window"].size) for window in windows] == [
        (0, 317),
        (128, 317),
        (256, 317),
        (384, 316),
    ]
    assert [len(window["input_ids"]) for window in windows] == [384, 384, 384, 383]
    assert windows[0]["window"].shift == 66


@pytest.mark.parametrize(("pieces", "begins"), [(4, [0]), (5, [0, 2]), (6, [0, 2]), (7, [0, 2, 4]), (0, [0])])
def test_no_window_begins_behind_one_that_reaches_the_end(
    make_bert: Callable[..., Path], pieces: int, begins: list[int]
):
    inputs = open_inputs(make_bert(WORDS, positions=8))
    (windows,) = MLQA.features(inputs, [ask(" ".join(LETTERS[:pieces]), "")], ())
    assert [window["window"].begin for window in windows] == begins


def test_each_side_has_its_language_and_an_answer_may_be_lost(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(WORDS, languages=["en", "de"]))
    ((window,),) = MLQA.features(inputs, [ask("a b", "", languages=("en", "de"))], ())
    assert window["token_type_ids"] == [0, 0, 0, 3, 3, 3]
    assert (window["start_positions"], window["end_positions"]) == (0, 0)


def test_places_are_those_of_the_text_as_it_is(make_bert: Callable[..., Path]):
    inputs = open_inputs(make_bert(["\u00e4b", "##c", "?"]))
    text = "  \u00c4Bc?\u3000\u00e4b"  # the tokenizer makes small letters
    context = piece_contexts(inputs, [text, text])[text]
    spans = zip(context.starts, context.ends, strict=True)
    assert [text[start:end] for start, end in spans] == ["\u00c4B", "c", "?", "\u00e4b"]


@pytest.mark.parametrize("strips_accents", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        "\u092a\u0924\u094d\u0924\u093f\u092f\u093e\u0902",  # Hindi, ends in an anusvara, which is a mark
        "e\u0301te\u0301",  # "ete" with accents, decomposed
        "\u0643\u062a\u0627\u0628\u064b",  # Arabic with a vowel mark
        "\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165",  # Korean in jamo, which a tokenizer composes
        "Norfolk\u200b",  # as MLQA's Spanish answers end; and other invisible characters
        "Norfolk\u200e",
        "\u200f\u0643\u062a\u0627\u0628",  # and some begin with one
        "\ufeffNorfolk",
        "Nor\u00adfolk\u00ad",
        "\u05e9\u05c1",  # Hebrew with a point
        "\u0995\u09cd\u200d",  # Bengali with a joiner
    ],
)
def test_a_piece_keeps_the_marks_that_its_tokenizer_strips_or_composes(answer: str, strips_accents: bool):
    """Offsets of uncased tokenizers end before a mark, as do those of a tokenizer that composes letters and marks."""
    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    backend.normalizer = (
        normalizers.BertNormalizer(lowercase=True, strip_accents=True) if strips_accents else normalizers.NFC()
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inputs = Inputs(PreTrainedTokenizerFast(tokenizer_object=backend), (), (), (), 32, (), 1, "uncased")
    text = f"{answer} b {answer}. {answer}"
    context = piece_contexts(inputs, [text])[text]
    pieces = [text[start:end] for start, end in zip(context.starts, context.ends, strict=True)]
    assert [piece for piece in pieces if piece not in "b."] == [answer] * 3


def test_a_mark_that_is_a_piece_of_its_own_belongs_to_no_other_piece():
    backend = Tokenizer(models.BPE({"[UNK]": 0, "e": 1, "\u0301": 2}, [], unk_token="[UNK]"))
    inputs = Inputs(PreTrainedTokenizerFast(tokenizer_object=backend), (), (), (), 32, (), 1, "cased")
    context = piece_contexts(inputs, ["e\u0301e"])["e\u0301e"]
    assert (context.starts, context.ends) == ((0, 1, 2), (1, 2, 3))


def test_white_space_that_a_tokenizer_counts_to_a_word_is_no_part_of_an_answer():
    backend = Tokenizer(models.BPE({"\u0120a": 0, "b": 1, "a": 2, "\u0120": 3}, [("\u0120", "a")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    inputs = Inputs(PreTrainedTokenizerFast(tokenizer_object=backend), (), (), (), 32, (), 1, "spaced")
    assert inputs.tokenizer("b a", return_offsets_mapping=True)["offset_mapping"] == [(0, 1), (1, 3)]
    context = piece_contexts(inputs, ["b a"])["b a"]
    assert (context.starts, context.ends) == ((0, 2), (1, 3))


def window(begin: int, size: int) -> Window:
    return Window(Context("", (), (), ()), 0, begin, size)


def logits(size: int, **places: float) -> tuple[np.ndarray, np.ndarray]:
    sides = np.zeros(size, np.float32), np.zeros(size, np.float32)
    for name, value in places.items():
        sides[name[0] == "e"][int(name[1:])] = value
    return sides


def test_the_best_pair_is_in_order_and_at_most_30_pieces():
    assert best_span([window(0, 50)], [logits(50, s5=9.0, e7=9.0, s8=10.0, e2=11.0)]) == (5, 7)
    assert best_span([window(0, 50)], [logits(50, s5=9.0, e34=1.0, e35=9.0, s35=0.5)]) == (5, 34)


def test_only_the_20_best_of_each_side_are_paired():
    firsts = np.concatenate([np.full(20, 5.0), [4.0], np.zeros(29)]).astype(np.float32)  # the first 20 are best
    lasts = np.zeros(50, np.float32)
    lasts[20:40] = 1.0  # with each of them only 30 pieces away or less
    assert best_span([window(0, 50)], [(firsts, lasts)]) == (0, 20)


def test_a_first_piece_counts_where_it_has_most_context():
    windows = [window(0, 8), window(4, 8)]
    edge = logits(8, s7=50.0)  # piece 7 of the text: the edge of the first window, inside the second
    inside = logits(8, s4=1.0, e5=1.0)
    assert best_span(windows, [edge, inside]) == (8, 9)
    assert best_span(windows, [logits(8), logits(8, s3=1.0, e4=1.0)]) == (7, 8)


def test_a_context_of_nothing_has_no_answer():
    assert best_span([window(0, 0)], [logits(0)]) is None
