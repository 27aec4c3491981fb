"""Whether a run can begin from the encoder that its recipe names, and what it would change of it unseen; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xalign_ray.config.load import COMMAND_LINE, RECIPES, Recipe
from xalign_ray.config.schema import RUN_OF, RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.families import family_of
from xalign_ray.models.family import Family
from xalign_ray.models.known import encoder_values
from xalign_ray.models.weight_files import weight_names

HIGHEST_RATE = 3e-4  # a released encoder is continued below it; 5e-5 to 1e-4 is common
SHORTEST_ROW = 64  # tokens
OF_OUR_RUNS = "xalign_recipe"  # in the config.json of our exports
_INSTEAD = {"train.optimizer.learning_rate": "2e-5", "model.hidden_dropout_prob": "null", "data.max_seq_length": "128"}


def check_head(config: RunConfig) -> None:
    """Refuses a masked LM over a head that would be new, as far as the names of the folder's weights say it.

    Raises:
        ConfigError: see `check_family` and `refuse_new_head`.
    """
    init_from = config.model.init_from
    values = encoder_values(init_from) if init_from else None
    if init_from is None or values is None:
        return
    check_family(config, family_of(init_from, values))
    if has_head(init_from, values) is False:
        refuse_new_head(config)


def check_family(config: RunConfig, family: Family) -> None:
    """Refuses what the family of the encoder that a recipe continues cannot do, whatever its weights.

    Raises:
        ConfigError: a masked LM, or an attention that it has not.
    """
    start = f"model.init_from: {config.model.init_from} is of the family {family.model_type}, which"
    losses = [loss.kind for loss in config.all_objectives if loss.predicts_pieces]
    if family.no_masked_lm and losses:
        raise ConfigError(
            f"{start} {family.no_masked_lm}: objective {', '.join(losses)} cannot be trained. Take losses that predict "
            "no words, such as sentence_contrast (continue/contrast)."
        )
    if family.dense_only and config.train.attention == "varlen":
        raise ConfigError(f"{start} has an attention of its own: set train.attention to auto or dense.")


def has_head(init_from: str, values: Mapping[str, Any]) -> bool | None:
    """Whether the weights of a folder include a masked-LM head, by their names; None where only opening them tells.

    Args:
        values: of its config.json.

    Raises:
        ConfigError: a file of weights is damaged, or the family cannot be continued.
    """
    try:
        names = weight_names(init_from)
    except DataError as error:
        raise ConfigError(f"model.init_from: {error}") from None
    family = family_of(init_from, values)
    if family.no_masked_lm:
        return False
    return family.has_head(names, values) if names else None


def refuse_new_head(config: RunConfig) -> None:
    """Of an encoder without a masked-LM head: refuses losses that would train one from random weights, unless allowed.

    Raises:
        ConfigError: a loss predicts pieces.
    """
    losses = [loss.kind for loss in config.all_objectives if loss.predicts_pieces]
    if not losses or "new_head" in config.allow:
        return
    raise ConfigError(
        f"model.init_from: {config.model.init_from} has no masked-LM head, and objective {', '.join(losses)} would "
        "train a new one from random weights: its gradients harm the encoder. Leave it out of `objectives`, or set "
        "allow to [new_head]."
    )


def inherited_from_scratch(recipe: Recipe) -> str:
    """A sentence on values that a released encoder is continued with, though nobody chose them for it; or nothing.

    Chosen are values of the command line, of the user's own recipe, and of the file that names the encoder.
    """
    config, start = recipe.config, recipe.config.model.init_from
    if start is None or start.startswith(RUN_OF) or OF_OUR_RUNS in (encoder_values(start) or {}):
        return ""
    rate, length = config.train.optimizer.learning_rate, config.data.max_seq_length
    doubtful = {
        "train.optimizer.learning_rate": (rate > HIGHEST_RATE, f"{rate:g} is above {HIGHEST_RATE:g}"),
        "model.hidden_dropout_prob": (config.model.hidden_dropout_prob == 0, "0 is no dropout"),
        "data.max_seq_length": (length < SHORTEST_ROW, f"{length} is below {SHORTEST_ROW} tokens"),
    }
    found = {
        key: f"{key} ({why})"
        for key, (is_doubtful, why) in doubtful.items()
        if is_doubtful and not _is_chosen(recipe.origins, key)
    }
    if not found:
        return ""
    origins = ", ".join(dict.fromkeys(_shown(recipe.origins[key]) for key in found))
    example = ", ".join(f"{key}={_INSTEAD[key]}" for key in found)
    return (
        f"warning: {start} is continued with values that {origins} has for training from scratch: "
        f"{', '.join(found.values())}. Set them in your recipe or by --set, such as {example}."
    )


def _is_chosen(origins: Mapping[str, str], key: str) -> bool:
    blocks = [key.rsplit(".", depth)[0] for depth in range(key.count(".") + 1)]  # --set may give a whole block
    if COMMAND_LINE in map(origins.get, blocks):
        return True
    origin = origins.get(key)
    return origin is None or origin == origins.get("model.init_from") or not Path(origin).is_relative_to(RECIPES)


def _shown(origin: str) -> str:
    return Path(origin).relative_to(RECIPES).with_suffix("").as_posix()
