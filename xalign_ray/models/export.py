"""Turns trained weights into a plain Hugging Face folder that opens without this package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import tokenizers
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.utils import logging as transformers_logging

from xalign_ray.config.derive import method_of
from xalign_ray.config.schema import RunConfig
from xalign_ray.config.sources import REPLACING, Tokenizer
from xalign_ray.errors import CheckpointError, DataError
from xalign_ray.models.backbone import backbone
from xalign_ray.models.encoder import open_start
from xalign_ray.models.extension import add_rows, exchange_rows
from xalign_ray.models.families import LANGUAGES_KEY, find_family
from xalign_ray.models.family import Family
from xalign_ray.models.heads import ConditionedHead
from xalign_ray.models.open import open_encoder
from xalign_ray.models.open_folder import POOLER, one_at_a_time, open_weights
from xalign_ray.models.own_tokenizer import TOKENIZER_KEY, identify, make_portable, stated_length
from xalign_ray.models.sentence_files import SentenceFiles, copy_modules, write_modules
from xalign_ray.models.sizes import on_meta
from xalign_ray.models.weight_files import CONFIG
from xalign_ray.streams.collate import SpecialIds
from xalign_ray.vocabulary.exchange import StartRows
from xalign_ray.vocabulary.tokenizer import put_frame
from xalign_ray.work.artifacts import MANIFEST, hash_files, share, unfinished, write_json, write_manifest

if TYPE_CHECKING:
    from xalign_ray.shards.prepared import Prepared

ENCODER = "encoder."  # how `EncoderWithLosses` names its encoder; what else is in the state belongs to losses
STOCK = f"{ENCODER}hf."
LANGUAGES = f"{ENCODER}languages.weight"
HEAD_FILE = "conditioned_head.safetensors"
PAIRS_FILE = "dictionary_pairs.json"


class Facts(TypedDict):
    """Facts in the folder about the run that it came from.

    Of a mixture of its weights with those that the run began with, `merge` is their share.
    """

    recipe: str
    fingerprint: str
    step: int
    merge: NotRequired[float]


def export(
    state: Mapping[str, Tensor],
    config: RunConfig,
    prepared: Prepared,
    folder: Path,
    facts: Facts,
    form: SentenceFiles | None = None,
) -> None:
    """Writes the folder under a temporary name next to it, then renames it; an older one of that name is replaced.

    Language embeddings are folded into the token-type table: `token_type_id` = segment + xalign_segments * language
    (DICT-MLM). A conditioned head, which no stock class holds, goes
    into a side file, and the folder is an encoder without a head. Otherwise it is a masked language model if a loss
    trained the head, or if the encoder that was continued has one, which then stays as it was; one of a family that is
    not described loses it. The tokenizer joins the texts of a pair as the recipe's rows do. The export of a Sentence
    Transformers folder is one again.
    Only the encoder is written: of what losses keep, such as the key encoder of momentum_contrast, nothing.

    Args:
        state: all parameters of `EncoderWithLosses` in fp32 and whole, by their names there.
        config: the resolved recipe.
        prepared: the run's data: languages, tokenizer, dictionary.
        folder: where to write.
        facts: recipe name, run fingerprint, step and share, for config.json.
        form: how it makes sentence vectors, if the folder is to be one of Sentence Transformers whatever it began as.

    Raises:
        CheckpointError: when the disk is full, or the state is not that of this recipe's encoder.
        ConfigError: when the folder that the run continued is gone.
    """
    transformers_logging.disable_progress_bar()
    folder = Path(os.path.realpath(folder))  # a link stays one
    temporary = unfinished(folder)
    temporary.mkdir(parents=True)
    try:
        _save_model(state, config, prepared, temporary, facts, form)
        if config.data.dictionaries:
            pairs = {split: prepared.pair_words(split) for split in ("trained", "held_out")}
            write_json(temporary / PAIRS_FILE, pairs, indent=None)
        share(temporary, "*.safetensors")
        write_manifest(temporary, {**facts, "files": hash_files(temporary)})
        old = unfinished(folder)
        if folder.exists():  # a rename cannot go over a folder that is not empty
            os.rename(folder, old)
        os.rename(temporary, folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, SafetensorError):  # with the system's own message
            raise CheckpointError(
                f"The export cannot be written to {folder}: {error}. Make room and rerun the same command."
            ) from error
        raise


def rows_to_make(tokenizer: Tokenizer, prepared: Prepared) -> tuple[Mapping[int, Sequence[int]], StartRows | None]:
    """The rows that a recipe adds to its encoder's, and those that it puts in their place.

    A recipe that continues the result has the same data and makes none: its encoder has them, trained.
    """
    new_rows = prepared.new_rows if getattr(tokenizer, "new_pieces", 0) else {}
    return new_rows, prepared.start_rows if isinstance(tokenizer, REPLACING) else None


def load_conditioned_head(folder: Path, model: Any) -> ConditionedHead:
    """The conditioned head of an exported folder, tied to the word embeddings of the model opened from it."""
    with safe_open(str(folder / HEAD_FILE), framework="pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    model_type = model.config.model_type
    words, family = model.get_input_embeddings(), find_family(model_type)
    if family is None or family.unpacked:
        raise DataError(f"{folder} has a head of the family {model_type}, which a plug-in describes: import it first.")
    transform = family.copy_transform(on_meta(family, model.config.to_dict())).to_empty(device="cpu")
    head = ConditionedHead(transform, len(state["languages.weight"]), words)
    head.load_state_dict(state | {"decoder.weight": words.weight.detach()})
    return head.eval()


def name_accelerator() -> None:
    """Names DeepSpeed's device, which it would guess with a warning: transformers unwraps models by accelerate, which
    imports it."""
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")


@one_at_a_time
def _save_model(
    state: Mapping[str, Tensor],
    config: RunConfig,
    prepared: Prepared,
    folder: Path,
    facts: Facts,
    form: SentenceFiles | None,
) -> None:
    name_accelerator()
    model, special = config.model, prepared.special
    family, values = backbone(model, prepared.vocab_size, config.data.max_seq_length, special.pad)
    segments = family.segments(values)
    weights = {name.removeprefix(STOCK): tensor.float() for name, tensor in state.items() if name.startswith(STOCK)}
    prefix = f"{family.classes().encoder.base_model_prefix}."
    pooler: dict[str, Tensor] = {}
    if not config.needs_head:
        head, pooler = _left_as_they_were(config, prepared, family, values)
        weights = {f"{prefix}{name}": tensor for name, tensor in weights.items()} | head
    for file in sorted(prepared.tokenizer_folder.iterdir()):
        if file.is_file() and file.name not in (MANIFEST, CONFIG):
            shutil.copyfile(file, folder / file.name)
    _frame_pairs(config, special, folder)
    length = min(family.max_length(values), stated_length(model.init_from))
    make_portable(folder, length, segments)
    if model.language_embeddings:
        languages = _take(state, LANGUAGES)
        weights[family.token_types] = fold(languages, _take(weights, family.token_types))
        values |= {"type_vocab_size": segments * len(languages)}
    pair: Any = next((stream for stream in config.streams if stream.segments_per_example == 2), None)
    values |= {
        **_vocabulary(config, values, prepared),
        LANGUAGES_KEY: list(prepared.languages) if model.language_embeddings else [],
        "xalign_segments": segments,
        # How a pair is laid out, by the recipe's first stream of pairs.
        "xalign_pairs": pair and {"positions": pair.positions, "segments": pair.segments and segments > 1},
        "xalign_objective": method_of(config),
        "xalign_recipe": facts["recipe"],
        "xalign_fingerprint": facts["fingerprint"],
        "xalign_seed": config.seed,
        "xalign_step": facts["step"],
        **({"xalign_merge": facts["merge"]} if "merge" in facts else {}),
        TOKENIZER_KEY: identify(folder),
    }
    classes = family.classes()
    values.pop("model_type")  # the class has its own
    values.pop("auto_map", None)  # of code that the export does not hold, and that its classes do not need
    hf_config = classes.config.from_dict(values)
    hf_config.update(family.older_keys(hf_config))
    bare = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    if not model.conditioned_head and len(bare) < len(weights):
        _fill(classes.masked_lm(hf_config), weights).save_pretrained(folder)
    else:
        _fill(classes.encoder(hf_config) if pooler else classes.bare(hf_config), bare | pooler).save_pretrained(folder)
    if form is not None:
        write_modules(form, folder, values["hidden_size"], length)
    elif model.init_from is not None:
        copy_modules(model.init_from, folder)
    if model.conditioned_head:
        layers = family.copy_transform(on_meta(family, hf_config.to_dict())).state_dict()
        kept = {f"transform.{name}": _take(weights, f"{family.transform}{name}") for name in layers}
        kept |= {
            "decoder.bias": _take(weights, family.output_bias),
            "languages.weight": _take(state, LANGUAGES).float(),
        }
        save_file({name: tensor.contiguous() for name, tensor in kept.items()}, folder / HEAD_FILE)


def _vocabulary(config: RunConfig, values: Mapping[str, Any], prepared: Prepared) -> dict[str, int]:
    """The vocabulary's values in config.json: its size, and of an exchanged one the ids of special tokens."""
    if not isinstance(config.data.tokenizer, REPLACING):
        return {"vocab_size": max(values["vocab_size"], prepared.vocab_size)}  # pieces may have been added
    special = prepared.special
    named = {"pad": special.pad, "bos": special.cls, "cls": special.cls, "eos": special.sep, "sep": special.sep}
    ids = {f"{name}_token_id": number for name, number in named.items()}
    return {"vocab_size": prepared.vocab_size, **{key: ids[key] for key in ids if values.get(key) is not None}}


