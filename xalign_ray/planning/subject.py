"""What a recipe trains, as far as it is known before anything is opened: sizes of the encoder and of its losses."""

from __future__ import annotations

from dataclasses import dataclass

from xalign_ray.config.choices import MaskedLm, MomentumContrast, WordExchange
from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.start import needed_recipes
from xalign_ray.config.tokenizers import BpeTokenizer, FolderTokenizer, StartTokenizer, Tokenizer
from xalign_ray.models.backbone import check_fits
from xalign_ray.models.families import BY_MODEL_TYPE, FAMILIES, check_settings
from xalign_ray.models.family import Family, Values
from xalign_ray.models.known import encoder_values, vocabulary_size
from xalign_ray.models.sizes import Sizes, count_in


@dataclass(frozen=True)
class Subject:
    """What is trained.

    Attributes:
        values: of the encoder's config.json.
        sizes: its parameters by part.
        loss_parameters: of the losses, trained with it.
        remembered: numbers in fp32 that losses keep beside, which no gradient moves.
    """

    family: Family
    values: Values
    sizes: Sizes
    loss_parameters: int
    remembered: int

    @property
    def trained(self) -> int:
        """All parameters that the optimizer moves."""
        return self.sizes.total + self.loss_parameters


def subject_of(recipe: Recipe) -> Subject | str:
    """What a recipe trains; where that is not known before it is opened, which file must be there, in words.

    Raises:
        ConfigError: a recipe that this one continues is not there, or an encoder cannot be continued so.
    """
    chain = [one.config for one in needed_recipes(recipe)]
    config, first = chain[0], chain[-1]
    init_from, tokenizer = first.model.init_from, first.data.tokenizer
    if init_from is not None:
        values = encoder_values(init_from)
        if values is None:
            return f"the config.json of {init_from}: download it, and set model.init_from to its folder"
        family = BY_MODEL_TYPE[values["model_type"]]
        vocab_size = values["vocab_size"]
    else:
        family = FAMILIES[first.model.family]
        vocab_size = _vocabulary(tokenizer)
        if vocab_size is None:
            assert isinstance(tokenizer, FolderTokenizer)
            return f"the tokenizer.json of {tokenizer.path}: make or download it, and set data.tokenizer.path to it"
        values = family.values(first.model, vocab_size, first.data.max_seq_length, pad_id=0)
    check_settings(family, config.model)
    for one in reversed(chain):
        values = family.with_dropout(values, one.model.hidden_dropout_prob)
        if one.model.init_from is not None:
            padding = values["pad_token_id"]
            check_fits(one.model.init_from, family, values, 0, one.data.max_seq_length, padding)
    added = sum(getattr(one.data.tokenizer, "new_pieces", 0) for one in chain)
    values = {**values, "vocab_size": vocab_size + added}
    sizes = count_in(family, values, config.model, len(config.languages), config.needs_head)
    transform = family.count(values, read_by_head=values["hidden_size"]).transform
    loss_parameters, remembered = _of_losses(config, values["hidden_size"], transform, sizes)
    return Subject(family, values, sizes, loss_parameters, remembered)


def labels_at_once(config: RunConfig) -> int | None:
    """How many labels' logits exist at a time; None is all."""
    return next((one.labels_at_once for one in config.objectives if isinstance(one, MaskedLm)), None)


def _vocabulary(tokenizer: Tokenizer) -> int | None:
    if isinstance(tokenizer, BpeTokenizer):
        return tokenizer.vocab_size
    assert not isinstance(tokenizer, StartTokenizer), "the schema refuses it from scratch"
    return vocabulary_size(tokenizer.path)


def _of_losses(config: RunConfig, d: int, transform: int, sizes: Sizes) -> tuple[int, int]:
    """Parameters of the losses, and numbers that they remember between steps.

    Args:
        transform: parameters of a head's layers before its decoder.
    """
    trained = remembered = 0
    for loss in config.objectives:
        if isinstance(loss, WordExchange):
            trained += (d * d + d) + transform  # its bridge, and a transform of its own
        if isinstance(loss, MomentumContrast):
            projection = d * d + d * loss.projection
            trained += projection
            remembered += sizes.total + projection + loss.queue_size * loss.projection
    return trained, remembered
