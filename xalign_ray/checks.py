"""What can be known of a recipe before anything is started: by its keys alone, then by opening what it names."""

from __future__ import annotations

from pathlib import Path

from xalign_ray.config.derive import derive_batch
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import DEMO, RunConfig
from xalign_ray.config.sources import GivenTokenizer
from xalign_ray.config.start import base_recipe, needed_recipes, settle, with_absolute_paths
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import is_url


def check(recipe: Recipe) -> None:
    """Whether a recipe, and those that it continues, can be run, as far as that is known without their files.

    Raises:
        ConfigError: it cannot; in the user's words.
    """
    from xalign_ray.models.continued import check_head, check_start, has_weights, inherited_from_scratch
    from xalign_ray.planning.subject import subject_of
    from xalign_ray.sources.inputs import check_codes

    for needed in reversed(needed_recipes(recipe)):
        check_codes(needed.config)
        if warning := inherited_from_scratch(needed):
            say(warning)
        if has_weights(needed.config.model.init_from):
            check_start(needed.config)
        check_head(needed.config)
        if needed.config.data.teacher:
            from xalign_ray.tokens.teacher import check_teacher

            check_teacher(needed.config)
        if needed.config.parallel.deepspeed_overrides:
            from xalign_ray.train.engine import check_overrides

            check_overrides(needed.config)
        if needed.config.train.is_counted:
            derive_batch(needed.config)
        subject_of(needed)


def open_named(recipe: Recipe) -> str:
    """Opens what a recipe, and those that it continues, name on this machine: sources, tokenizer and encoder.

    Returns:
        What could not be looked at, in a sentence; empty if all was.

    Raises:
        ConfigError, DataError: one of them is not there, or is not what it should be.
    """
    from xalign_ray.sources.inputs import check_inputs

    unseen = ""
    for needed in map(with_absolute_paths, reversed(needed_recipes(recipe))):
        root = needed.config.data.root
        if root != DEMO and not is_url(root) and not Path(root).exists():
            unseen = f"Its data.root {root} is not there: its files were not looked for."
        else:
            check_inputs(needed.config, writes_demo=False)
        if base_recipe(needed) is None:
            open_start(settle(needed, needed.config.model.init_from).config, here_only=True)
    return unseen


def open_start(config: RunConfig, here_only: bool = False) -> None:
    """Opens the tokenizer and the encoder that a recipe is given, before a cluster is; those of the hub too."""
    from xalign_ray.models.continued import check_start

    tokenizer, start = config.data.tokenizer, config.model.init_from
    if start is not None and (_is_here(start) or not here_only):
        check_start(config)  # before the imports that take seconds
    if isinstance(tokenizer, GivenTokenizer) and (_is_here(tokenizer.path) or not here_only):
        from xalign_ray.vocabulary.tokenizer_folder import check_mask, open_tokenizer

        check_mask(open_tokenizer(tokenizer.path), config)
    if start is not None and (_is_here(start) or not here_only):
        from xalign_ray.models.encoder import check_opens

        check_opens(config)


def _is_here(name: str) -> bool:
    """Whether a model's name is that of a folder, there or not; others may be hub ids, or made by `data derive`."""
    return Path(name).is_dir() or name.startswith((".", "/"))
