"""Building an encoder from sizes or from a folder: what is kept, what is new, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.encoder import build_encoder
from xalign_ray.models.refusals import check_tokenizer

LANGUAGES = ["en", "de"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT of 60 words and 16 positions whose every weight is known to be its own."""
    torch.manual_seed(7)
    path = tmp_path_factory.mktemp("bert")
    config = BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    BertForMaskedLM(config).save_pretrained(path)
    return path


def edited(folder, tmp_path, **changes):
    """The folder's config with other values; refusals come before weights are read."""
    config = json.loads((folder / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    return str(tmp_path)


def test_new_language_embeddings_have_the_spread_of_bert():
    torch.manual_seed(0)
    model = ModelConfig(
        num_hidden_layers=1, hidden_size=256, num_attention_heads=2, intermediate_size=8, language_embeddings=True
    )
    table = build_encoder(model, 10, [str(i) for i in range(50)], 8, pad_id=0).languages
    assert table is not None
    assert table.weight.shape == (50, 256)
    assert table.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        (
            {"tie_word_embeddings": False},
            {},
            "has an output table of its own; it must be tied to the input table.",
        ),
        (
            {"xalign_languages": ["en", "de"]},
            {},
            "has language embeddings folded into its token types, which cannot be trained apart again; "
            "continue the run's checkpoint instead.",
        ),
        (
            {},
            {"vocab_size": 61},
            "has 60 word embeddings, the run's tokenizer 61 ids; "
            "set data.tokenizer to {kind: folder, path: (the same folder)}.",
        ),
    ],
    ids=["untied", "folded", "vocabulary"],
)
def test_a_folder_that_does_not_fit_is_refused_with_the_reason(folder, tmp_path, changes, arguments, said):
    path = edited(folder, tmp_path, **changes)
    fitting = {"vocab_size": 60, "languages": LANGUAGES, "max_positions": 16, "pad_id": 0}
    with pytest.raises(ConfigError) as error:
        build_encoder(ModelConfig(init_from=path), **(fitting | arguments))
    assert str(error.value) == f"model.init_from: {path} {said}"


def test_the_positions_of_xlm_r_are_those_behind_its_padding_id(folder, tmp_path):
    path = edited(folder, tmp_path, model_type="xlm-roberta", pad_token_id=1)
    with pytest.raises(
        ConfigError, match=r"has 14 positions, data\.max_seq_length is 15; lower data\.max_seq_length\.$"
    ):
        build_encoder(ModelConfig(init_from=path), 60, LANGUAGES, 15, pad_id=1)
    with pytest.raises(ConfigError, match=r"pads with id 1, the run's tokenizer with 0; set data\.tokenizer to"):
        build_encoder(ModelConfig(init_from=path), 60, LANGUAGES, 14, pad_id=0)


def test_padding_id_of_a_config_does_not_matter_where_positions_begin_at_0(folder):
    """The released multilingual-e5-small says 0, and its tokenizer pads with 1."""
    assert build_encoder(ModelConfig(init_from=str(folder)), 60, LANGUAGES, 16, pad_id=1).hf.config.pad_token_id == 0


def save_tokenizer(path, words):
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(path)
    return path


def test_a_folder_with_another_tokenizer_is_refused(tmp_path):
    theirs, ours = save_tokenizer(tmp_path / "a", ["cat", "dog"]), save_tokenizer(tmp_path / "b", ["cat", "Hund"])
    with pytest.raises(ConfigError) as error:
        check_tokenizer(str(theirs), ours)
    assert str(error.value) == (
        f"model.init_from: {theirs} was trained with another tokenizer (id 3 is 'dog' there, 'Hund' in this run); "
        f"set data.tokenizer to {{kind: folder, path: {theirs}}}."
    )


def test_ids_said_to_be_new_may_follow_the_folders_own(tmp_path):
    theirs, ours = save_tokenizer(tmp_path / "a", ["cat"]), save_tokenizer(tmp_path / "b", ["cat", "Hund"])
    check_tokenizer(str(theirs), ours, new={3})
    with pytest.raises(ConfigError, match=r"\(id 3 is None there, 'Hund' in this run\)"):
        check_tokenizer(str(theirs), ours)


def test_the_same_tokenizer_and_a_folder_without_one_pass(folder, tmp_path):
    ours = save_tokenizer(tmp_path / "a", ["cat", "dog"])
    check_tokenizer(str(save_tokenizer(tmp_path / "b", ["cat", "dog"])), ours)
    check_tokenizer(str(folder), ours)
