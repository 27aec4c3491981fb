"""The aligners: the chain against brute force, and each kind on sentences whose alignment is known."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

from tests.unit.tasks.conftest import make_bert_in
from xalign_ray.align.chain_aligner import (
    BLOCK_CELLS,
    LONGEST_JUMP,
    NULL,
    PADDING,
    Chains,
    first_jumps,
    make_blocks,
    posteriors,
    train_chains,
)
from xalign_ray.align.corpus import ALIGN, SAMPLE, TRAIN, AlignTask, Job
from xalign_ray.align.encoder_aligner import PretrainedEncoder, link_pieces, similarities, softmax_links
from xalign_ray.align.kinds import (
    ALIGNERS,
    named_aligner,
)
from xalign_ray.align.links import GROW_DIAG_FINAL_AND, SYMMETRISERS, BlankSplitter, Link, WordPair
from xalign_ray.config.sources import Join, WordAlignment
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.sources.inputs import Input


def brute_force(emission: np.ndarray, null: np.ndarray, jumps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posteriors [J, I] and expected jumps by the sum over all paths of (place, comes from the null word)."""
    words, width = emission.shape
    weight = lambda a, b: jumps[np.clip(b - a, -LONGEST_JUMP, LONGEST_JUMP) + LONGEST_JUMP]  # noqa: E731
    total, found, made = 0.0, np.zeros((words, width)), np.zeros(len(jumps))
    for path in itertools.product(range(width), repeat=words):
        for nulls in itertools.product((False, True), repeat=words):
            p, place = 1.0, None
            for j, (i, none) in enumerate(zip(path, nulls, strict=True)):
                if place is None:
                    p /= width
                elif none:
                    p *= float(i == place)  # the null word stays
                else:
                    p *= weight(place, i) / sum(weight(place, k) for k in range(width))
                p *= null[j] * NULL if none else emission[j, i] * (1 - NULL)
                place = i
            total += p
            for j, (i, none) in enumerate(zip(path, nulls, strict=True)):
                found[j, i] += p * (not none)
                if j and not none:
                    made[np.clip(i - path[j - 1], -LONGEST_JUMP, LONGEST_JUMP) + LONGEST_JUMP] += p
    return found / total, made / total


def test_posteriors_and_jumps_are_those_of_all_paths_also_beside_a_longer_pair() -> None:
    source = np.random.default_rng(0)
    sizes = [(3, 2), (2, 3), (4, 3)]  # words, states
    emission = np.zeros((3, 4, 3), np.float32)
    null, states, jumps = np.zeros((3, 4), np.float32), np.zeros((3, 3), bool), first_jumps() * 3
    made = np.zeros(len(jumps))
    for n, (words, width) in enumerate(sizes):
        emission[n, :words, :width] = source.random((words, width))
        null[n, :words] = source.random(words)
        states[n, :width] = True
    found, jumped = posteriors(emission, null, states, jumps)
    for n, (words, width) in enumerate(sizes):
        expected, moves = brute_force(emission[n, :words, :width].astype(float), null[n, :words].astype(float), jumps)
        np.testing.assert_allclose(found[n, :words, :width], expected, atol=1e-5)
        made += moves
    assert (found[~(null > 0)] == 0).all()
    np.testing.assert_allclose(jumped, made, atol=1e-4)


def test_blocks_hold_each_pair_once_and_bound_their_cells() -> None:
    source = random.Random(1)
    sides = [[np.arange(source.randint(0, 90)) for _ in range(300)] for _ in range(2)]
    sides[0].append(np.arange(2000))
    sides[1].append(np.arange(2000))  # larger than a block alone
    blocks = list(make_blocks(*sides))
    full = [n for n in range(301) if len(sides[0][n]) and len(sides[1][n])]
    assert sorted(int(n) for block in blocks for n in block.pairs) == full
    for block in blocks:
        assert np.prod(block.shape) <= BLOCK_CELLS or len(block.pairs) == 1
        for row, n in enumerate(block.pairs):
            assert (block.first[row] != PADDING).sum() == len(sides[0][n])
            assert (block.second[row] != PADDING).sum() == len(sides[1][n])


def swapped_pairs(number: int) -> tuple[list[WordPair], list[list[Link]]]:
    """Sentences of known words, two of which change places in the translation."""
    source = random.Random(5)
    pairs, gold = [], []
    for _ in range(number):
        words = source.sample(range(60), source.randint(4, 9))
        order = list(range(len(words)))
        at = source.randrange(len(words) - 1)
        order[at], order[at + 1] = order[at + 1], order[at]
        pairs.append(([f"a{word}" for word in words], [f"b{words[place]}" for place in order]))
        gold.append(sorted((place, j) for j, place in enumerate(order)))
    return pairs, gold


