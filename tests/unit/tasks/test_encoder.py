"""Opening encoders and what their vectors are, against transformers called by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    CanineConfig,
    CanineModel,
    RobertaConfig,
    RobertaModel,
    WhisperConfig,
    WhisperModel,
)
from transformers.utils import logging

from tests.unit.tasks.conftest import pool
from xalign_ray.errors import DataError
from xalign_ray.models import inference
from xalign_ray.models.inference import Encoder
from xalign_ray.models.open import open_encoder
from xalign_ray.models.vectors import SentenceVectors
from xalign_ray.tasks.scores import origin_of

PIECES = ["the", "cat", "dog", "sees", "a", "un", "##do", "##ing", "."]
SENTENCES = ["the cat sees a dog .", "dog", "undoing the cat", "a dog sees the cat . the cat sees a dog ."]


def states_by_hand(folder: Path, sentence: str, token_type: int = 0) -> torch.Tensor:
    """`[layers + 1, L, D]` of one sentence alone, without padding."""
    inputs = AutoTokenizer.from_pretrained(folder)(sentence, return_tensors="pt")
    inputs["token_type_ids"] = torch.full_like(inputs["input_ids"], token_type)
    with torch.inference_mode():
        return torch.stack(AutoModel.from_pretrained(folder).eval()(**inputs, output_hidden_states=True).hidden_states)[
            :, 0
        ]


def test_batches_hold_inputs_of_like_length_with_a_mask_of_real_tokens(
    make_bert: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(inference, "BATCH_SIZE", 3)
    folder = make_bert(PIECES)
    encoder = Encoder.open(open_encoder(folder))
    features = [encoder.inputs.single(pieces, "en") for pieces in encoder.inputs.piece_texts(SENTENCES)]
    batches = list(encoder.run(features))
    assert [places for places, _, _ in batches] == [[1, 2, 0], [3]]
    assert [mask.sum(dim=1).tolist() for _, _, mask in batches] == [[3, 7, 8], [14]]
    layers = SentenceVectors(open_encoder(folder), encoder=encoder).layers(SENTENCES, "en", "mean", "cls")[1]
    for index, sentence in enumerate(SENTENCES):
        np.testing.assert_allclose(layers["cls"][:, index], states_by_hand(folder, sentence)[:, 0], atol=2e-6)
        np.testing.assert_allclose(layers["mean"][:, index], states_by_hand(folder, sentence).mean(dim=1), atol=2e-6)


def test_the_language_is_a_token_type(make_bert: Callable[..., Path]):
    folder = make_bert(PIECES, languages=["en", "de", "qgr"])
    encoder = Encoder.open(open_encoder(folder))
    vectors = pool(encoder, ["the cat"], "qgr")
    np.testing.assert_allclose(vectors[:, 0], states_by_hand(folder, "the cat", token_type=4).mean(dim=1), atol=2e-6)
    assert np.abs(vectors - pool(encoder, ["the cat"], "en")).max() > 0.01
    table = encoder.model.embeddings.token_type_embeddings.weight
    np.testing.assert_array_equal(encoder.language_vector("de"), table[2].detach())


def test_a_language_without_an_embedding_is_refused_with_the_known_ones(make_bert: Callable[..., Path]):
    folder = make_bert(PIECES, languages=["en", "de"])
    message = rf"{folder} has language embeddings for en, de, none for fr, sw; name the languages to score among"
    with pytest.raises(DataError, match=message):
        Encoder.open(open_encoder(folder)).inputs.check_languages(["sw", "de", "fr"])
    with pytest.raises(DataError, match="none for fr;"):
        pool(Encoder.open(open_encoder(folder)), ["the"], "fr")


def test_a_model_without_language_embeddings_takes_any_language_alike(make_bert: Callable[..., Path]):
    encoder = Encoder.open(open_encoder(make_bert(PIECES)))
    assert encoder.inputs.collate([encoder.inputs.single([], "sw")])["token_type_ids"].tolist() == [[0, 0]]
    np.testing.assert_array_equal(pool(encoder, ["the"], "sw"), pool(encoder, ["the"], "en"))
    assert not encoder.language_vector("sw").any()


def test_a_word_is_the_mean_of_its_pieces_rows_in_the_table(make_bert: Callable[..., Path]):
    folder = make_bert(PIECES, vectors={"un": [1, 2], "##do": [3, 6], "##ing": [2, 4], "cat": [9]})
    vectors = Encoder.open(open_encoder(folder)).word_vectors(["undoing", "cat", "zebra"])
    np.testing.assert_allclose(vectors[:, :2], [[2, 4], [9, 0], [0, 0]])
    assert not vectors[2].any()


def test_long_input_is_cut_and_still_ends_as_the_template_says(make_bert: Callable[..., Path]):
    encoder = Encoder.open(open_encoder(make_bert(PIECES, positions=6)))
    vectors = pool(encoder, ["the cat sees a dog . the cat"], "en")
    np.testing.assert_array_equal(vectors, pool(encoder, ["the cat sees a"], "en"))
    assert len(encoder.inputs.single([5, 6, 7, 8], "en")["input_ids"]) == encoder.inputs.max_length


def test_roberta_counts_positions_from_behind_its_padding_id(tmp_path: Path, make_tokenizer: Callable[..., Any]):
    tokenizer = make_tokenizer(PIECES)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=10,
        type_vocab_size=1,
        pad_token_id=1,
    )
    RobertaModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    encoder = Encoder.open(open_encoder(tmp_path))
    assert encoder.inputs.max_length == 8
    assert pool(encoder, ["cat " * 50], "en").shape == (2, 1, 16)


def test_the_origin_is_what_the_folder_says(make_bert: Callable[..., Path]):
    facts = {"xalign_recipe": "tiny/mlm", "xalign_fingerprint": "0123456789", "xalign_objective": "mlm"}
    ours = origin_of(open_encoder(make_bert(PIECES, xalign_seed=4, xalign_step=900, **facts)).config, "ours")
    assert (ours["run"], ours["objective"], ours["seed"], ours["step"]) == ("tiny-mlm-01234567", "mlm", 4, 900)
    folder = str(make_bert(PIECES, name="stranger"))
    stranger = origin_of(vars(Encoder.open(open_encoder(folder)).model.config), folder)
    assert stranger == {"run": None, "encoder": folder, "objective": None, "seed": None, "step": None}


def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(tmp_path: Path):
    with pytest.raises(DataError, match=f"{tmp_path}/export is not a folder; give an export folder or a hub id"):
        Encoder.open(open_encoder(tmp_path / "export"))


SPEECH = {
    "d_model": 8,
    **dict.fromkeys(("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads"), 1),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
}


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (
            lambda rows: WhisperModel(WhisperConfig(vocab_size=rows, **SPEECH)),  # its encoder reads sounds
            "does not encode text as an encoder does: ",
        ),
        (
            lambda _: CanineModel(
                CanineConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
            ),
            "is no encoder of text: ",
        ),
    ],
)
def test_a_model_that_is_no_encoder_of_text_is_refused(make_bert: Callable[..., Path], make: Any, answer: str):
    folder = make_bert(PIECES)
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    make(rows).save_pretrained(folder)
    with pytest.raises(DataError, match=f"{folder} {answer}"):
        Encoder.open(open_encoder(folder))


def test_a_file_in_place_of_its_folder_is_told(make_bert: Callable[..., Path]):
    folder = make_bert(PIECES)
    with pytest.raises(DataError, match=rf" It is a file; name the folder that it lies in, {folder}\.$"):
        Encoder.open(open_encoder(folder / "model.safetensors"))


def test_a_diverged_encoder_is_refused(make_bert: Callable[..., Path]):
    folder = make_bert(PIECES, vectors={"cat": [3e38, -3e38]})  # finite, but not their squares
    with pytest.raises(DataError, match=f"{folder} yields values that are not finite; its training diverged"):
        pool(Encoder.open(open_encoder(folder)), ["the cat"], "en")


def test_opening_is_silent_and_leaves_the_verbosity_alone(
    make_bert: Callable[..., Path], capfd: pytest.CaptureFixture[str]
):
    folder = make_bert(PIECES)
    level = logging.get_verbosity()
    capfd.readouterr()
    Encoder.open(open_encoder(folder))
    assert capfd.readouterr() == ("", "")
    assert logging.get_verbosity() == level
