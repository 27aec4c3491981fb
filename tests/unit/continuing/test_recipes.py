"""`continue/FAMILY-METHOD`: generated from this table by `python -m tests.unit.continuing.test_recipes`."""

from __future__ import annotations

import pytest

from xalign_ray.config.load import RECIPES, list_recipes, load_recipe

FOLDER = RECIPES / "continue"
ENCODERS = {  # name of the family here: hub id, and whether it has a masked-LM head
    "xlm-r": ("FacebookAI/xlm-roberta-base", True),
    "mmbert": ("jhu-clsp/mmBERT-base", True),
    "modernbert": ("answerdotai/ModernBERT-base", True),
    "eurobert": ("EuroBERT/EuroBERT-210m", True),
    "e5": ("intfloat/multilingual-e5-small", False),
    "mdeberta": ("microsoft/mdeberta-v3-base", False),
}
METHODS = {  # the recipe of an encoder with a head, and of one without
    "contrast": ("contrast-tlm", "contrast"),
    "align": ("align", "align-contrast"),
    "weam": ("weam", None),
    "ppa": ("ppa", "ppa-no-tlm"),
    "mlm": ("mlm", None),
}


def family_recipes() -> dict[str, str]:
    """Name and text of each file."""
    found = {}
    for family, (encoder, has_head) in ENCODERS.items():
        for method, (with_head, without) in METHODS.items():
            if recipe := with_head if has_head else without:
                found[f"{family}-{method}"] = (
                    f"# {encoder} continued by {method}: continue/{recipe}.\n"
                    f"extends: continue/{recipe}\nmodel: {{init_from: {encoder}}}\n"
                )
    return found


@pytest.mark.parametrize(("name", "text"), family_recipes().items())
def test_file_of_a_family_is_generated_and_resolves(name: str, text: str) -> None:
    assert (FOLDER / f"{name}.yaml").read_text(encoding="utf-8") == text
    config = load_recipe(f"continue/{name}").config
    assert config.model.init_from == ENCODERS[name.rpartition("-")[0]][0]


def test_no_file_of_a_family_is_left_over() -> None:
    there = {name.removeprefix("continue/") for name in list_recipes() if name.startswith("continue/")}
    methods = {recipe for pair in METHODS.values() for recipe in pair if recipe}
    others = {"distill", "contrast-hard"}  # which need a teacher
    assert there - methods - others == family_recipes().keys()


def test_methods_share_everything_but_rows_losses_rates_and_data() -> None:
    """What a comparison of methods should hold equal."""
    base = load_recipe("continue/contrast").config
    for method in {recipe for pair in METHODS.values() for recipe in pair if recipe}:
        config = load_recipe(f"continue/{method}").config
        assert config.model == base.model
        assert config.sampling == base.sampling
        assert config.parallel == base.parallel
        assert config.model.hidden_dropout_prob is None  # the encoder's own
        assert 2e-5 <= config.train.optimizer.learning_rate <= 5e-5
        assert (config.train.schedule.warmup_steps, config.train.max_grad_norm, config.train.bf16) == (0.1, 1.0, None)


if __name__ == "__main__":
    for file, content in family_recipes().items():
        (FOLDER / f"{file}.yaml").write_text(content, encoding="utf-8")
