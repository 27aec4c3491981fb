"""Turns trained weights into a plain Hugging Face folder that opens without this package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers.utils import logging as transformers_logging

from xalign_ray.config.derive import method_of
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import CheckpointError
from xalign_ray.models.backbone import backbone
from xalign_ray.models.encoder import open_start
from xalign_ray.models.extension import VocabularyRows, add_rows, exchange_rows, rows_to_make
from xalign_ray.models.families import BY_MODEL_TYPE, LANGUAGES_KEY
from xalign_ray.models.family import Family
from xalign_ray.models.heads import ConditionedHead
from xalign_ray.models.hub import encoder_folder
from xalign_ray.models.open_folder import POOLER, one_at_a_time, open_weights
from xalign_ray.models.own_tokenizer import TOKENIZER_KEY, identify, make_portable, stated_length
from xalign_ray.models.sentence_files import SentenceForm, copy_modules, write_modules
from xalign_ray.models.sizes import on_meta
from xalign_ray.models.weight_files import SAFETENSORS, weight_names
from xalign_ray.vocabulary.exchange import StartRows
from xalign_ray.vocabulary.tokenizer import put_frame
from xalign_ray.work.artifacts import MANIFEST, hash_files, share, unfinished, write_json, write_manifest

ENCODER = "encoder."  # how `EncoderWithLosses` names its encoder; what else is in the state belongs to losses
STOCK = f"{ENCODER}hf."
LANGUAGES = f"{ENCODER}languages.weight"
HEAD_FILE = "conditioned_head.safetensors"
PAIRS_FILE = "dictionary_pairs.json"


class Facts(TypedDict):
    """Facts in the folder about the run that it came from."""

    recipe: str
    fingerprint: str
    step: int


class SpecialIds(Protocol):
    """The ids of the tokenizer's special pieces."""

    @property
    def pad(self) -> int: ...
    @property
    def cls(self) -> int: ...
    @property
    def sep(self) -> int: ...


class Prepared(VocabularyRows, Protocol):
    """What export reads of prepared data; see shards/prepared.py."""

    @property
    def languages(self) -> list[str]: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def special(self) -> SpecialIds: ...
    @property
    def tokenizer_folder(self) -> Path: ...
    def pair_words(self, split: Any) -> list[list[str]]: ...