def _left_as_they_were(
    config: RunConfig, prepared: Prepared, family: Family, values: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights of the continued encoder that the run did not hold: of its masked-LM head, and its pooler.

    Named as in the masked language model, and as in the encoder alone. Tied weights are left out.
    """
    start = config.model.init_from
    if start is None:
        return {}, {}
    hf, drawn = open_start(start, family, values)
    if not drawn and hf.base_model is not hf:
        new_rows, exchanged = rows_to_make(config.data.tokenizer, prepared)
        if exchanged:
            exchange_rows(hf, exchanged, prepared.special.pad, draw=False)
        elif new_rows:
            add_rows(hf, new_rows)
        left = (f"{hf.base_model_prefix}.", *hf.all_tied_weights_keys)
        return {name: value for name, value in hf.state_dict().items() if not name.startswith(left)}, {}
    # Of pickled weights the pooler, which nothing here reads, is left.
    if not any(POOLER in name.split(".") for name in open_encoder(start).weights):
        return {}, {}
    encoder, _ = open_weights(start, family.classes().encoder, hf.config)
    return {}, {name: value for name, value in encoder.state_dict().items() if POOLER in name.split(".")}


def fold(languages: Tensor, segments: Tensor) -> Tensor:
    """The token-type table that does the work of both: row s + n_segments * l is segments[s] + languages[l].

    languages [n, d], segments [s, d] -> [n * s, d].
    """
    return (languages.float()[:, None, :] + segments.float()[None, :, :]).flatten(0, 1)


def _fill(model: Any, weights: Mapping[str, Tensor]) -> Any:
    report = model.load_state_dict(dict(weights), strict=False)
    # The decoder shares its rows with the word embeddings; a consolidated state may or may not repeat them.
    missing = [name for name in report.missing_keys if name not in model.all_tied_weights_keys]
    if missing or report.unexpected_keys:
        raise _unfit(", ".join(missing) or "none", ", ".join(report.unexpected_keys) or "none")
    model.tie_weights()
    return model


def _take(weights: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise _unfit(name, "none")
    return weights[name]


def _unfit(missing: str, unknown: str) -> CheckpointError:
    return CheckpointError(f"The weights do not fit this recipe's encoder: missing {missing}; not known {unknown}.")


def _frame_pairs(config: RunConfig, special: SpecialIds, folder: Path) -> None:
    """Lets the tokenizer join the texts of a pair as the recipe's first stream of pairs does; without one it stays."""
    for stream in config.streams:
        if stream.segments_per_example == 2 and getattr(stream, "text", "joined") == "joined":
            path = str(folder / "tokenizer.json")
            tokenizer = tokenizers.Tokenizer.from_file(path)
            first, separator = (str(tokenizer.id_to_token(number)) for number in (special.cls, special.sep))
            if put_frame(tokenizer, first, separator, between=2 if getattr(stream, "double_separator", False) else 1):
                tokenizer.save(path)
            return
