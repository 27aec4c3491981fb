"""What the tree refuses because two of its values do not go together."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from xalign_ray.config.load import load_recipe
from xalign_ray.errors import ConfigError

DICT = "[{languages: [en, de], paths: [x]}]"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["streams=[{kind: masked_pairs}]"], "stream masked_pairs needs data.parallel; the recipe names none."),
        (["streams=[{kind: code_switched_labels}]", "data.dictionaries=[]"],
         "stream code_switched_labels needs data.dictionaries; the recipe names none."),
        (["objectives=[{kind: masked_lm}, {kind: dictionary_alignment}]", "data.dictionaries=[]"],
         "objective dictionary_alignment needs data.dictionaries; the recipe names none."),
        (["streams=[{kind: masked_pairs}, {kind: code_switched_labels}]", "data.dictionaries=[]"],
         "stream masked_pairs needs data.parallel; stream code_switched_labels needs data.dictionaries; "
         "the recipe names none."),
        (["objectives=[{kind: masked_lm}, {kind: masked_lm}]"],
         "objectives name masked_lm, masked_lm: each kind may stand once."),
        (["train.precision=bf16", "parallel.zero_stage=0"],
         "train.precision bf16 with parallel.zero_stage 0 is refused: DeepSpeed then starts Adam at step 2 and decays "
         "weights once too often; use zero_stage 1."),
        (["sampling.temperature=5"],
         "'sampling': alpha and temperature say the same thing twice; keep one (alpha = 1/temperature)."),
        (["masking.mask_share=0.9", "masking.random_share=0.2"],
         "'masking': mask_share + random_share is 1.1; it must be at most 1."),
        (["model.width=97"], "'model': width 97 is not a multiple of heads 4."),
        (["model.conditioned_head=true"],
         "'model': conditioned_head needs language_embeddings: true (the two share one table)."),
        (["data.row_tokens=16", "data.slack_share=0.6"],
         "'data': slack_share 0.6 of row_tokens 16 leaves 6 tokens for text; leave at least 8."),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as told:
        load_recipe("tiny/mlm", settings)
    assert str(told.value).partition(": ")[2] == said


@pytest.mark.parametrize("setting", ["seed=-1", "seed=9223372036854775808", "data.row_tokens=7", "masking.rate=1"])
def test_values_out_of_range_are_refused(setting: str) -> None:
    key = setting.partition("=")[0]
    with pytest.raises(ConfigError, match=f"^--set: '{key}' is .*: input should be (greater|less) than"):
        load_recipe("tiny/mlm", [setting])


def test_widths_of_a_given_model_are_its_own() -> None:
    assert load_recipe("tiny/mlm", ["model.width=97", "model.init_from=x"]).config.model.init_from == "x"


def test_languages_are_in_the_order_of_first_mention() -> None:
    config = load_recipe("tiny/mlm", ["data.dictionaries=[{languages: [fi, en], paths: [x]}]"]).config
    assert config.languages == ["en", "qgr", "qdv", "qge", "qhy", "fi"]


def test_a_resolved_recipe_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_recipe("tiny/mlm").config.train.steps = 5  # type: ignore[misc]


def test_a_resolved_recipe_survives_json() -> None:
    config = load_recipe("tiny/xlm").config
    assert type(config).model_validate_json(config.model_dump_json()) == config
