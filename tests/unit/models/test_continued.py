"""What is found out about an encoder to continue before anything is started: its family, its head, odd values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import BertModel, DebertaV2Config, DebertaV2Model

from tests.whole_words import write_encoder
from xalign_ray.checks import check_recipe, values_from_scratch
from xalign_ray.config.load import Recipe, load_recipe
from xalign_ray.errors import ConfigError
from xalign_ray.models.encoder import build_encoder, check_opens
from xalign_ray.models.refusals import draws_head
from xalign_ray.planning.describe import describe

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{number}" for number in range(55)]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
CONTRAST = "objectives=[{kind: sentence_contrast}]"


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A released encoder without a masked-LM head, of dropouts of its own."""
    folder = tmp_path / "encoder"
    write_encoder(folder, WORDS, **SIZES)
    BertModel.from_pretrained(folder).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.05}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def continued(encoder: Path, *settings: str) -> Recipe:
    """A user's recipe over a recipe of the package for training from scratch."""
    path = encoder.parent / "own.yaml"
    path.write_text(f"extends: tiny/sentence-contrast\nmodel: {{init_from: {encoder}}}\n")
    return load_recipe(str(path), settings)


def test_a_masked_lm_over_a_new_head_is_refused_with_the_way_out(encoder: Path) -> None:
    said = (
        rf"^model\.init_from: {encoder} has no masked-LM head, and objective masked_lm would train a new one from "
        r"random weights: its gradients harm the encoder\. Leave it out of `objectives`, train the head "
        r"first \(`train\.trainable: \[\[0, head\], \[0\.5, all\]\]`\), or set allow to \[new_head\]\.$"
    )
    for refuses in (check_recipe, lambda recipe: check_opens(recipe.config)):
        with pytest.raises(ConfigError, match=said):
            refuses(continued(encoder))
        refuses(continued(encoder, "allow=[new_head]"))
        refuses(continued(encoder, CONTRAST))
        refuses(continued(encoder, "train.trainable=[[0, head], [0.5, all]]"))


def test_masked_lm_names_a_newly_drawn_head(encoder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for harmless in (CONTRAST, "train.trainable=head"):
        check_recipe(continued(encoder, harmless))
    assert "newly drawn" not in capsys.readouterr().err
    check_recipe(continued(encoder, "allow=[new_head]"))
    assert f"warning: {encoder} is continued with a newly drawn masked-LM head" in capsys.readouterr().err
    assert draws_head(continued(encoder, "allow=[new_head]").config)


def test_a_head_that_is_there_is_not_new(encoder: Path) -> None:
    write_encoder(encoder, WORDS, **SIZES)
    check_recipe(continued(encoder))
    assert not draws_head(continued(encoder, "allow=[new_head]").config)
    check_opens(continued(encoder).config)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_mdeberta_takes_contrast_and_no_masked_lm(tmp_path: Path, name: str) -> None:
    """Also where a new head is allowed, and where its weights can only be known by opening them."""
    folder = write_deberta(tmp_path)
    if name != "model.safetensors":
        torch.save(DebertaV2Model.from_pretrained(folder).state_dict(), folder / name)
        (folder / "model.safetensors").unlink()
    said = (
        rf"^model\.init_from: {folder} is of the family deberta-v2, which was trained to find replaced words; the "
        r"masked-LM head that transformers gives it is a new one: objective masked_lm cannot be trained\. Take losses "
        r"that predict no words, such as sentence_contrast \(continue/contrast\)\.$"
    )
    for refuses in (check_recipe, lambda recipe: check_opens(recipe.config)):
        for settings in ([], ["allow=[new_head]"]):
            with pytest.raises(ConfigError, match=said):
                refuses(continued(folder, *settings))
        refuses(continued(folder, CONTRAST))


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        (
            {"conv_kernel_size": 3},
            [],
            r"has a convolution over 3 tokens \(conv_kernel_size\), which would mix",
        ),
        (
            {"embedding_size": 8},
            [],
            r"has word embeddings of width 8 and states of 16; only an encoder whose",
        ),
        ({}, ["train.attention=varlen"], r"has its own attention: set train\.attention to auto or dense\.$"),
        ({}, ["model.language_embeddings=true"], r"the family deberta-v2 has no token types to carry model\.language_"),
    ],
    ids=["convolution", "narrow table", "varlen", "language embeddings"],
)
def test_what_deberta_cannot_do_is_refused_by_the_plan(
    tmp_path: Path, changes: dict[str, int], settings: list[str], said: str
) -> None:
    folder = write_deberta(tmp_path)
    values = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(values))
    for refuses in (check_recipe, lambda recipe: check_opens(recipe.config)):
        with pytest.raises(ConfigError, match=said):
            refuses(continued(folder, CONTRAST, *settings))


