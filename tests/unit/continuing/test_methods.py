"""`--method`: what it takes by itself, and what data and encoder do not allow."""

from __future__ import annotations

import pytest

from xalign_ray.continuing.methods import Given, check_replay, choose
from xalign_ray.errors import ConfigError


def given(*there: str) -> Given:
    named = [name in there for name in ("head", "pairs", "dictionary", "text")]
    return Given("mine", *named, teacher="teacher" in there)


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
        ("align", "dictionary pairs", "align-contrast", "no masked-LM head, so contrast trains beside the dictionary"),
        ("align", "dictionary pairs head", "align", "as asked for"),
        ("weam", "pairs head", "weam", "as asked for"),
        ("ppa", "pairs", "ppa-no-tlm", "the encoder has no masked-LM head, so without TLM"),
        ("ppa", "pairs head", "ppa", "as asked for"),
    ],
)
def test_recipe_of_a_method(method: str, there: str, recipe: str, why: str) -> None:
    choice = choose(method, given(*there.split()))
    assert choice.recipe == recipe
    assert why in choice.why
    assert "\n" not in choice.why


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
            "TLM predicts masked words, and mine has no masked-LM head: take --method contrast, or --set allow",
        ),
        ("distill", "teacher", "--method distill: it needs sentence pairs: add --pairs FILE."),
        ("distill", "pairs", "--method distill: it learns another encoder's sentence vectors: add --teacher FOLDER."),
        ("auto", "pairs teacher", "--teacher is for --method distill, and the method is auto."),
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
        choose(method, given(*there.split()))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("method", ["contrast-tlm", "weam", "mlm"])
def test_family_without_a_masked_lm_is_not_offered_a_new_head(method: str) -> None:
    asked = Given("mine", False, True, True, True, "was trained otherwise")
    with pytest.raises(
        ConfigError, match=r"mine was trained otherwise: take --method contrast( with --pairs FILE)?\.$"
    ):
        choose(method, asked)
    assert choose("auto", asked).recipe == "contrast"


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
    assert check_replay(replay, given(*there.split()), recipe) == share


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("pairs head", "add --text FILE"),
        ("pairs text", "--replay 0.1 is masked LM on text, and mine has no .* add sentence pairs in it"),
    ],
)
def test_replay_that_cannot_be_trained_is_refused(there: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_replay(0.1, given(*there.split()), "contrast")
