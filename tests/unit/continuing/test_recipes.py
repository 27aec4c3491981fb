"""`continue/*`: a recipe for each method, and for each released encoder and method."""

from __future__ import annotations

from xalign_ray.config.load import list_recipes, load_recipe

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


def test_each_encoder_has_the_methods_that_fit_it() -> None:
    found = {name: load_recipe(name).config for name in list_recipes() if name.startswith("continue/")}
    expected = {
        f"continue/{family}-{method}": (encoder, found[f"continue/{recipe}"].objectives)
        for family, (encoder, has_head) in ENCODERS.items()
        for method, (with_head, without) in METHODS.items()
        if (recipe := with_head if has_head else without)
    }
    assert {name: (found[name].model.init_from, found[name].objectives) for name in expected} == expected
    methods = {f"continue/{recipe}" for pair in METHODS.values() for recipe in pair if recipe}
    taught = {f"continue/{name}" for name in ("distill", "contrast-hard", "add")}
    assert found.keys() - methods - expected.keys() == taught


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