def write_deberta(path: Path) -> Path:
    """A folder of mDeBERTa's kind, with a tokenizer."""
    folder = path / "encoder"
    write_encoder(folder, WORDS, **SIZES)
    distances = {"relative_attention": True, "position_buckets": 4, "pos_att_type": ["p2c", "c2p"]}
    DebertaV2Model(DebertaV2Config(vocab_size=60, **SIZES, **distances)).save_pretrained(folder)
    return folder


def test_pickled_weights_without_a_head_are_refused_once_they_are_opened(encoder: Path) -> None:
    model = BertModel.from_pretrained(encoder)
    (encoder / "model.safetensors").unlink()
    torch.save(model.state_dict(), encoder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match="has no masked-LM head"):
        check_opens(continued(encoder).config)


def test_values_for_training_from_scratch_are_warned_of_unless_the_encoder_is_ours(encoder: Path) -> None:
    assert values_from_scratch(continued(encoder).config) == (
        f"warning: {encoder} is continued with values for training from scratch: train.optimizer.learning_rate=0.001 "
        "(usual: 2e-5), model.hidden_dropout_prob=0 (usual: null), data.max_seq_length=48 (usual: 128)."
    )
    assert "learning_rate" not in values_from_scratch(continued(encoder, "train.trainable=head").config)
    usual = continued(encoder, "train.optimizer.learning_rate=3e-4", "model.hidden_dropout_prob=0.1")
    assert "learning_rate" not in values_from_scratch(usual.config)
    assert "dropout" not in values_from_scratch(usual.config)
    assert values_from_scratch(load_recipe("tiny/sentence-contrast").config) == ""
    path = encoder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"xalign_recipe": "tiny/mlm"}))
    assert values_from_scratch(continued(encoder).config) == ""


def test_the_encoders_own_dropout_is_kept_unless_the_recipe_sets_one(encoder: Path) -> None:
    def dropouts(*settings: str) -> tuple[float, float]:
        model = continued(encoder, CONTRAST, *settings).config.model
        config = build_encoder(model, 60, ["en"], 16, pad_id=0).hf.config
        return config.hidden_dropout_prob, config.attention_probs_dropout_prob

    assert dropouts("model.hidden_dropout_prob=null") == (0.2, 0.05)
    assert dropouts("model.hidden_dropout_prob=0.3") == (0.3, 0.3)
    assert dropouts("model.hidden_dropout_prob=null", "model.attention_probs_dropout_prob=0") == (0.2, 0.0)
    assert dropouts("model.hidden_dropout_prob=0.3", "model.attention_probs_dropout_prob=0") == (0.3, 0.0)
    assert dropouts() == (0.0, 0.0)  # base/tiny says so, with a warning
    plan = describe(continued(encoder, CONTRAST, "model.hidden_dropout_prob=null"))
    assert "dropout        hidden_dropout_prob 0.2, attention_probs_dropout_prob 0.05\n" in plan
    assert load_recipe("tiny/mlm", ["model={num_hidden_layers: 1}"]).config.model.hidden_dropout_prob == 0.1


def test_the_plan_shows_the_values_that_decide(encoder: Path) -> None:
    lines = describe(continued(encoder, CONTRAST, "train.optimizer.learning_rate=2e-5")).splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert shown["start"] == str(encoder)
    assert "learning rate  2e-05 at most (adamw), 30 steps of warm-up, then linear to 0" in lines
    assert shown["batch"] == "48 rows of 48 tokens = 2,304 token positions a step"
    assert shown["objectives"] == "1 sentence_contrast"
    assert shown["dropout"] == "0"
