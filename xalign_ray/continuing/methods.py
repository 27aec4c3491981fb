"""Chooses the recipe of `xalign continue` by the method that was asked for, the data, and the encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_ray.errors import ConfigError
from xalign_ray.models.backbone import encoder_values
from xalign_ray.models.continued import check_encoder_files, has_head
from xalign_ray.models.families import family_of
from xalign_ray.models.hub import hub_file, in_cache
from xalign_ray.models.sentence_modules import own_pooling
from xalign_ray.models.weight_files import CONFIG, read_config

# What `xalign continue` needs to know of an encoder before it is opened: its width, its head, its pooling.


@dataclass(frozen=True)
class Encoder:
    """An encoder to continue.

    Attributes:
        name: folder or hub id.
        has_head: whether it has a masked-LM head.
        pooling: how its last layer becomes a sentence vector, "mean" or "cls".
        room: the most tokens of a row.
        no_masked_lm: why its family's masked LM cannot be trained; empty if it can.
    """

    name: str
    has_head: bool
    hidden_size: int
    pooling: str
    room: int
    no_masked_lm: str = ""


def look_at_encoder(name: str) -> Encoder:
    """Reads the config of an encoder, the names of its weights and its pooling; of a hub model, by its small files.

    Raises:
        ConfigError: there is no such encoder, or its family cannot be continued.
        DataError: its files are damaged.
    """
    known = encoder_values(name)
    if known is None or Path(name).is_dir():
        check_encoder_files(name)
    values = known or _read_of_hub(name)
    found = has_head(in_cache(name), values)
    if found is None:
        classes = values.get("architectures") or ["ForMaskedLM"]  # left out where we know a model by its name
        found = any(one.endswith("ForMaskedLM") for one in classes)
    pooling = own_pooling(name) if Path(name).is_dir() or known is None else None  # of those that we know by name: mean
    family = family_of(name, values)
    room = family.room({**family.defaults, **values})
    return Encoder(name, found, int(values["hidden_size"]), pooling or "mean", room, family.no_masked_lm)


def _read_of_hub(name: str) -> Mapping[str, Any]:
    path = hub_file(name, CONFIG)
    if path is None:
        raise ConfigError(
            f"{name} is neither a folder nor a model that the hub answers for: check the name, or download it and name "
            "its folder."
        )
    return read_config(str(path.parent))


AUTO = "auto"
METHODS = (AUTO, "contrast", "contrast-tlm", "distill", "align", "weam", "ppa", "mlm")
LARGE = 1024  # hidden size from which an encoder is continued at half the learning rate
REPLAY = 0.1  # share of rows that are text, where text is given beside pairs
NEW_HEAD = ", or --set allow=[new_head], which trains one from random weights and harms the encoder at first"
PAIRS, DICTIONARY, TEXT, TEACHER = "--pairs FILE", "--dictionary FILE", "--text FILE", "--teacher FOLDER"


@dataclass(frozen=True)
class Given:
    """What a method may need.

    Attributes:
        encoder: its name, for messages.
        has_head: whether the encoder has a masked-LM head, or a new one is allowed.
        pairs, dictionary, text: whether such files are given.
        no_masked_lm: why its family's masked LM cannot be trained, empty if it can; see models/family.py.
        teacher: whether an encoder is given whose vectors are learned.
    """

    encoder: str
    has_head: bool
    pairs: bool
    dictionary: bool
    text: bool
    no_masked_lm: str = ""
    teacher: bool = False


@dataclass(frozen=True)
class Choice:
    """A recipe's name below `continue/`, and in a sentence why it was chosen."""

    recipe: str
    why: str


