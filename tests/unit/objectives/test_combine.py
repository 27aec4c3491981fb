"""Losses together: what they count, how terms without rows are cut, and that the sums add up to the whole."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from xalign_ray.config.choices import OBJECTIVES, DictionaryAlignment, MaskedLm, Objective
from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.objectives import objective
from xalign_ray.objectives.combine import EncoderWithLosses, loss_class
from xalign_ray.vocabulary.dictionary import DictionaryPairs

PAIRS = 13


def dictionary(n=PAIRS, languages=1):
    """Pair i is the words (i + 1, i + 51), as id 0 is padding; right languages go round."""
    ids = np.arange(n, dtype=np.int32)
    return DictionaryPairs(
        left=ids[:, None] + 1, right=ids[:, None] + 51, left_language=ids * 0, right_language=1 + ids % languages
    )


def encoder():
    torch.manual_seed(0)
    model = ModelConfig(
        num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=16, hidden_dropout_prob=0.0
    )
    return build_encoder(model, 100, ["en", "de", "hi"], 8, pad_id=0)


def build(*settings, pairs=None, seed=0):
    return EncoderWithLosses(encoder(), settings, pairs, seed)


def share(rows=5, seed=1):
    random = np.random.default_rng(seed)
    shape = (rows, 8)
    return {
        "input_ids": random.integers(0, 100, shape, dtype=np.int32),
        "labels": np.where(random.random(shape) < 0.3, 7, -100).astype(np.int32),
        "position_ids": np.tile(np.arange(8, dtype=np.int32), (rows, 1)),
        "segment_ids": np.zeros(shape, np.int32),
        "language_ids": np.zeros(shape, np.int32),
        "example_ids": np.ones(shape, np.int32),
    }


def tensors(batch, rows=slice(None)):
    return {key: torch.from_numpy(value[rows]) for key, value in batch.items()}


def align(objectives, part=(0, 1), step=0):
    return objectives(tensors(share(1)), part, step)["dictionary_alignment"].item()


def test_every_objective_of_the_schema_has_a_loss():
    assert set(OBJECTIVES.values()) == set(get_args(get_args(Objective)[0]))
    assert all(issubclass(loss_class(choice), objective.Objective) for choice in OBJECTIVES.values())


def test_sums_and_weights_carry_the_kinds_of_the_recipe():
    objectives = build(MaskedLm(weight=2.0), DictionaryAlignment(weight=10.0), pairs=dictionary())
    sums = objectives(tensors(share()), (0, 1), 0)
    assert list(sums) == ["masked_lm", "dictionary_alignment"]
    assert all(value.dtype == torch.float32 and value.shape == () for value in sums.values())
    assert objectives.weights == {"masked_lm": 2.0, "dictionary_alignment": 10.0}


def test_a_metric_that_no_choice_declares_is_refused_by_the_name_of_the_choice(monkeypatch):
    objectives = build(MaskedLm())
    loss = objectives.losses["masked_lm"]
    forward = loss.forward

    def logs(micro_step):
        micro_step.log("train/calm", torch.ones(2))
        return forward(micro_step)

    monkeypatch.setattr(loss, "forward", logs)
    with pytest.raises(ConfigError, match="logs train/calm: declare it, with its meaning, in `metrics` of MaskedLm"):
        objectives(tensors(share()), (0, 1), 0)


@pytest.mark.parametrize("of", [1, 2, 4, 5, 20])
def test_slices_of_the_dictionary_add_up_to_the_whole(of):
    objectives = build(DictionaryAlignment(), pairs=dictionary())
    parts = [(index, of) for index in range(of)]
    assert sum(align(objectives, part) for part in parts) == pytest.approx(align(objectives), abs=1e-5)
    assert objectives.counts(share(), parts, 0) == {"dictionary_alignment": PAIRS}


def test_a_micro_step_without_rows_or_labels_gives_zero_and_a_gradient():
    objectives = build(MaskedLm())
    nothing_asked = share() | {"labels": np.full((5, 8), -100, np.int32)}
    for batch in (tensors(share(), slice(0, 0)), tensors(nothing_asked)):
        objectives.zero_grad()
        loss = objectives(batch, (0, 1), 0)["masked_lm"]
        loss.backward()
        assert loss.item() == 0.0
        assert all(p.grad is not None and not p.grad.any() for p in objectives.parameters())


def sampled(objectives, step, part=(0, 1)):
    """The pairs that a step draws: those whose rows get a gradient."""
    objectives.zero_grad()
    objectives(tensors(share(1)), part, step)["dictionary_alignment"].backward()
    grad = objectives.encoder.hf.get_input_embeddings().weight.grad
    return set(grad[1 : PAIRS + 1].abs().sum(1).nonzero().flatten().tolist())


def test_a_sample_is_drawn_anew_each_step_and_is_the_same_for_the_same_seed():
    settings = DictionaryAlignment(pairs_per_step=4)
    objectives, again = build(settings, pairs=dictionary()), build(settings, pairs=dictionary())
    drawn = [sampled(objectives, step) for step in range(40)]
    assert drawn[:5] == [sampled(again, step) for step in range(5)]
    assert all(len(one) == 4 for one in drawn)
    assert set.union(*drawn) == set(range(PAIRS))
    assert drawn[:5] != [sampled(build(settings, pairs=dictionary(), seed=1), step) for step in range(5)]


def test_slices_of_a_sample_are_disjoint_and_cover_it():
    objectives = build(DictionaryAlignment(pairs_per_step=5), pairs=dictionary())
    slices = [sampled(objectives, 7, (index, 3)) for index in range(3)]
    assert sum(map(len, slices)) == 5
    assert set.union(*slices) == sampled(objectives, 7)
    assert objectives.counts(share(), [(0, 3), (2, 3)], 7) == {"dictionary_alignment": len(slices[0]) + len(slices[2])}


def test_a_sample_larger_than_the_dictionary_is_the_dictionary():
    objectives = build(DictionaryAlignment(pairs_per_step=99), pairs=dictionary())
    assert align(objectives, step=3) == align(build(DictionaryAlignment(), pairs=dictionary()))
    assert objectives.counts(share(), [(0, 1)], 3) == {"dictionary_alignment": PAIRS}


def test_shuffled_gives_no_pair_its_own_right_side_and_keeps_languages():
    pairs = dictionary(languages=2)
    pieces = build(DictionaryAlignment(shuffled=True), pairs=pairs).losses["dictionary_alignment"].pieces[..., 0]
    assert pieces[:, 0].tolist() == [i + 1 for i in range(PAIRS)]
    assert sorted(pieces[:, 1].tolist()) == [i + 51 for i in range(PAIRS)]
    taken = pieces[:, 1].numpy() - 51
    assert (taken != np.arange(PAIRS)).all()
    assert (pairs.right_language[taken] == pairs.right_language).all()


def test_shuffled_is_fixed_by_the_seed():
    def pieces(seed):
        built = build(DictionaryAlignment(shuffled=True), pairs=dictionary(), seed=seed)
        return built.losses["dictionary_alignment"].pieces

    assert torch.equal(pieces(0), pieces(0))
    assert not torch.equal(pieces(0), pieces(1))


@pytest.mark.parametrize("pairs", [None, dictionary(0)], ids=["no dictionary", "no entry"])
def test_alignment_without_a_pair_is_refused_with_what_to_change(pairs):
    with pytest.raises(ConfigError) as error:
        build(DictionaryAlignment(), pairs=pairs)
    assert str(error.value) == (
        "objective dictionary_alignment has no pair to train on: every entry of data.dictionaries is held out "
        "or holds a word that the tokenizer does not know. Lower data.dictionary_held_out_fraction or name a "
        "dictionary with split: train."
    )


def test_dictionary_arrays_move_with_the_model_but_are_not_in_its_state():
    objectives = build(DictionaryAlignment(), pairs=dictionary())
    assert "losses.dictionary_alignment.pieces" in dict(objectives.named_buffers())
    assert all(name.startswith("encoder.") for name in objectives.state_dict())


def test_the_word_table_of_a_half_precision_encoder_is_compared_in_fp32():
    objectives = build(DictionaryAlignment(), pairs=dictionary())
    exact = align(objectives)
    objectives.encoder.to(torch.bfloat16)
    rough = objectives(tensors(share(1)), (0, 1), 0)["dictionary_alignment"]
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact, abs=0.05)
