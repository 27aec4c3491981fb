"""Sentence Transformers files of an encoder: its modules, pooling, prompts and longest input; read without torch."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xalign_ray.errors import DataError
from xalign_ray.models.hub import MODULES, encoder_folder
from xalign_ray.models.weight_files import CONFIG
from xalign_ray.work.artifacts import read_json, write_json
from xalign_ray.work.status_line import say

TRAINED = ("mean", "cls", "lasttoken")  # kinds of pooling that losses have, each alone
KEPT = ("Transformer", "Pooling", "Normalize")  # modules without weights of their own, but for the encoder
FROZEN = ("Dense", "LayerNorm")  # modules behind the pooling; training does not move them
CUT = 512  # tokens of the longest input, if the encoder has room for it: where `evaluate` cuts
QUERY = "query"  # name of the prompt that is taken where none is the default
_OF_PASSAGES = ("document", "passage", "corpus")  # names of the prompt of passages, as in encode_document
NO_FILES = "it has no modules.json; released sentence encoders have one, and other scores with it"
_TYPES = "sentence_transformers.models."  # a name that its versions from 2 on know
_POOLED = re.compile(r"pooling_mode_(\w+)")  # older keys of a pooling's config.json, true for its kinds
_SHORT = {
    "cls_token": "cls", "max_tokens": "max", "mean_tokens": "mean", "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}  # fmt: skip
_CURE = "Fetch it again."
_PROMPTS = "config_sentence_transformers.json"
_LENGTH = "sentence_bert_config.json"
_OLDER = ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_LENGTHS = (_LENGTH, *(f"sentence_{kind}_config.json" for kind in _OLDER))  # older names are still read


@dataclass(frozen=True)
class SentenceRule:
    """How an encoder makes the vector of a sentence: training, evaluations and comparisons all ask here.

    Attributes:
        pooling: of the last layer: one of `TRAINED`, or another of Sentence Transformers; several with " + " between.
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
        pooled = {"cls": "first token", "lasttoken": "last token"}.get(self.pooling, self.pooling)
        prompt = f"behind {self.prompt!r}" if self.prompt else "no prompt"
        return f"{pooled} of the last layer, {prompt} ({self.source})"


@dataclass(frozen=True)
class SentenceFiles:
    """The content of an encoder's Sentence Transformers files; a plain Hugging Face folder has none.

    Attributes:
        name: folder or hub id.
        modules: type and folder of each, in order.
        poolings: kinds of its pooling, whose vectors are concatenated.
        skips_prompt: whether the pooling leaves out the tokens of a prompt.
        prompts: by name. default_prompt: the name of the one that is taken unasked.
        max_length: tokens of the longest input, special ones included.
        lower_case: whether a text is lower-cased before its tokenizer reads it.
    """

    name: str
    modules: tuple[tuple[str, str], ...] = ()
    poolings: tuple[str, ...] = ()
    skips_prompt: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_length: int | None = None
    lower_case: bool = False

    @property
    def kinds(self) -> list[str]:
        """The class of each module; its whole type where the code comes with the encoder."""
        return [kind.rpartition(".")[2] if not kind.startswith("custom_st.") else kind for kind, _ in self.modules]

    @property
    def pooling(self) -> str | None:
        """The kind of pooling that a loss can train, of `TRAINED`; None if it is another, or unknown."""
        return self.poolings[0] if len(self.poolings) == 1 and self.poolings[0] in TRAINED else None

    @property
    def frozen(self) -> list[tuple[str, str]]:
        """Type and folder of each module of `FROZEN` behind its pooling, in order."""
        behind = self.kinds.index("Pooling") if "Pooling" in self.kinds else len(self.modules)
        return [module for at, module in enumerate(self.modules) if at > behind and self.kinds[at] in FROZEN]

    @property
    def prompt(self) -> str:
        """What goes before a sentence: the default prompt, else that of queries, else nothing.

        Both sentences of a pair get it: retrieval of translations is a symmetric task.
        """
        return self.prompts.get(self.default_prompt or QUERY, "")

    @property
    def search_prompts(self) -> tuple[str, str]:
        """What goes before a query, and before a passage: as Sentence Transformers' encode_query, encode_document."""
        default = self.prompts.get(self.default_prompt or "", "")
        of_passage = next((self.prompts[name] for name in _OF_PASSAGES if name in self.prompts), default)
        return self.prompts.get(QUERY, default), of_passage

    @property
    def rule(self) -> SentenceRule:
        """By the files; the mean of the last layer by default."""
        source = "by its Sentence Transformers files"
        if not self.poolings:
            source = "its modules.json names no pooling" if self.modules else NO_FILES
        return SentenceRule(" + ".join(self.poolings) or "mean", self.prompt, bool(self.poolings), source)

    def check_trained(self) -> None:
        """Refuses parts of the sentence vectors that training would not move.

        Raises:
            DataError: the encoder lies in a folder below, another module has weights, or the pooling is not trained.
        """
        for kind, (module, folder) in zip(self.kinds, self.modules, strict=True):
            if kind == "Transformer" and folder:
                raise DataError(f"{self.name} keeps its encoder in a folder below: name {self.name}/{folder}.")
            if kind not in KEPT and (module, folder) not in self.frozen:
                raise DataError(
                    f"{self.name} has a module {kind}, whose weights would not be trained with the encoder, nor fit it "
                    f"then. Continue a copy of the folder whose {MODULES} leaves it out: its vectors are then those of "
                    "the encoder and the other modules."
                )
        if "Pooling" in self.kinds and not self.pooling:
            raise DataError(
                f"{self.name} pools by {' + '.join(self.poolings)}; {', '.join(TRAINED)} alone can be trained. "
                f"Continue a copy of the folder without {MODULES}: its vectors are then the mean of the tokens."
            )