def choose(method: str, given: Given) -> Choice:
    """The recipe of a method.

    Raises:
        ConfigError: the data or the encoder do not allow the method.
    """
    if given.teacher and method != "distill":
        raise ConfigError(f"--teacher is for --method distill, and the method is {method}.")
    if method == AUTO:
        return _choose_auto(given)
    if refused := _refusal(method, given):
        raise ConfigError(f"--method {method}: {refused}")
    if given.has_head:
        return Choice(method, f"Method {method}, as asked for.")
    instead = {"align": "align-contrast", "ppa": "ppa-no-tlm"}.get(method, method)
    changed = {
        "align": "; the encoder has no masked-LM head, so contrast trains beside the dictionary",
        "ppa": "; the encoder has no masked-LM head, so without TLM",
    }.get(method, "")
    return Choice(instead, f"Method {method}, as asked for{changed}.")


def _choose_auto(given: Given) -> Choice:
    if given.pairs and given.has_head:
        return Choice("contrast-tlm", "Method contrast-tlm: pairs, and an encoder with a masked-LM head.")
    if given.pairs:
        return Choice("contrast", "Method contrast: pairs, and an encoder without a masked-LM head.")
    for method, there, why in (
        ("align", given.dictionary, "a dictionary without pairs"),
        ("mlm", given.text, "text alone"),
    ):
        if there:
            if refused := _refusal(method, given):
                raise ConfigError(f"--method auto takes {method} of {why}, but {refused}")
            return Choice(method, f"Method {method}: {why}.")
    raise ConfigError(f"There is nothing to train on: give {PAIRS}, {DICTIONARY} or {TEXT}.")


def _refusal(method: str, given: Given) -> str:
    """Why a method cannot be trained, and what to do; empty if it can."""
    no_head = f"{given.encoder} has no masked-LM head"
    new_head = NEW_HEAD
    if given.no_masked_lm:
        no_head, new_head = f"{given.encoder} {given.no_masked_lm}", ""
    needed = {
        "contrast": [(given.pairs, f"it needs sentence pairs: add {PAIRS}.")],
        "contrast-tlm": [
            (given.pairs, f"it needs sentence pairs: add {PAIRS}."),
            (given.has_head, f"TLM predicts masked words, and {no_head}: take --method contrast{new_head}."),
        ],
        "distill": [
            (given.pairs, f"it needs sentence pairs: add {PAIRS}."),
            (given.teacher, f"it learns another encoder's sentence vectors: add {TEACHER}."),
        ],
        "align": [
            (given.dictionary, f"it draws the words of a dictionary together: add {DICTIONARY}."),
            (
                given.pairs or given.text or not given.has_head,
                f"it needs sentences to predict words in: add {TEXT} or {PAIRS}.",
            ),
            (
                given.pairs or given.has_head,
                f"{no_head}, and the dictionary alone would draw all words together: add {PAIRS}.",
            ),
        ],
        "weam": [
            (given.pairs, f"it needs sentence pairs: add {PAIRS}."),
            (given.has_head, f"it predicts masked words, and {no_head}: take --method contrast{new_head}."),
        ],
        "ppa": [(given.pairs, f"it needs sentence pairs: add {PAIRS}.")],
        "mlm": [
            (given.text, f"it needs text: add {TEXT}."),
            (
                given.has_head,
                f"it predicts masked words, and {no_head}: take --method contrast with {PAIRS}{new_head}.",
            ),
        ],
    }
    return next((why for there, why in needed[method] if not there), "")


def check_replay(replay: float | None, given: Given, recipe: str) -> float:
    """The share of rows that are monolingual text, for masked LM.

    Raises:
        ConfigError: a share is asked for that cannot be trained.
    """
    is_text_itself = recipe == "mlm" or (recipe == "align" and given.text)
    if replay is None:
        return REPLAY if given.text and given.has_head and not is_text_itself else 0.0
    if not replay or is_text_itself:
        return 0.0
    if not given.text:
        raise ConfigError(f"--replay {replay:g} mixes text of the encoder's own kind in: add {TEXT}.")
    if not given.has_head:
        raise ConfigError(
            f"--replay {replay:g} is masked LM on text, and {given.encoder} has no masked-LM head, so it "
            "learns nothing from text. To keep a language, add sentence pairs in it (one more --pairs FILE); --keep "
            "FILE shows whether it was kept."
        )
    return replay
