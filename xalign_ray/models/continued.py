"""Checks of the encoder that a run continues, by its files and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from xalign_ray.config.choices import ContrastedPairs
from xalign_ray.config.load import COMMAND_LINE, RECIPES, Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import FolderTokenizer, StartTokenizer
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.backbone import encoder_values, vocabulary_size
from xalign_ray.models.families import family_of
from xalign_ray.models.family import Family
from xalign_ray.models.open import Opened, open_encoder
from xalign_ray.models.own_tokenizer import check_files, check_vocabulary
from xalign_ray.models.weight_files import WEIGHTS, WRAPPED, check_weight_files, weight_names
from xalign_ray.work.artifacts import read_json
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import RUN_OF

HIGHEST_RATE = 3e-4  # a released encoder is continued below it; 5e-5 to 1e-4 is common
SHORTEST_ROW = 64  # tokens
OF_OUR_RUNS = "xalign_recipe"  # in the config.json of our exports
_INSTEAD = {"train.optimizer.learning_rate": "2e-5", "model.hidden_dropout_prob": "null", "data.max_seq_length": "128"}


NEW_HEAD = "with a newly drawn masked-LM head"


def check_head(config: RunConfig) -> None:
    """Refuses a masked LM over a head that would be new, by the names of the folder's weights.

    Raises:
        ConfigError: see `check_family` and `refuse_new_head`.
    """
    init_from = config.model.init_from
    values = encoder_values(init_from) if init_from else None
    if init_from is None or values is None:
        return
    check_family(config, family_of(init_from, values))
    if draws_head(config):
        refuse_new_head(config)
        say(f"warning: {init_from} is continued {NEW_HEAD}: until that is trained, its gradients harm the encoder.")


def draws_head(config: RunConfig) -> bool:
    """Whether masked LM would train a head that the encoder's files lack, by the names of its weights."""
    init_from = config.model.init_from
    values = encoder_values(init_from) if init_from and not init_from.startswith(RUN_OF) else None
    predicts = any(loss.predicts_pieces for loss in config.objectives)
    if not (init_from and values and predicts and Path(init_from).is_dir()):
        return False
    try:
        return not open_encoder(init_from).has_head
    except DataError as error:
        raise ConfigError(f"model.init_from: {error}") from None


def check_family(config: RunConfig, family: Family) -> None:
    """Refuses losses and settings that the continued encoder's family cannot do, whatever its weights.

    Raises:
        ConfigError: a masked LM, or an attention that it has not.
    """
    start = f"model.init_from: {config.model.init_from} is of the family {family.model_type}, which"
    losses = [loss.kind for loss in config.objectives if loss.predicts_pieces]
    if family.no_masked_lm and losses:
        raise ConfigError(
            f"{start} {family.no_masked_lm}: objective {', '.join(losses)} cannot be trained. Take losses that predict "
            "no words, such as sentence_contrast (continue/contrast)."
        )
    if family.dense_only and config.train.attention == "varlen":
        raise ConfigError(f"{start} has its own attention: set train.attention to auto or dense.")


def refuse_new_head(config: RunConfig) -> None:
    """Of an encoder without a masked-LM head: refuses losses that would train one from random weights, unless allowed.

    Raises:
        ConfigError: a loss predicts pieces.
    """
    losses = [loss.kind for loss in config.objectives if loss.predicts_pieces]
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


# Refuses an encoder that cannot be continued by its files alone: about a second, without torch or transformers.

_WITHOUT_A_MASK = {"PreTrainedTokenizerFast", "TokenizersBackend"}  # classes that have no mask token by default


def has_weights(start: str | None) -> bool:
    """Whether an encoder is a folder with weights; a plan needs its config.json alone."""
    return start is not None and any((Path(start) / file).is_file() for file in WEIGHTS)


def check_start(config: RunConfig) -> None:
    """Refuses an encoder that cannot be opened or continued, by its files or for lack of a network.

    Raises:
        ConfigError: it is not there, not whole, of another kind, or does not fit its tokenizer; what to do.
    """
    start = config.model.init_from
    if start is None or start.startswith(RUN_OF):
        return
    values = encoder_values(start)
    try:
        check_encoder_files(open_encoder(start))
        if not Path(start).is_dir():
            return
        tokenizer = config.data.tokenizer
        own = isinstance(tokenizer, FolderTokenizer) and Path(tokenizer.path) == Path(start)
        if values and (own or isinstance(tokenizer, StartTokenizer)):
            _check_tokenizer(config, start, values["vocab_size"])
    except DataError as error:
        raise ConfigError(f"model.init_from: {error}") from None


def check_encoder_files(opened: Opened) -> None:
    """Refuses an encoder that is not whole, or more than one; of a hub model its weights are left out.

    Raises:
        DataError: with the fault and its cure.
    """
    opened.sentences.check_trained()
    if opened.commit:
        return
    check_weight_files(opened.name)
    names = weight_names(opened.name) or set()
    for prefix, why in WRAPPED.items():
        if wrapped := [name for name in names if name.startswith(prefix)]:
            raise DataError(f"{opened.name}: {len(wrapped)} names of its weights begin with '{prefix}', {why}.")


def _check_tokenizer(config: RunConfig, start: str, rows: int) -> None:
    """Refuses a tokenizer that is missing, has ids beyond the embeddings, or lacks a mask that a stream needs."""
    check_files(start, None)
    check_vocabulary(start)
    ids = vocabulary_size(start)
    if ids is not None and ids > rows:
        raise DataError(
            f"{start}: its tokenizer has {ids:,} ids, its config.json {rows:,} embeddings; they do not belong "
            "together. Put the model's own tokenizer.json next to it."
        )
    settings = [
        read_json(path, "It is the tokenizer's own; copy or download it again.")
        for name in ("tokenizer_config.json", "special_tokens_map.json")
        if (path := Path(start) / name).is_file()
    ]
    masking = [one.kind for one in config.streams if not (isinstance(one, ContrastedPairs) and one.text == "none")]
    # Where none names a class, transformers takes that of the model's type, such as BERT's: see `check_mask`.
    kinds = {kind for one in settings if (kind := one.get("tokenizer_class"))}
    if masking and not any(one.get("mask_token") for one in settings) and kinds and kinds <= _WITHOUT_A_MASK:
        raise DataError(
            f"{start} has no mask token, and stream {masking[0]} masks text. Name one of its tokens in "
            'tokenizer_config.json ("mask_token": "<mask>"), or take a stream that masks nothing (contrasted_pairs '
            "with text: none)."
        )
