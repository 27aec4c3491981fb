"""The modules, pooling and prompt of a Sentence Transformers folder: kept, written, or refused by name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.models.hub import cached_file, hub_file, in_cache
from xalign_ray.work.artifacts import read_json, write_json
from xalign_ray.work.status_line import say

MODULES = "modules.json"
KEPT = ("Transformer", "Pooling", "Normalize")  # without weights of their own, but for the encoder
CUT = 512  # tokens of the longest input, if the encoder has room for it: where `evaluate` cuts
_TYPES = "sentence_transformers.models."  # a name that its versions from 2 on know
_OWN_CODE = "custom_st."  # how the type of a module begins whose code comes with the encoder
_POOLED = re.compile(r"pooling_mode_(\w+?)(_tokens?)?")  # keys of Pooling's config.json; one is true
_ALONE = ("mean", "cls")  # kinds of pooling that are trained, each alone
_KNOWN = {*KEPT, "Dense"}
_PROMPTS = "config_sentence_transformers.json"
_LENGTH = "sentence_bert_config.json"
_OLDER_LENGTHS = tuple(  # as Sentence Transformers named it once, and still reads it
    f"sentence_{kind}_config.json" for kind in ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
QUERY = "query"  # name of the prompt that is taken where none is the default
NO_FILES = "it has no modules.json; released sentence encoders have one, and other scores with it"
_DAMAGED = "It says how an encoder makes sentence vectors; copy or download it again."


@dataclass(frozen=True)
class SentenceRule:
    """How an encoder makes the vector of a sentence: training, evaluations and comparisons all ask here.

    Attributes:
        pooling: of the last layer, "mean" or "cls".
        prompt: what stands before each sentence; may be empty.
        is_own: whether it comes from the encoder's files.
        source: its origin in words.
    """

    pooling: str
    prompt: str
    is_own: bool
    source: str

    @property
    def words(self) -> str:
        """For a start line, a report and a card."""
        pooled = "first token" if self.pooling == "cls" else "mean"
        return (
            f"{pooled} of the last layer, {f'behind {self.prompt!r}' if self.prompt else 'no prompt'} ({self.source})"
        )


def sentence_rule(encoder: str) -> SentenceRule:
    """The rule of an encoder's Sentence Transformers files; where they are missing the mean of the last layer.

    Args:
        encoder: folder or hub id.

    Raises:
        DataError: the files are damaged.
    """
    pooling = own_pooling(encoder)
    source = "by its Sentence Transformers files"
    if pooling is None:
        source = "its own pooling is unknown here" if hub_file(encoder, MODULES) else NO_FILES
    return SentenceRule(pooling or "mean", own_prompt(encoder), pooling is not None, source)


def own_pooling(encoder: str) -> str | None:
    """How the encoder's last layer becomes a sentence vector: "mean" or "cls"; None where the files lack it.

    `modules.json` names the folder of the pooling module, whose config.json names the kind. Another kind is reported on
    stderr, and counts as none. So are modules that change the vectors further in a way that is unknown here.

    Args:
        encoder: folder or hub id.

    Raises:
        DataError: the files are damaged.
    """
    found = _pooled_by(encoder)
    if found is None:
        return None
    kinds, others, leaves_prompt_out = found
    if others or leaves_prompt_out:
        what = f"module {', '.join(others)} changes them" if others else "pooling leaves out the tokens of a prompt"
        say(f"{encoder}: these vectors are not those of Sentence Transformers, whose {what}.")
    if len(kinds) == 1 and kinds[0] in _ALONE:
        return kinds[0]
    say(f"{encoder}: its own pooling ({' + '.join(kinds) or 'neither mean nor cls'}) is unknown and not used.")
    return None


def _pooled_by(encoder: str) -> tuple[list[str], list[str], bool] | None:
    """The kinds of an encoder's pooling, its modules that are unknown here, and whether a prompt's tokens are left out.

    Returns:
        None where the files name no pooling.
    """
    modules = _read(encoder, MODULES)
    if modules is None:
        return None
    try:
        folder = next((one["path"] for one in modules if one["type"].endswith("Pooling")), None)
        config = _read(encoder, f"{folder}/config.json") if folder else None
        if config is None:
            return None
        flags = {found[1]: is_set for key, is_set in config.items() if (found := _POOLED.fullmatch(key))}
        named = config.get("pooling_mode") or [kind for kind, is_set in flags.items() if is_set]
        others = sorted({_kind(one["type"]) for one in modules} - _KNOWN)
    except (TypeError, KeyError, AttributeError):
        damaged = f"{MODULES} or the config.json of its pooling is damaged"
        raise DataError(f"{encoder}: {damaged}; fetch it again.") from None
    kinds = [named] if isinstance(named, str) else named or ([] if flags else ["mean"])  # the package's own default
    return kinds, others, config.get("include_prompt") is False


def _kind(type_name: str) -> str:
    """The kind of a module by its type; with its own code the whole name."""
    return type_name if type_name.startswith(_OWN_CODE) else type_name.rpartition(".")[2]


def own_prompt(encoder: str) -> str:
    """The prompt in the encoder's files that goes before a sentence: the default one, else "query", else none.

    Both sentences of a pair get it: retrieval of translations is a symmetric task.

    Args:
        encoder: folder or hub id.

    Raises:
        DataError: the file is damaged.
    """
    prompts, default = own_prompts(encoder)
    return prompts.get(default or QUERY, "")


def own_prompts(encoder: str) -> tuple[dict[str, str], str | None]:
    """The prompts of the encoder's files by name, and the name of the one that Sentence Transformers takes unasked.

    Raises:
        DataError: the file is damaged.
    """
    config = _read(encoder, _PROMPTS)
    if config is None:
        return {}, None
    damaged = DataError(f"{encoder}: {_PROMPTS} is damaged: its prompts are not texts by name. Fetch it again.")
    try:
        prompts = {name: text or "" for name, text in (config.get("prompts") or {}).items()}
        default = config.get("default_prompt_name")
    except AttributeError:
        raise damaged from None
    if not all(isinstance(text, str) for text in [*prompts.values(), default or ""]):
        raise damaged
    if default and default not in prompts:
        raise DataError(
            f"{encoder}: {_PROMPTS} names '{default}' as its default prompt, and has {', '.join(prompts) or 'none'}. "
            "Correct default_prompt_name there."
        )
    return prompts, default


def own_max_length(encoder: str) -> int | None:
    """The longest input in tokens, special ones included, from the encoder's files; None where they lack it.

    Raises:
        DataError: the file is damaged.
    """
    config = _parsed(_length_file(encoder))
    try:
        length = None if config is None else config.get("max_seq_length")
        return None if length is None else int(length)
    except (AttributeError, TypeError, ValueError):
        raise DataError(f"{encoder}: {_LENGTH} is damaged: its max_seq_length is no number. Fetch it again.") from None


def lowers_text(encoder: str) -> bool:
    """Whether the encoder's files lower-case a text before its tokenizer reads it.

    Raises:
        DataError: the file is damaged.
    """
    config = _parsed(_length_file(encoder)) if hub_file(encoder, MODULES) else None
    return isinstance(config, dict) and config.get("do_lower_case") is True


def is_normalized(encoder: str) -> bool:
    """Whether the encoder's files give each sentence vector length 1.

    Raises:
        DataError: the file is damaged.
    """
    path = hub_file(encoder, MODULES)
    return path is not None and any(kind == "Normalize" for kind, _ in list_modules(path))


def _read(encoder: str, name: str) -> Any:
    return _parsed(hub_file(encoder, name))


def _parsed(path: Path | None) -> Any:
    if path is None:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}. Fetch it again.") from None


@dataclass(frozen=True)
class SentenceForm:
    """How an exported encoder makes sentence vectors in Sentence Transformers; their length is 1.

    Attributes:
        pooling: "mean" or "cls".
        prompts: what may be put before a sentence, by name.
        default_prompt: the name of the prompt that is put there unasked; None is no prompt.
        max_length: tokens of an input, special ones included; None is the encoder's longest input, at most `CUT`.
    """

    pooling: str = "mean"
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_length: int | None = None


def write_modules(form: SentenceForm, folder: Path, width: int, room: int) -> None:
    """Puts the files beside an encoder that make its folder one of Sentence Transformers.

    Args:
        width: numbers of a vector.
        room: tokens of an input that the encoder takes.
    """
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    write_json(
        folder / MODULES,
        [
            {"idx": number, "name": str(number), "path": path, "type": f"{_TYPES}{kind}"}
            for number, (kind, path) in enumerate(modules)
        ],
    )
    for _, path in modules[1:]:
        (folder / path).mkdir(exist_ok=True)
    kinds = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    pooling = {"word_embedding_dimension": width, **{key: form.pooling == kind for kind, key in kinds.items()}}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    prompts = {"prompts": dict(form.prompts), "default_prompt_name": form.default_prompt}
    write_json(folder / _PROMPTS, prompts | {"similarity_fn_name": "cosine"})
    write_json(folder / _LENGTH, {"max_seq_length": form.max_length or min(room, CUT), "do_lower_case": False})


def check_modules(name: str) -> None:
    """Refuses a folder or hub model with parts of its sentence vectors that training would not move.

    Raises:
        DataError: its encoder lies in a folder below, another module has weights, or its pooling is not trained.
    """
    path = hub_file(name, MODULES)
    if path is None:
        return
    for kind, folder in list_modules(path):
        if kind == "Transformer" and folder:
            raise DataError(f"{name} keeps its encoder in a folder below: name {name}/{folder}.")
        if kind not in KEPT:
            raise DataError(
                f"{name} has a module {kind}, whose weights would not be trained with the encoder, nor fit it then. "
                f"Continue a copy of the folder whose {MODULES} leaves it out: its vectors are then those of the "
                "encoder and the other modules."
            )
    pooled = _pooled_by(name)
    if pooled and (len(pooled[0]) != 1 or pooled[0][0] not in _ALONE):
        raise DataError(
            f"{name} pools by {' + '.join(pooled[0]) or 'nothing that its files name'}; mean or cls alone can be "
            f"trained. Continue a copy of the folder without {MODULES}: its vectors are then the mean of the tokens."
        )


def copy_modules(name: str, folder: Path) -> None:
    """Puts the files that make a Sentence Transformers folder of an encoder's into its export; of others, nothing.

    Args:
        name: the folder or hub id that was continued.
        folder: the export.
    """
    path = hub_file(name, MODULES)
    if path is None:
        return
    for _, below in list_modules(path):
        config = hub_file(name, f"{below}/config.json") if below else None
        if config is not None:
            (folder / below).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(config, folder / below / "config.json")
        elif below:  # a module without settings, such as Normalize
            (folder / below).mkdir(parents=True, exist_ok=True)
    found_files = {file: hub_file(name, file) for file in (MODULES, _PROMPTS)} | {_LENGTH: _length_file(name)}
    for file, found in found_files.items():
        if found is not None:
            shutil.copyfile(found, folder / file)
    if heads := sorted(path.name for path in Path(in_cache(name)).glob("*_linear.pt")):
        say(f"{', '.join(heads)} of {name} are not in the export: they fitted the encoder as it was.")


def _length_file(name: str) -> Path | None:
    """The file with the longest length of an input, under its present name or an older one."""
    older = (cached_file(in_cache(name), file) for file in _OLDER_LENGTHS)
    return hub_file(name, _LENGTH) or next(filter(None, older), None)


def list_modules(path: Path) -> list[tuple[str, str]]:
    """Kind and folder of each module that a modules.json names, in their order.

    Raises:
        DataError: the file is damaged.
    """
    listed: Any = read_json(path, _DAMAGED)
    try:
        return [(_kind(str(module["type"])), str(module["path"])) for module in listed]
    except (TypeError, KeyError):
        raise DataError(f"{path} is damaged. {_DAMAGED}") from None
