"""Checks of a recipe before a cluster starts: its keys, then the files, tokenizer and encoder that it names."""

from __future__ import annotations

from pathlib import Path

from xalign_ray.config.choices import OBJECTIVES, STREAMS
from xalign_ray.config.derive import base_recipe, derive_batch, needed_recipes, settle, with_absolute_paths
from xalign_ray.config.load import Recipe
from xalign_ray.config.plugins import find_code
from xalign_ray.config.schema import DEMO, RunConfig
from xalign_ray.config.sources import GivenTokenizer
from xalign_ray.errors import ConfigError
from xalign_ray.models.backbone import encoder_values
from xalign_ray.models.refusals import check_head, check_start
from xalign_ray.models.weight_files import has_weights
from xalign_ray.planning.subject import at_most, subject_of
from xalign_ray.sources.inputs import check_codes, check_inputs
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import RUN_OF, is_url

HIGHEST_RATE = 3e-4  # a released encoder is continued below it; 5e-5 to 1e-4 is common
SHORTEST_ROW = 64  # tokens
OF_OUR_RUNS = "xalign_recipe"  # in the config.json of our exports


def check_recipe(recipe: Recipe, warn: bool = True) -> None:
    """Checks the keys of a recipe and of the recipes that it continues, and the encoder's config; reads no data.

    Args:
        warn: print settings with which it runs, but which are seldom meant.

    Raises:
        ConfigError: a key has a value with which the recipe cannot run.
    """
    for needed in reversed(needed_recipes(recipe)):
        config = needed.config
        check_codes(config)
        if warn and (warning := values_from_scratch(config)):
            say(warning)
        if config.model.init_from and has_weights(Path(config.model.init_from)):
            check_start(config)
        check_head(config)
        for stream in config.streams:
            if stream.kind not in STREAMS:
                find_code(stream.computed_by or f"{stream.__module__}:{stream.kind}")
        if plugged := [type(loss) for loss in config.objectives if loss.kind not in OBJECTIVES]:
            from xalign_ray.objectives.combine import loss_class

            for choice in plugged:  # refuses an incomplete plug-in before a cluster starts
                loss_class(choice)
        if config.data.teacher:
            from xalign_ray.tokens.teacher import check_teacher

            check_teacher(config)
        if config.parallel.deepspeed_overrides:
            from xalign_ray.train.engine import check_overrides

            check_overrides(config)
        most = at_most(config)
        if config.train.is_counted or 0 < most.train.global_batch_size < config.parallel.workers:
            derive_batch(most)
        subject_of(needed)


def check_named_files(recipe: Recipe) -> str:
    """Opens the sources, tokenizer and encoder that a recipe and the recipes it continues name on this machine.

    Returns:
        A sentence on files that were not looked at; empty if all were.

    Raises:
        ConfigError, DataError: a file is missing, or is not what it should be.
    """
    unseen = ""
    for needed in map(with_absolute_paths, reversed(needed_recipes(recipe))):
        output, root = Path(needed.config.output), needed.config.data.root
        there = next((folder for folder in (output, *output.parents) if folder.exists()), None)
        if not is_url(needed.config.output) and there and not there.is_dir():
            raise ConfigError(f"output is {needed.config.output}, and {there} is a file; name a folder.")
        if root != DEMO and not is_url(root) and not Path(root).exists():
            unseen = f"Its data.root {root} is not there: its files were not looked for."
        else:
            check_inputs(needed.config)
        if base_recipe(needed) is None:
            check_models(settle(needed, needed.config.model.init_from).config, here_only=True)
    return unseen


def check_models(config: RunConfig, here_only: bool = False) -> None:
    """Opens the tokenizer and the encoder that a recipe is given; downloads hub models.

    Args:
        here_only: opens only those that are folders of this machine.

    Raises:
        ConfigError, DataError: one cannot be opened, or does not fit the recipe.
    """
    tokenizer, start = config.data.tokenizer, config.model.init_from
    opens_start = start is not None and (_is_here(start) or not here_only)
    if opens_start:
        check_start(config)  # before the imports that take seconds
    if isinstance(tokenizer, GivenTokenizer) and (_is_here(tokenizer.path) or not here_only):
        from xalign_ray.vocabulary.tokenizer_folder import check_mask, open_tokenizer

        check_mask(open_tokenizer(tokenizer.path), config)
    if opens_start:
        from xalign_ray.models.encoder import check_opens

        check_opens(config)


def _is_here(name: str) -> bool:
    """Whether a model's name is that of a folder, there or not; others may be hub ids, or made by `data derive`."""
    return Path(name).is_dir() or name.startswith((".", "/"))


def values_from_scratch(config: RunConfig) -> str:
    """A sentence on values that suit training from scratch, with which a released encoder is continued; or nothing."""
    start = config.model.init_from
    if start is None or start.startswith(RUN_OF) or OF_OUR_RUNS in (encoder_values(start) or {}):
        return ""
    rate, length = config.train.optimizer.learning_rate, config.data.max_seq_length
    doubtful = [
        (rate > HIGHEST_RATE and not config.train.head_first, f"train.optimizer.learning_rate={rate:g}", "2e-5"),
        (config.model.hidden_dropout_prob == 0, "model.hidden_dropout_prob=0", "null"),
        (length < SHORTEST_ROW, f"data.max_seq_length={length}", "128"),
    ]
    unusual = [f"{written} (usual: {usual})" for is_doubtful, written, usual in doubtful if is_doubtful]
    return (
        f"warning: {start} is continued with values for training from scratch: {', '.join(unusual)}." if unusual else ""
    )