def export(
    state: Mapping[str, Tensor],
    config: RunConfig,
    prepared: Prepared,
    folder: Path,
    facts: Facts,
    form: SentenceForm | None = None,
) -> None:
    """Writes the folder under a temporary name next to it, then renames it; an older one of that name is replaced.

    Language embeddings are folded into the token-type table: `token_type_id` = segment + xalign_segments * language
    (DICT-MLM); a family without one then needs our class of it. A conditioned head, which no stock class holds, goes
    into a side file, and the folder is an encoder without a head. Otherwise it is a masked language model if a loss
    trained the head, or if the encoder that was continued has one, which then stays as it was. The tokenizer joins the
    texts of a pair as the recipe's rows do. The export of a Sentence Transformers folder is one again.
    Only the encoder is written: of what losses keep, such as the key encoder of momentum_contrast, nothing.

    Args:
        state: all parameters of `EncoderWithLosses` in fp32 and whole, by their names there.
        config: the resolved recipe.
        prepared: the run's data: languages, tokenizer, dictionary.
        folder: where to write.
        facts: recipe name, run fingerprint and step, for config.json.
        form: how it makes sentence vectors, if the folder is to be one of Sentence Transformers whatever it began as.

    Raises:
        CheckpointError: when the disk is full, or the state is not that of this recipe's encoder.
        ConfigError: when the folder that the run continued is gone.
    """
    transformers_logging.disable_progress_bar()
    folder = Path(os.path.realpath(folder))  # a link stays one
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = unfinished(folder)
    temporary.mkdir()
    try:
        _save_model(state, config, prepared, temporary, facts, form)
        _write_pairs(config, prepared, temporary)
        share(temporary, "*.safetensors")
        write_manifest(temporary, {**facts, "files": hash_files(temporary)})
        _replace(temporary, folder)
    except SafetensorError as error:  # with the system's own message
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"The export cannot be written to {folder}: {error}. Make room and rerun the same command."
        ) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def load_conditioned_head(folder: Path, model: Any) -> ConditionedHead:
    """The conditioned head of an exported folder, tied to the word embeddings of the model opened from it."""
    with safe_open(str(folder / HEAD_FILE), framework="pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    words, family = model.get_input_embeddings(), BY_MODEL_TYPE[model.config.model_type.removeprefix("xalign-")]
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
    form: SentenceForm | None,
) -> None:
    name_accelerator()
    model = config.model
    family, values = backbone(model, prepared.vocab_size, config.data.max_seq_length, prepared.special.pad)
    new_rows, exchanged = rows_to_make(config.data.tokenizer, prepared)
    segments = family.segments(values)
    weights = {name.removeprefix(STOCK): tensor.float() for name, tensor in state.items() if name.startswith(STOCK)}
    prefix = f"{family.classes().encoder.base_model_prefix}."
    pooler: dict[str, Tensor] = {}
    if not config.needs_head:
        weights = {f"{prefix}{name}": tensor for name, tensor in weights.items()}
        head, pooler = _left_as_they_were(model.init_from, family, values, new_rows, exchanged, prepared.special.pad)
        weights |= head
    _copy_tokenizer(prepared.tokenizer_folder, folder)
    _frame_pairs(config, prepared.special, folder)
    length = min(family.max_length(values), stated_length(model.init_from))
    make_portable(folder, length, segments)
    if model.language_embeddings:
        languages = _take(state, LANGUAGES)
        has_types = "type_vocab_size" in values
        types = _take(weights, family.token_types) if has_types else torch.zeros(1, languages.shape[1])
        weights[family.token_types] = fold(languages, types)
        values |= {"type_vocab_size": segments * len(languages)}
    values |= {
        **_vocabulary(values, prepared, exchanged is not None),
        LANGUAGES_KEY: list(prepared.languages) if model.language_embeddings else [],
        "xalign_segments": segments,
        "xalign_pairs": _pairs(config, segments),
        "xalign_objective": method_of(config),
        "xalign_recipe": facts["recipe"],
        "xalign_fingerprint": facts["fingerprint"],
        "xalign_seed": config.seed,
        "xalign_step": facts["step"],
        TOKENIZER_KEY: identify(folder),
    }
    classes = family.classes(with_languages=model.language_embeddings)
    values.pop("model_type")  # the class has its own
    values.pop("auto_map", None)  # of code that the export does not hold, and that its classes do not need
    hf_config = classes.config.from_dict(values)
    hf_config.update(family.older_keys(hf_config))
    bare = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    if not model.conditioned_head and len(bare) < len(weights):
        _fill(classes.masked_lm(hf_config), weights).save_pretrained(folder)
    elif pooler:
        _fill(classes.encoder(hf_config), bare | pooler).save_pretrained(folder)
    else:
        _fill(classes.bare(hf_config), bare).save_pretrained(folder)
    if form is not None:
        write_modules(form, folder, values["hidden_size"], length)
    elif model.init_from is not None:
        copy_modules(model.init_from, folder)
    if model.conditioned_head:
        _save_head(family, hf_config, weights, _take(state, LANGUAGES), folder)


def _vocabulary(values: Mapping[str, Any], prepared: Prepared, is_exchanged: bool) -> dict[str, int]:
    """The vocabulary's values in config.json: its size, and of an exchanged one the ids of special tokens."""
    if not is_exchanged:
        return {"vocab_size": max(values["vocab_size"], prepared.vocab_size)}  # pieces may have been added
    special = prepared.special
    named = {"pad": special.pad, "bos": special.cls, "cls": special.cls, "eos": special.sep, "sep": special.sep}
    ids = {f"{name}_token_id": number for name, number in named.items()}
    return {"vocab_size": prepared.vocab_size, **{key: ids[key] for key in ids if values.get(key) is not None}}


