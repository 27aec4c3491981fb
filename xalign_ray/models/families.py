"""The families of encoders by the name that a recipe gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError
from xalign_ray.models.bert import Bert
from xalign_ray.models.camembert import Camembert
from xalign_ray.models.deberta import DebertaV2
from xalign_ray.models.eurobert import EuroBert
from xalign_ray.models.family import Family
from xalign_ray.models.modernbert import ModernBert
from xalign_ray.models.roberta import Roberta
from xalign_ray.models.xlm_r import XlmR

# By the name that `model.family` gives to one from scratch.
FAMILIES: Mapping[str, Family] = {
    "bert": Bert(),
    "xlm-r": XlmR(),
    "roberta": Roberta(),
    "modernbert": ModernBert(),
    "eurobert": EuroBert(),
}
BY_MODEL_TYPE: Mapping[str, Family] = {  # those with a file here
    family.model_type: family for family in (*FAMILIES.values(), Camembert(), DebertaV2())
}
LANGUAGES_KEY = "xalign_languages"  # in an exported folder's config.json: the languages folded into its token types


def find_family(model_type: str) -> Family | None:
    """The family of a config.json's `model_type`, of a plug-in too; None if it is no stock encoder of text.

    Raises:
        ConfigError: a plug-in describes a family that has one already.
    """
    described = {(kind.__module__, kind.__qualname__): kind for kind in _kinds_of(Family, model_type)}
    if len(described) > 1:
        places = " and ".join(sorted(".".join(name) for name in described))
        raise ConfigError(f"plugins: the family {model_type} is described by {places}; only one can be used.")
    if described:
        [((module, name), kind)] = described.items()
        if lacking := sorted(kind.__abstractmethods__):
            raise ConfigError(f"plugins: {module}.{name} lacks {', '.join(lacking)}.")
        return BY_MODEL_TYPE.get(model_type) or kind()
    from xalign_ray.models.generic import generic  # transformers, which takes seconds

    return generic(model_type)


def _kinds_of(base: type[Family], model_type: str) -> Iterator[type[Family]]:
    """The classes that name a model type; a plug-in's come with its import."""
    for kind in base.__subclasses__():
        if vars(kind).get("model_type") == model_type:
            yield kind
        yield from _kinds_of(kind, model_type)


def family_of(init_from: str, values: Mapping[str, Any]) -> Family:
    """The family of an encoder to continue, by its config.json.

    Raises:
        ConfigError: transformers has no such encoder of text, or its language embeddings cannot be trained apart again.
    """
    if values.get(LANGUAGES_KEY):
        raise ConfigError(
            f"model.init_from: {init_from} has language embeddings folded into its token types, which cannot be "
            "trained apart again; continue the run's checkpoint instead."
        )
    if (family := find_family(values["model_type"])) is None:
        raise ConfigError(
            f"model.init_from: {init_from} is of the family '{values['model_type']}'; only those of "
            f"{', '.join(BY_MODEL_TYPE)} and other encoders of text that transformers itself has can be continued."
        )
    return family


def check_settings(family: Family, model: ModelConfig) -> None:
    """Refuses a recipe's `model` block that the family cannot do; ConfigError in a sentence."""
    if refusal := family.unsupported(model):
        raise ConfigError(f"model: the family {family.model_type} {refusal}.")
