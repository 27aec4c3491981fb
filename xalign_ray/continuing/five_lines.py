"""The options of `xalign continue`, typed: of the command line and of a YAML file, with mistakes as sentences."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError

from xalign_ray.config.explain import explain_validation, meant_key
from xalign_ray.config.fields import Float, Frozen, LocalPath, Positive
from xalign_ray.config.load import read_mapping
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.work.storage import expand_home

YAML = (".yaml", ".yml")
MOST_UNKNOWN = 0.05  # share of a language's pieces that may be unknown to the vocabulary
COMMAND_LINE = "xalign continue"

# Keys of the recipe that options of the command set; messages name them as `train.max_steps` or `data.tests.0`.
_OPTIONS = {
    "data.corpora": "--text",
    "data.dev": "--dev",
    "data.dictionaries": "--dictionary",
    "data.parallel": "--pairs",
    "data.teacher.path": "--teacher",
    "data.tests": "--test",
    "model.init_from": "MODEL",
    "model.lora": "--lora",
    "parallel.workers": "--workers",
    "train.max_steps": "--steps",
}
_WRITTEN_BY_OPTIONS = re.compile(rf"(?:--set )?\b({'|'.join(map(re.escape, _OPTIONS))})\b(?:\.\d+)?(=(?=\d))?")


@contextmanager
def options_named() -> Iterator[None]:
    """Inside, an error names the option of the command in place of the recipe's key that it sets."""
    try:
        yield
    except (ConfigError, DataError) as error:
        named = _WRITTEN_BY_OPTIONS.sub(lambda key: _OPTIONS[key[1]] + (" " if key[2] else ""), str(error))
        error.args = (named,)
        raise


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _as_settings(value: Any) -> Any:
    """`{key: value}` of a file as the `key=value` of the command line."""
    if not isinstance(value, Mapping):
        return _listed(value)
    return tuple(f"{key}={text if isinstance(text, str) else json.dumps(text)}" for key, text in value.items())


Paths = Annotated[tuple[LocalPath, ...], BeforeValidator(_listed)]
Words = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Method = Literal["auto", "contrast", "contrast-tlm", "add", "distill", "align", "weam", "ppa", "mlm"]
METHODS = get_args(Method)


class FiveLines(Frozen):
    """The options of `xalign continue`; `verbs.continue_encoder` describes each."""

    model: LocalPath
    pairs: Paths = ()
    test: Paths = ()
    dev: Paths = ()
    keep_best: bool = True
    method: Method = "auto"
    teacher: LocalPath | None = None
    dictionary: Paths = ()
    text: Paths = ()
    keep: Paths = ()
    margin: Annotated[Float, Field(gt=0)] = 1.0
    lose_at_most: Annotated[Float | None, Field(gt=0)] = None
    pieces: Positive | None = None
    replay: Annotated[Float | None, Field(ge=0, lt=1)] = None
    lora: Positive | None = None
    languages: Words = ()
    columns: Words = ()
    where: str = ""
    allow_unknown: Annotated[Float, Field(ge=0, le=1)] = MOST_UNKNOWN
    output: LocalPath | None = None
    steps: Positive | None = None
    hours: Annotated[Float | None, Field(gt=0)] = None
    budget: Annotated[Float | None, Field(gt=0)] = None
    price: Words = ()
    workers: Positive = 1
    set: Annotated[tuple[str, ...], BeforeValidator(_as_settings)] = ()

    @property
    def command(self) -> str:
        """The same options as a command line for a shell."""
        words = [*COMMAND_LINE.split(), self.model, *(() if self.keep_best else ("--no-keep-best",))]
        for key, value in self.model_dump(exclude={"model", "keep_best"}, exclude_defaults=True).items():
            option = {"output": "out"}.get(key, key.replace("_", "-"))
            values = (",".join(value),) if key in ("languages", "columns") else value
            for word in values if isinstance(values, tuple) else (values,):
                words += [f"--{option}", f"{word:.15g}" if isinstance(word, float) else str(word)]
        return shlex.join(words)

    def _faults(self) -> Iterator[str]:
        lengths = [name for name in ("steps", "hours", "budget") if getattr(self, name) is not None]
        if len(lengths) > 1:
            yield f"{' and '.join(lengths)} are both a length; keep one"
        if self.budget is not None and not self.price:
            yield "budget needs the price of an hour of the device, such as price H100=2.5"
        if self.lose_at_most is not None and not self.keep:
            yield "lose_at_most bounds what is lost of the kept files: name some with keep"
        trained = {path.rpartition("=")[2] for path in (*self.pairs, *self.text)}  # text may be de=FILE
        if both := [path for path in self.keep if path.rpartition("=")[2] in trained]:
            yield f"keep names {both[0]}, which is trained on: forgetting is measured on other files"
        if self.dev and not self.keep_best:
            yield "dev names the pairs that choose the best checkpoint, and keep_best is false; keep one"
        for name in ("languages", "columns"):
            if len(getattr(self, name)) not in (0, 2):
                yield f"{name} names the two sides of the pairs: give two, as in {name} en,de"


def read_five_lines(model: str, options: Mapping[str, Any]) -> FiveLines:
    """Merges the options of the command line over a YAML file if `model` is one; settings of both are joined.

    Args:
        model: folder, hub id, or YAML file of the same keys.
        options: by key; empty ones count as not given.

    Raises:
        ConfigError: a key is unknown, or a value has no meaning.
    """
    named = {key: value for key, value in options.items() if value not in (None, "", (), [])}
    tree: dict[str, Any] = {"model": model}
    origin = COMMAND_LINE
    if model.endswith(YAML):
        path = Path(expand_home(model))
        if not path.is_file():
            raise ConfigError(
                f"There is no file {model}. Name a model, or a YAML file with keys such as model and pairs."
            )
        tree, origin = read_mapping(path), str(path)
        if recipe_keys := [key for key in ("extends", "data", "train") if key in tree]:
            raise ConfigError(
                f"{path} is a recipe (it has the key {recipe_keys[0]}): run it with xalign pretrain {model}. The keys "
                f"of xalign continue are {', '.join(FiveLines.model_fields)}."
            )
    for key in map(str, tree):
        recipe_key = None if key in FiveLines.model_fields else meant_key(RunConfig, (), "", key)
        if recipe_key and recipe_key not in FiveLines.model_fields:
            raise ConfigError(f"{origin}: '{key}' is a key of the recipe: write it as set: {{{recipe_key}: VALUE}}.")
    if "set" in named and isinstance(tree.get("set"), str | list | Mapping):
        named["set"] = [*_as_settings(tree["set"]), *named["set"]]
    origins = dict.fromkeys(tree, origin) | dict.fromkeys(named, COMMAND_LINE)
    try:
        return FiveLines.model_validate(tree | named)
    except ValidationError as error:
        raise ConfigError(explain_validation(error, FiveLines, origins, origin)) from None
