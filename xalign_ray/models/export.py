"""Turns trained weights into a plain Hugging Face folder that opens without this package."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertModel
from transformers.utils import logging as transformers_logging

from xalign_ray.artifacts import MANIFEST, write_json
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import CheckpointError
from xalign_ray.models.backbone import LANGUAGES_KEY, backbone_values
from xalign_ray.models.heads import ConditionedHead

ENCODER = "encoder."  # how `Objectives` names its encoder; what else is in the state belongs to losses
BERT = f"{ENCODER}hf."
LANGUAGES = f"{ENCODER}languages.weight"
HEAD = "cls.predictions."
SEGMENT_TABLE = "bert.embeddings.token_type_embeddings.weight"
HEAD_FILE = "conditioned_head.safetensors"
PAIRS_FILE = "dictionary_pairs.json"

# What a stream or loss adds to plain masked text is called by its paper.
_NAMES: dict[str, Callable[[Any], str]] = {
    "masked_pairs": lambda _: "xlm",
    "code_switched_labels": lambda stream: (
        f"dict-mlm-{100 * stream.t:g}" + "-input-swap" * (stream.variant != "label_swap")
    ),
    "code_switched_copy": lambda _: "dict-tlm",
    "dictionary_alignment": lambda loss: "align-mlm-shuffled" if loss.shuffled else "align-mlm",
    "word_exchange": lambda _: "weam",
    "momentum_contrast": lambda _: "ppa",
    "sentence_contrast": lambda _: "infoxlm",
}


class Facts(TypedDict):
    """What the folder says about the run that it came from."""

    recipe: str
    fingerprint: str
    step: int


class SpecialIds(Protocol):
    """The ids of the tokenizer's special pieces."""

    @property
    def pad(self) -> int: ...


class Prepared(Protocol):
    """What export reads of prepared data; see data/prepared.py."""

    @property
    def languages(self) -> list[str]: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def special(self) -> SpecialIds: ...
    @property
    def tokenizer_folder(self) -> Path: ...
    def pair_words(self, split: Any) -> list[list[str]]: ...


def export(state: Mapping[str, Tensor], config: RunConfig, prepared: Prepared, folder: Path, facts: Facts) -> None:
    """Writes the folder under a temporary name beside it, then renames it; an older one of that name is replaced.

    Language embeddings are folded into the token-type table: `token_type_id` = segment + xalign_segments * language
    (METHODS 4.4). A conditioned head, which no stock class holds, goes into a side file; the folder is then a
    BertModel, otherwise a BertForMaskedLM.

    Args:
        state: all parameters of `Objectives` in fp32 and whole, by their names there.
        config: the resolved recipe.
        prepared: the run's data: languages, tokenizer, dictionary.
        folder: where to write.
        facts: recipe name, run fingerprint and step, for config.json.

    Raises:
        CheckpointError: when the state is not that of this recipe's encoder.
        ConfigError: when the folder that the run continued is gone.
    """
    transformers_logging.disable_progress_bar()
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        _save_model(state, config, prepared, temporary, facts)
        _copy_tokenizer(prepared.tokenizer_folder, temporary)
        _write_pairs(config, prepared, temporary)
        temporary.chmod(0o755)
        _replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def load_conditioned_head(folder: Path, model: BertModel) -> ConditionedHead:
    """The conditioned head of an exported folder, tied to the word embeddings of the model opened from it."""
    with safe_open(str(folder / HEAD_FILE), framework="pt") as file:
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    words = model.embeddings.word_embeddings
    head = ConditionedHead(model.config, len(state["languages.weight"]), words)
    head.load_state_dict(state | {"decoder.weight": words.weight.detach()})
    return head.eval()


def _save_model(state: Mapping[str, Tensor], config: RunConfig, prepared: Prepared, folder: Path, facts: Facts) -> None:
    values = backbone_values(config.model, prepared.vocab_size, config.data.row_tokens, prepared.special.pad)
    weights = {name.removeprefix(BERT): tensor.float() for name, tensor in state.items() if name.startswith(BERT)}
    segments = values["type_vocab_size"]
    if config.model.language_embeddings:
        weights[SEGMENT_TABLE] = fold(_take(state, LANGUAGES), _take(weights, SEGMENT_TABLE))
        values |= {"type_vocab_size": len(weights[SEGMENT_TABLE])}
    hf_config = BertConfig.from_dict(
        values
        | {
            LANGUAGES_KEY: list(prepared.languages) if config.model.language_embeddings else [],
            "xalign_segments": segments,
            "xalign_objective": _method(config),
            "xalign_recipe": facts["recipe"],
            "xalign_fingerprint": facts["fingerprint"],
            "xalign_seed": config.seed,
            "xalign_step": facts["step"],
        }
    )
    if not config.model.conditioned_head:
        _fill(BertForMaskedLM(hf_config), weights).save_pretrained(folder)
        return
    head = {name.removeprefix(HEAD): tensor for name, tensor in weights.items() if name.startswith(HEAD)}
    bert = {name.removeprefix("bert."): tensor for name, tensor in weights.items() if name.startswith("bert.")}
    _fill(BertModel(hf_config, add_pooling_layer=False), bert).save_pretrained(folder)
    side = {name: tensor.contiguous() for name, tensor in head.items() if name.startswith("transform.")}
    side |= {"decoder.bias": _take(head, "bias").contiguous(), "languages.weight": _take(state, LANGUAGES).float()}
    save_file(side, folder / HEAD_FILE)


def fold(languages: Tensor, segments: Tensor) -> Tensor:
    """The token-type table that does the work of both: row s + n_segments * l is segments[s] + languages[l].

    languages [n, d], segments [s, d] -> [n * s, d].
    """
    return (languages.float()[:, None, :] + segments.float()[None, :, :]).flatten(0, 1)


def _method(config: RunConfig) -> str:
    """The recipe's method in the words of the papers, `mlm` where nothing is added to plain masked text."""
    parts = [_NAMES[part.kind](part) for part in (*config.streams, *config.objectives) if part.kind in _NAMES]
    return "+".join(parts) or "mlm"


def _fill(model: Any, weights: Mapping[str, Tensor]) -> Any:
    report = model.load_state_dict(dict(weights), strict=False)
    # The decoder shares its rows with the word embeddings; a consolidated state may or may not repeat them.
    missing = [name for name in report.missing_keys if not name.startswith(f"{HEAD}decoder.")]
    if missing or report.unexpected_keys:
        raise CheckpointError(
            f"The weights are not those of this recipe's encoder: missing {', '.join(missing) or 'none'}; "
            f"not known {', '.join(report.unexpected_keys) or 'none'}."
        )
    model.tie_weights()
    return model


def _take(weights: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise CheckpointError(f"The weights are not those of this recipe's encoder: missing {name}; not known none.")
    return weights[name]


def _copy_tokenizer(source: Path, folder: Path) -> None:
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name not in (MANIFEST, "config.json"):
            shutil.copyfile(file, folder / file.name)


def _write_pairs(config: RunConfig, prepared: Prepared, folder: Path) -> None:
    if config.data.dictionaries:
        write_json(folder / PAIRS_FILE, {split: prepared.pair_words(split) for split in ("trained", "held_out")})


def _replace(new: Path, folder: Path) -> None:
    """Puts a finished folder in its place; a rename cannot go over a folder that is not empty."""
    if not folder.exists():
        os.rename(new, folder)
        return
    old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.old."))
    os.rename(folder, old / "export")
    os.rename(new, folder)
    shutil.rmtree(old)