def _left_as_they_were(
    start: str | None,
    family: Family,
    values: Mapping[str, Any],
    new_rows: Mapping[int, Sequence[int]],
    exchanged: StartRows | None,
    pad_id: int,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights of the continued encoder that the run did not hold: of its masked-LM head, and its pooler.

    Named as in the masked language model, and as in the encoder alone. Tied weights are left out.
    """
    if start is None:
        return {}, {}
    hf, drawn = open_start(start, family, values)
    if not drawn:
        if exchanged:
            exchange_rows(hf, exchanged, pad_id, draw=False)
        elif new_rows:
            add_rows(hf, new_rows)
        left = (f"{hf.base_model_prefix}.", *hf.all_tied_weights_keys)
        return {name: value for name, value in hf.state_dict().items() if not name.startswith(left)}, {}
    folder = encoder_folder(start)  # of pickled or sharded weights the pooler, which nothing here reads, is left
    names = weight_names(str(folder)) if (folder / SAFETENSORS).is_file() else None
    if not any(POOLER in name.split(".") for name in names or ()):
        return {}, {}
    encoder, _ = open_weights(start, family.classes().encoder, hf.config)
    return {}, {name: value for name, value in encoder.state_dict().items() if POOLER in name.split(".")}


def _save_head(family: Family, hf_config: Any, weights: Mapping[str, Tensor], languages: Tensor, folder: Path) -> None:
    layers = family.copy_transform(on_meta(family, hf_config.to_dict())).state_dict()
    segment = {f"transform.{name}": _take(weights, f"{family.transform}{name}") for name in layers}
    segment |= {"decoder.bias": _take(weights, family.output_bias), "languages.weight": languages.float()}
    save_file({name: tensor.contiguous() for name, tensor in segment.items()}, folder / HEAD_FILE)


def fold(languages: Tensor, segments: Tensor) -> Tensor:
    """The token-type table that does the work of both: row s + n_segments * l is segments[s] + languages[l].

    languages [n, d], segments [s, d] -> [n * s, d].
    """
    return (languages.float()[:, None, :] + segments.float()[None, :, :]).flatten(0, 1)


def _pairs(config: RunConfig, segments: int) -> dict[str, Any] | None:
    """How a pair is laid out for this encoder, by the recipe's first stream of pairs."""
    stream: Any = next((stream for stream in config.streams if stream.segments_per_example == 2), None)
    return stream and {"positions": stream.positions, "segments": stream.segments and segments > 1}


def _fill(model: Any, weights: Mapping[str, Tensor]) -> Any:
    report = model.load_state_dict(dict(weights), strict=False)
    # The decoder shares its rows with the word embeddings; a consolidated state may or may not repeat them.
    missing = [name for name in report.missing_keys if name not in model.all_tied_weights_keys]
    if missing or report.unexpected_keys:
        raise CheckpointError(
            f"The weights do not fit this recipe's encoder: missing {', '.join(missing) or 'none'}; "
            f"not known {', '.join(report.unexpected_keys) or 'none'}."
        )
    model.tie_weights()
    return model


def _take(weights: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise CheckpointError(f"The weights do not fit this recipe's encoder: missing {name}; not known none.")
    return weights[name]


def _frame_pairs(config: RunConfig, special: SpecialIds, folder: Path) -> None:
    """Lets the tokenizer join the texts of a pair as the recipe's first stream of pairs does; without one it stays."""
    for stream in config.streams:
        if stream.segments_per_example == 2 and getattr(stream, "text", "joined") == "joined":
            path = str(folder / "tokenizer.json")
            tokenizer = Tokenizer.from_file(path)
            first, separator = (str(tokenizer.id_to_token(number)) for number in (special.cls, special.sep))
            if put_frame(tokenizer, first, separator, between=2 if getattr(stream, "double_separator", False) else 1):
                tokenizer.save(path)
            return


def _copy_tokenizer(source: Path, folder: Path) -> None:
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name not in (MANIFEST, "config.json"):
            shutil.copyfile(file, folder / file.name)


def _write_pairs(config: RunConfig, prepared: Prepared, folder: Path) -> None:
    if config.data.dictionaries:
        pairs = {split: prepared.pair_words(split) for split in ("trained", "held_out")}
        write_json(folder / PAIRS_FILE, pairs, indent=None)


def _replace(new: Path, folder: Path) -> None:
    """Puts a finished folder in its place; a rename cannot go over a folder that is not empty."""
    if not folder.exists():
        os.rename(new, folder)
        return
    old = unfinished(folder)
    os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old)