def read_sentence_files(name: str) -> SentenceFiles:
    """The Sentence Transformers files of a folder or hub model; without a modules.json the others mean nothing.

    Raises:
        DataError: they are damaged.
    """
    folder = encoder_folder(name)
    if not (folder / MODULES).is_file():
        return SentenceFiles(name)
    try:
        modules = tuple((str(module["type"]), str(module["path"])) for module in read_json(folder / MODULES, _CURE))
    except (TypeError, KeyError):
        raise DataError(f"{name}: {MODULES} is damaged: each module needs a type and a path. {_CURE}") from None
    pooled = next((_read(folder / below / CONFIG) for kind, below in modules if kind.endswith("Pooling")), None)
    settings = _read(folder / _PROMPTS) or {}
    lengths = next(filter(None, map(_read, (folder / file for file in _LENGTHS))), {})
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in [*prompts.values(), default]):
        raise DataError(f"{name}: {_PROMPTS} is damaged: its prompts are not texts by name. {_CURE}")
    longest = lengths.get("max_seq_length")
    if not isinstance(longest, int | None):
        raise DataError(f"{name}: max_seq_length is damaged: {longest!r} is no number. {_CURE}")
    if default and default not in prompts:
        raise DataError(
            f"{name}: {_PROMPTS} names '{default}' as its default prompt, and has {', '.join(prompts) or 'none'}. "
            "Correct default_prompt_name there."
        )
    return SentenceFiles(
        name,
        modules,
        () if pooled is None else _poolings(pooled),
        bool(pooled and pooled.get("include_prompt") is False),
        {key: text or "" for key, text in prompts.items()},
        default,
        longest,
        lengths.get("do_lower_case") is True,
    )


def _read(path: Path) -> dict[str, Any] | None:
    """The object of a JSON file; None where there is none."""
    content = read_json(path, _CURE) if path.is_file() else None
    if not isinstance(content, dict | None):
        raise DataError(f"{path} is damaged: it is no object. {_CURE}")
    return content


def _poolings(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of a pooling, by the names of Sentence Transformers, whose default is the mean."""
    named = config.get("pooling_mode")
    if named is None:
        keys = [match[1] for key, is_set in config.items() if is_set and (match := _POOLED.fullmatch(key))]
        named = [_SHORT.get(key, key) for key in keys]
    return ((named,) if isinstance(named, str) else tuple(named)) or ("mean",)


def write_modules(form: SentenceFiles, folder: Path, width: int, room: int) -> None:
    """Puts the files beside an encoder that make its folder one of Sentence Transformers.

    That package would open and write the encoder again, and its import takes seconds.

    Args:
        form: its pooling, frozen modules, prompts and longest input; without one the encoder's, at most `CUT`.
        width: numbers of a vector.
        room: tokens of an input that the encoder takes.
    """
    kinds = ["Transformer", "Pooling", *(kind for kind, _ in form.frozen), "Normalize"]
    paths = ["", *(f"{idx}_{kind.rpartition('.')[2]}" for idx, kind in enumerate(kinds) if idx)]
    listed = [
        {"idx": idx, "name": str(idx), "path": path, "type": kind if "." in kind else f"{_TYPES}{kind}"}
        for idx, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    write_json(folder / MODULES, listed)
    for path in paths[1:]:
        (folder / path).mkdir(exist_ok=True)
    for path, (_, source) in zip(paths[2:], form.frozen, strict=False):
        shutil.copytree(encoder_folder(form.name) / source, folder / path, dirs_exist_ok=True)
    pooling = {f"pooling_mode_{key}": kind == form.pooling for key, kind in _SHORT.items() if kind in TRAINED}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **pooling})
    prompts = {"prompts": dict(form.prompts), "default_prompt_name": form.default_prompt}
    write_json(folder / _PROMPTS, prompts | {"similarity_fn_name": "cosine"})
    write_json(folder / _LENGTH, {"max_seq_length": form.max_length or min(room, CUT), "do_lower_case": False})


def copy_modules(name: str, folder: Path) -> None:
    """Puts the files that make a Sentence Transformers folder of an encoder's into its export; of others, nothing.

    Args:
        name: the folder or hub id that was continued.
        folder: the export.
    """
    modules, source = read_sentence_files(name).modules, encoder_folder(name)
    if not modules:
        return
    for below in filter(None, (below for _, below in modules)):
        (folder / below).mkdir(parents=True, exist_ok=True)
        if (source / below).is_dir():  # of a module without files a hub model has no folder
            shutil.copytree(source / below, folder / below, dirs_exist_ok=True)
    lengths = next((file for file in _LENGTHS if (source / file).is_file()), _LENGTH)
    for target, file in {MODULES: MODULES, _PROMPTS: _PROMPTS, _LENGTH: lengths}.items():
        if (source / file).is_file():
            shutil.copyfile(source / file, folder / target)
    if heads := sorted(path.name for path in source.glob("*_linear.pt")):
        say(f"{', '.join(heads)} of {name} are not in the export: they fitted the encoder as it was.")
