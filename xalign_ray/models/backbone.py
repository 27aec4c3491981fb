"""The encoder of a recipe as the values of its config.json, without torch or a download."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from xalign_ray.config.explain import suggest_path
from xalign_ray.config.schema import ModelConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.models.families import BY_MODEL_TYPE, FAMILIES, check_settings, family_of
from xalign_ray.models.family import Family, Values
from xalign_ray.models.hub import revision_of
from xalign_ray.models.open import Opened, open_encoder
from xalign_ray.work.artifacts import read_json, stamp_of
from xalign_ray.work.storage import is_folder_name

ORGANISATIONS = ("google-bert/", "FacebookAI/")  # where the hub moved models that are still found without
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_XLM_R = {
    "model_type": "xlm-roberta",
    "vocab_size": 250_002,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "pad_token_id": 1,
}
_SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536}
_BARE = {"architectures": ["Model"]}  # without a masked-LM head
# The config.json, where it differs from the family's defaults, of encoders that recipes and pages name.
ENCODERS: Mapping[str, Values] = {
    "bert-base-multilingual-cased": {"model_type": "bert", "vocab_size": 119_547},
    "bert-base-cased": {"model_type": "bert", "vocab_size": 28_996},
    "bert-base-uncased": {"model_type": "bert", "vocab_size": 30_522},
    "xlm-roberta-base": _XLM_R,
    "xlm-roberta-large": {**_XLM_R, **_LARGE},
    "roberta-base": {**_XLM_R, "model_type": "roberta", "vocab_size": 50_265},
    "roberta-large": {**_XLM_R, "model_type": "roberta", "vocab_size": 50_265, **_LARGE},
    "intfloat/multilingual-e5-small": {"model_type": "bert", "vocab_size": 250_037, **_SMALL, **_BARE},
    "intfloat/multilingual-e5-base": {**_XLM_R, **_BARE},
    "answerdotai/ModernBERT-base": {"model_type": "modernbert"},
    "jhu-clsp/mmBERT-base": {"model_type": "modernbert", "vocab_size": 256_000, "pad_token_id": 0},
    "EuroBERT/EuroBERT-210m": {"model_type": "eurobert"},
    "microsoft/mdeberta-v3-base": {
        "model_type": "deberta-v2",
        "vocab_size": 251_000,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "relative_attention": True,
        "position_buckets": 256,
        "pos_att_type": "p2c|c2p",
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    },
}
# Ids of the tokenizers that `xalign data derive` makes, in the folders that recipes name: two of each English piece.
DERIVED: Mapping[str, int] = {
    "derived/en-x-inv/tokenizer": 80_000,
    "derived/en-x-syn/tokenizer": 80_000,
    "derived/en-x-trans/tokenizer": 80_000,
    "derived/en-x-inv-overlap-25/tokenizer": 80_000,
    "derived/en-x-inv-overlap-50/tokenizer": 80_000,
    "derived/tokenizer": 20_000,
}


def encoder_values(init_from: str) -> Values | None:
    """The values of the config.json of a folder, or of a known hub model; None where it must be opened.

    Raises:
        ConfigError: there is no such folder, it holds no model, or it is of a family that cannot be continued.
    """
    if Path(init_from).is_dir() or is_folder_name(init_from):
        return find_start(init_from).config
    listed = ENCODERS.get(_plain(init_from))
    return None if listed is None else family_of(init_from, listed).complete(listed)


def find_start(init_from: str) -> Opened:
    """The encoder that a run continues, by its small files.

    Raises:
        ConfigError: there is no such encoder, it holds no model, or it is of a family that cannot be continued.
    """
    if is_folder_name(init_from) and not Path(init_from).is_dir():
        raise ConfigError(f"model.init_from: there is no folder '{init_from}'.{suggest_path(Path(init_from))}")
    with of_start():
        opened = open_encoder(init_from)
    family_of(init_from, opened.config)
    return opened


@contextmanager
def of_start() -> Iterator[None]:
    """Inside, what is wrong with an encoder is wrong with `model.init_from`."""
    try:
        yield
    except DataError as error:
        raise ConfigError(f"model.init_from: {error}") from error


def vocabulary_size(tokenizer: str) -> int | None:
    """Ids of the tokenizer of a folder or of a known hub model; None where it must be opened."""
    file = Path(tokenizer) / "tokenizer.json"
    if file.is_file():
        return _count_ids(file, stamp_of(file))
    listed = ENCODERS.get(_plain(tokenizer))
    if listed is not None:
        return listed.get("vocab_size") or BY_MODEL_TYPE[listed["model_type"]].defaults["vocab_size"]
    return DERIVED.get(tokenizer)


def _plain(hub_id: str) -> str:
    for organisation in ORGANISATIONS:
        hub_id = hub_id.removeprefix(organisation)
    return revision_of(hub_id)[0]


@lru_cache(maxsize=16)  # a study asks for each of its recipes, and a large file takes a second
def _count_ids(file: Path, _: tuple[int, ...]) -> int:
    """One more than the largest id of a `tokenizer.json`, whose vocabulary is a mapping, or a list if it is Unigram."""
    tokenizer = read_json(file, "It is the tokenizer of the recipe.")
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    ids = vocabulary.values() if isinstance(vocabulary, Mapping) else range(len(vocabulary))
    return 1 + max([*ids, *(added["id"] for added in tokenizer.get("added_tokens", []))], default=-1)


def backbone(model: ModelConfig, vocab_size: int, max_positions: int, pad_id: int) -> tuple[Family, dict[str, Any]]:
    """The encoder's family and the values of its config: the recipe's, or the continued folder's.

    Args:
        model: the recipe's `model` block; dropout, if it is given, holds for a continued folder too, family and sizes
            do not.
        vocab_size: ids of the run's tokenizer; of use from scratch only, as is `pad_id`.
        max_positions: the longest row, in tokens.
        pad_id: the run's padding id.

    Raises:
        ConfigError: when `model.init_from` cannot be found, is none of the families, or one that cannot do the rest.
    """
    if model.init_from is None:
        family = FAMILIES[model.family]
        values = family.values(model, vocab_size, max_positions, pad_id)
    else:
        opened = find_start(model.init_from)
        family = family_of(model.init_from, opened.config)
        values = family.for_rows(opened.config, max_positions)
    check_settings(family, model)
    return family, family.with_dropout(values, model)