def overlap(found: list[list[Link]], gold: list[list[Link]]) -> float:
    both = sum(len(set(a) & set(b)) for a, b in zip(found, gold, strict=True))
    return 2 * both / (sum(map(len, found)) + sum(map(len, gold)))


def test_a_trained_aligner_finds_the_words_that_changed_places(tmp_path: Path) -> None:
    pairs, gold = swapped_pairs(500)
    Chains().train(pairs, tmp_path)
    aligner = Chains().open(tmp_path)
    for method in SYMMETRISERS:
        assert overlap(aligner.align(pairs, method), gold) > 0.97


def test_odd_words_and_empty_sides_do_no_harm(tmp_path: Path) -> None:
    pairs, gold = swapped_pairs(300)
    odd = [(["|||", "a b", "\u2028"], ["|||", "a b"]), ([], ["b1"]), (["a1"], [])]
    Chains().train([*pairs, *odd], tmp_path)
    found = Chains().open(tmp_path).align([*odd, *pairs], GROW_DIAG_FINAL_AND)
    assert found[1:3] == [[], []]
    assert all(i < 3 and j < 2 for i, j in found[0])
    assert overlap(found[3:], gold) > 0.95


def test_a_saved_model_aligns_as_before_and_is_the_same_bytes_twice(tmp_path: Path) -> None:
    pairs, _ = swapped_pairs(120)
    model = train_chains(pairs)
    for name in ("one", "two"):
        Chains().train(pairs, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["model.npz", "words.json"]
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert Chains().open(tmp_path / "one").align(pairs, "union") == model.align(pairs, "union")


def test_words_that_were_not_trained_are_aligned_by_their_place() -> None:
    model = train_chains(swapped_pairs(500)[0])
    first = ["a1", "a2", "new", "a4", "a5"]
    second = ["b1", "b2", "neu", "b4", "b5"]
    assert model.align([(first, second)], "intersection") == [[(n, n) for n in range(5)]]


def test_links_of_a_pair_do_not_depend_on_the_pairs_beside_it() -> None:
    pairs, _ = swapped_pairs(200)
    model = train_chains(pairs)
    assert model.align(pairs, "union") == [model.align([pair], "union")[0] for pair in pairs]


def test_words_beyond_the_longest_that_is_aligned_have_no_links() -> None:
    model = train_chains(swapped_pairs(200)[0])
    [links] = model.align([(["a1"] * 600, ["b1"] * 600)], "union")
    assert max(max(link) for link in links) == 511


def test_a_sample_without_a_pair_that_can_be_trained_on_is_refused() -> None:
    with pytest.raises(DataError, match=r"None of 1 sampled pairs has 1 to 80 words on both sides: there is nothing"):
        train_chains([(["a"] * 81, ["b"])])


def test_softmax_links_what_both_directions_find_likely_and_argmax_what_both_find_likeliest() -> None:
    similarity = np.array([[9.0, 0, 0], [0, 5, 4], [0, 4, 5]], np.float32)
    assert link_pieces(similarity, "argmax", "intersection") == [(0, 0), (1, 1), (2, 2)]
    assert link_pieces(similarity, "softmax", "intersection") == [(0, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
    likely = np.log(np.array([[0.9980, 0.0012, 0.0008]], np.float32)).T  # awesome-align links above 0.001
    assert softmax_links(likely).ravel().tolist() == [True, True, False]
    one_sided = np.array([[9.0, 8.0], [0.0, 0.0]], np.float32)  # both columns like row 0, row 1 likes both alike
    assert link_pieces(one_sided, "argmax", "intersection") == [(0, 0)]
    assert link_pieces(one_sided, "argmax", "union") == [(0, 0), (0, 1), (1, 0)]


def test_softmax_compares_products_and_argmax_cosines() -> None:
    first = np.array([[3.0, 0], [0, 1]], np.float32)
    second = np.array([[1.0, 1], [0, 2]], np.float32)
    np.testing.assert_allclose(similarities(first, second, "softmax"), [[3, 0], [1, 2]])
    np.testing.assert_allclose(similarities(first, second, "argmax"), [[0.5**0.5, 0], [0.5**0.5, 1]])


@pytest.mark.parametrize(("name", "method"), [("hmm", GROW_DIAG_FINAL_AND), ("encoder", "intersection")])
def test_each_aligner_joins_directions_as_it_was_published(name: str, method: str) -> None:
    assert ALIGNERS[name].default_method == method
    assert set(get_args(Join)) == set(SYMMETRISERS)


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "##dish", "house", "rot", "haus"]


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """An encoder of one layer whose states are its embeddings: `red` like `rot`, `house` like `haus`."""
    tokenizer = Tokenizer(models.WordPiece({p: n for n, p in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(tmp_path / "encoder")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertModel(BertConfig(vocab_size=len(PIECES), max_position_embeddings=8, **sizes), add_pooling_layer=False)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.zero_()
        table = model.embeddings.word_embeddings.weight
        for axis, alike in enumerate((("red", "rot"), ("house", "haus"), ("##dish",))):
            for piece in alike:
                table[PIECES.index(piece), axis] = 1
    model.save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


def test_an_encoder_links_words_by_any_of_their_pieces_and_empty_sides_by_none(encoder: Path, tmp_path: Path) -> None:
    aligner = PretrainedEncoder(str(encoder), extraction="argmax").open(tmp_path)
    pairs = [(["reddish", "house"], ["haus", "rot"]), ([], ["rot"]), (["house"], ["haus"])]
    assert aligner.align(pairs, "intersection") == [[(0, 1), (1, 0)], [], [(0, 0)]]


def test_an_encoder_runs_on_a_gpu_where_there_is_one(encoder: Path, tmp_path: Path) -> None:
    for kind in (PretrainedEncoder(str(encoder)), Chains()):
        job = Job(str(tmp_path), "", BlankSplitter(), kind, WordAlignment())
        task = AlignTask(job, Input("pairs/de-en", ("en", "de"), ()), 0)
        assert [step.uses_gpu(task) for step in (SAMPLE, TRAIN, ALIGN)] == [False, False, not kind.learns]
    wanted = "cuda" if torch.cuda.is_available() else "cpu"
    assert PretrainedEncoder(str(encoder)).open(tmp_path).model.device.type == wanted


def test_words_have_the_blank_before_them_where_it_is_part_of_a_piece(encoder: Path, tmp_path: Path) -> None:
    names = ["a" if p == "##dish" else p if p.startswith("[") else f"\u2581{p}" for p in PIECES]
    vocab = {p: n for n, p in enumerate(names)}
    made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", continuing_subword_prefix=""))
    made.normalizer = normalizers.Replace(" ", "\u2581")  # as Gemma's
    PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(encoder)
    aligner = PretrainedEncoder(str(encoder), extraction="argmax").open(tmp_path)
    assert aligner.align([(["red", "house"], ["haus", "rot"])], "intersection") == [[(0, 1), (1, 0)]]


def test_words_beyond_the_encoders_longest_input_are_not_linked(encoder: Path, tmp_path: Path) -> None:
    aligner = PretrainedEncoder(str(encoder)).open(tmp_path)
    [links] = aligner.align([(["house"] * 10, ["haus"])], "union")
    assert [i for i, _ in links] == [0, 1, 2, 3, 4, 5]  # 8 places, of which two are special


def test_an_encoder_that_counts_places_behind_its_padding_has_fewer_of_them(encoder: Path, tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = XLMRobertaConfig(vocab_size=len(PIECES), max_position_embeddings=8, pad_token_id=0, **sizes)
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(encoder)
    aligner = PretrainedEncoder(str(encoder)).open(tmp_path)
    [links] = aligner.align([(["house"] * 10, ["haus"] * 10)], "union")
    assert {i for i, _ in links} <= {0, 1, 2, 3, 4}  # 8 places, of which the padding has one, and two are special


def test_an_encoder_is_known_by_its_content_and_refused_when_it_is_none(encoder: Path, tmp_path: Path) -> None:
    identity = PretrainedEncoder(str(encoder)).identity()
    moved = encoder.rename(tmp_path / "moved")
    assert PretrainedEncoder(str(moved)).identity() == identity
    with pytest.raises(ConfigError, match=r"is no encoder's folder: it has no config.json"):
        PretrainedEncoder(str(encoder)).identity()
    with pytest.raises(ConfigError, match=r"unknown extraction 'itermax'\. Known: softmax, argmax"):
        PretrainedEncoder(str(moved), extraction="itermax").identity()
    with pytest.raises(ConfigError, match=r"there is no layer 2: .*moved has layers 1 to 1"):
        PretrainedEncoder(str(moved), layer=2).open(tmp_path)


def test_an_own_export_with_language_embeddings_aligns_in_the_languages_of_the_corpus(tmp_path: Path) -> None:
    vectors = {"red": [9.0], "rot": [9.0], "house": [0.0, 9.0], "haus": [0.0, 9.0]}
    folder = make_bert_in(tmp_path / "export", list(vectors), vectors, languages=["en", "de", "fr"])
    kind = named_aligner(f"encoder:{folder}", ("en", "fr"), WordAlignment(extraction="argmax"))
    assert kind.identity() != named_aligner(f"encoder:{folder}", ("en", "de"), WordAlignment()).identity()
    aligner: Any = kind.open(tmp_path)
    assert aligner.types == [0, 4], "two token types a language"
    assert aligner.align([(["red", "house"], ["haus", "rot"])], "intersection")
    with pytest.raises(ConfigError, match=r"has language embeddings for en, de, fr, not tr; align with another"):
        named_aligner(f"encoder:{folder}", ("en", "tr"), WordAlignment()).identity()
