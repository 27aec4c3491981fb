"""`--method`: what it takes by itself, and what data and encoder do not allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xalign_ray.continuing.five_lines import FiveLines, read_five_lines
from xalign_ray.continuing.methods import check_replay, choose
from xalign_ray.errors import ConfigError
from xalign_ray.models.families import BY_MODEL_TYPE
from xalign_ray.models.open import Opened


def given(there: str, **options: Any) -> tuple[FiveLines, Opened]:
    """The lines that name files of these kinds, and an encoder."""
    kinds = there.split()
    files = {kind: f"{kind}.file" for kind in kinds if kind != "head"}
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM" if "head" in kinds else "BertModel"]}
    return read_five_lines("mine", files | options), Opened("mine", Path(), "", config, BY_MODEL_TYPE["bert"])


@pytest.mark.parametrize(
    ("method", "there", "recipe", "why"),
    [
        ("auto", "pairs", "contrast", "pairs, and an encoder without a masked-LM head"),
        ("auto", "pairs head", "contrast-tlm", "pairs, and an encoder with a masked-LM head"),
        ("auto", "pairs dictionary", "contrast", "pairs, and an encoder without a masked-LM head"),
        ("auto", "dictionary text head", "align", "a dictionary without pairs"),
        ("auto", "text head", "mlm", "text alone"),
        ("contrast", "pairs head", "contrast", "as asked for"),
        ("distill", "pairs head teacher", "distill", "as asked for"),
        ("add", "pairs head", "add", "as asked for"),
        ("align", "dictionary pairs", "align-contrast", "no masked-LM head, so contrast trains beside the dictionary"),
        ("align", "dictionary pairs head", "align", "as asked for"),
        ("weam", "pairs head", "weam", "as asked for"),
        ("ppa", "pairs", "ppa-no-tlm", "the encoder has no masked-LM head, so without TLM"),
        ("ppa", "pairs head", "ppa", "as asked for"),
    ],
)
def test_recipe_of_a_method(method: str, there: str, recipe: str, why: str) -> None:
    chosen, sentence = choose(*given(there, method=method))
    assert chosen == recipe
    assert why in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("method", "there", "said"),
    [
        ("auto", "head", "There is nothing to train on: give --pairs FILE, --dictionary FILE or --text FILE."),
        (
            "auto",
            "text",
            "--method auto takes mlm of text alone, but it predicts masked words, and mine has no masked-LM",
        ),
        ("contrast", "text", "--method contrast: it needs sentence pairs: add --pairs FILE."),
        (
            "contrast-tlm",
            "pairs",
            "it predicts masked words, and mine has no masked-LM head: take --method contrast, or --set allow",
        ),
        ("distill", "teacher", "--method distill: it needs sentence pairs: add --pairs FILE."),
        ("distill", "pairs", "--method distill: it learns another encoder's sentence vectors: add --teacher FOLDER."),
        ("add", "teacher", "--method add: it needs sentence pairs: add --pairs FILE."),
        ("auto", "pairs teacher", "--teacher is for --method distill and add, and the method is auto."),
        ("align", "pairs head", "it draws the words of a dictionary together: add --dictionary FILE."),
        ("align", "dictionary head", "it needs sentences to predict words in: add --text FILE or --pairs FILE."),
        ("align", "dictionary text", "the dictionary alone would draw all words together: add --pairs FILE."),
        ("weam", "text head", "--method weam: it needs sentence pairs: add --pairs FILE."),
        (
            "weam",
            "pairs",
            "mine has no masked-LM head: take --method contrast, or --set allow=[new_head]",
        ),
        ("ppa", "text head", "--method ppa: it needs sentence pairs: add --pairs FILE."),
        ("mlm", "pairs head", "--method mlm: it needs text: add --text FILE."),
        (
            "mlm",
            "text",
            "mine has no masked-LM head: take --method contrast with --pairs FILE, or --set allow=[new_head]",
        ),
    ],
)
def test_refused_in_a_sentence(method: str, there: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        choose(*given(there, method=method))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("method", ["contrast-tlm", "weam", "mlm"])
def test_family_without_a_masked_lm_is_not_offered_a_new_head(method: str) -> None:
    def otherwise(method: str) -> tuple[FiveLines, Opened]:
        lines, encoder = given("pairs dictionary text", method=method)
        return lines, replace(encoder, config={"model_type": "deberta-v2"}, family=BY_MODEL_TYPE["deberta-v2"])

    with pytest.raises(
        ConfigError,
        match=r"mine was trained to find replaced words; .*: take --method contrast( with --pairs FILE)?\.$",
    ):
        choose(*otherwise(method))
    assert choose(*otherwise("auto"))[0] == "contrast"


@pytest.mark.parametrize(
    ("replay", "there", "recipe", "share"),
    [
        (None, "pairs text head", "contrast", 0.1),
        (None, "pairs text", "contrast", 0.0),
        (None, "pairs head", "contrast", 0.0),
        (0.0, "pairs text head", "contrast", 0.0),
        (0.3, "pairs text head", "contrast", 0.3),
        (None, "text head", "mlm", 0.0),
    ],
)
def test_replay_needs_text_and_a_head(replay: float | None, there: str, recipe: str, share: float) -> None:
    assert check_replay(*given(there, replay=replay), recipe) == share


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("pairs head", "add --text FILE"),
        ("pairs text", "--replay 0.1 is masked LM on text, and mine has no .* add sentence pairs in it"),
    ],
)
def test_replay_that_cannot_be_trained_is_refused(there: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_replay(*given(there, replay=0.1), "contrast")
