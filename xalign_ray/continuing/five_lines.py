"""The few lines of `xalign continue`, typed: from the command line or a YAML file, with mistakes in plain words."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from xalign_ray.config.explain import explain_validation, meant_key
from xalign_ray.config.fields import Float, Frozen, LocalPath, Positive
from xalign_ray.config.load import read_mapping
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.work.storage import expand_home

YAML = (".yaml", ".yml")
COMMAND_LINE = "xalign continue"

# Keys of the recipe that an option of the command writes, as a message names them: `train.max_steps` or `data.tests.0`.
_OPTIONS = {
    "data.corpora": "--text",
    "data.dev": "--dev",
    "data.dictionaries": "--dictionary",
    "data.parallel": "--pairs",
    "data.teacher.path": "--teacher",
    "data.tests": "--test",
    "model.init_from": "MODEL",
    "parallel.workers": "--workers",
    "train.max_steps": "--steps",
}
_WRITTEN_BY_OPTIONS = re.compile(rf"(?:--set )?\b({'|'.join(map(re.escape, _OPTIONS))})\b(?:\.\d+)?(=(?=\d))?")


@contextmanager
def options_named() -> Iterator[None]:
    """Inside, an error that names a key of the recipe names the option that has written it."""
    try:
        yield
    except (ConfigError, DataError) as error:
        named = _WRITTEN_BY_OPTIONS.sub(lambda key: _OPTIONS[key[1]] + (" " if key[2] else ""), str(error))
        error.args = (named,)
        raise


def _listed(given: Any) -> Any:
    """One value is a list of one."""
    return (given,) if isinstance(given, str) else given


def _as_settings(given: Any) -> Any:
    """`{key: value}` of a file as the `key=value` of the command line."""
    if not isinstance(given, Mapping):
        return _listed(given)
    return tuple(f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in given.items())


Paths = Annotated[tuple[LocalPath, ...], BeforeValidator(_listed)]
Words = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Method = Literal["auto", "contrast", "contrast-tlm", "distill", "align", "weam", "ppa", "mlm"]
METHODS = get_args(Method)


class FiveLines(Frozen):
    """What a user says of a continued encoder; everything else follows from it."""

    model: Annotated[LocalPath, Field(description="folder or hub id of the encoder, with @REVISION for one of the hub")]
    pairs: Annotated[Paths, Field(description="files of sentence pairs that are trained on")] = ()
    test: Annotated[Paths, Field(description="files of sentence pairs that are scored and never trained on")] = ()
    dev: Annotated[Paths, Field(description="files of sentence pairs that choose the best checkpoint")] = ()
    keep_best: Annotated[
        bool, Field(description="export the checkpoint that is best on dev pairs, which are cut from pairs by default")
    ] = True
    method: Annotated[Method, Field(description="how it is trained; auto takes what the data allow")] = "auto"
    teacher: Annotated[
        LocalPath | None, Field(description="folder or hub id of the encoder whose sentence vectors distill learns")
    ] = None
    dictionary: Annotated[Paths, Field(description="files of words and their translations")] = ()
    text: Annotated[Paths, Field(description="files of text for masked LM")] = ()
    keep: Annotated[Paths, Field(description="pairs or text in languages that must not get worse")] = ()
    margin: Annotated[Float, Field(gt=0, description="points; a loss that is surely smaller is `kept`")] = 1.0
    replay: Annotated[
        Float | None, Field(ge=0, lt=1, description="share of rows that are text; 0.1 where text is given beside pairs")
    ] = None
    languages: Annotated[Words, Field(description="codes of the two sides of the pairs")] = ()
    columns: Annotated[Words, Field(description="names of the two columns of the pairs")] = ()
    where: Annotated[str, Field(description="which rows of tables of pairs are read: label=1, score>=0.8, or all")] = ""
    allow_unknown: Annotated[
        Float, Field(ge=0, le=1, description="share of unknown pieces of a language above which nothing is trained")
    ] = 0.05
    output: Annotated[LocalPath | None, Field(description="folder of the run")] = None
    steps: Annotated[Positive | None, Field(description="optimizer steps")] = None
    hours: Annotated[Float | None, Field(gt=0, description="length in hours of training")] = None
    budget: Annotated[Float | None, Field(gt=0, description="length in money; needs a price")] = None
    price: Annotated[Words, Field(description="of an hour of a device: H100=2.5")] = ()
    workers: Annotated[Positive, Field(description="training processes")] = 1
    set: Annotated[
        tuple[str, ...], BeforeValidator(_as_settings), Field(description="keys of the recipe: key=value")
    ] = ()

    @property
    def command(self) -> str:
        """The command line that says the same, for a shell."""
        words = [*COMMAND_LINE.split(), self.model, *(() if self.keep_best else ("--no-keep-best",))]
        for key, value in self.model_dump(exclude={"model", "keep_best"}, exclude_defaults=True).items():
            option = {"output": "out"}.get(key, key.replace("_", "-"))
            several = (",".join(value),) if key in ("languages", "columns") else value
            for one in several if isinstance(several, tuple) else (several,):
                words += [f"--{option}", f"{one:.15g}" if isinstance(one, float) else str(one)]
        return shlex.join(words)

    @model_validator(mode="after")
    def _has_one_length(self) -> FiveLines:
        lengths = [name for name in ("steps", "hours", "budget") if getattr(self, name) is not None]
        if len(lengths) > 1:
            raise ValueError(f"{' and '.join(lengths)} are both a length; keep one")
        if self.budget is not None and not self.price:
            raise ValueError("budget needs the price of an hour of the device, such as price H100=2.5")
        return self

    @model_validator(mode="after")
    def _keeps_what_is_not_trained(self) -> FiveLines:
        trained = {path.rpartition("=")[2] for path in (*self.pairs, *self.text)}  # text may be de=FILE
        both = [path for path in self.keep if path.rpartition("=")[2] in trained]
        if both:
            raise ValueError(f"keep names {both[0]}, which is trained on: forgetting is seen in what is not")
        return self

    @model_validator(mode="after")
    def _dev_is_used(self) -> FiveLines:
        if self.dev and not self.keep_best:
            raise ValueError("dev names the pairs that choose the best checkpoint, and keep_best is false; keep one")
        return self

    @model_validator(mode="after")
    def _names_two(self) -> FiveLines:
        for name in ("languages", "columns"):
            if len(getattr(self, name)) not in (0, 2):
                raise ValueError(f"{name} names the two sides of the pairs: give two, as in {name} en,de")
        return self


def read_five_lines(model: str, options: Mapping[str, Any]) -> FiveLines:
    """The lines of the command line, over those of a YAML file where one is named in place of a model.

    Settings of the recipe (`set`) are those of both, the command line's last.

    Args:
        model: folder, hub id, or YAML file of the same keys.
        options: by key; empty ones count as not given.

    Raises:
        ConfigError: a key is unknown, or a value cannot mean anything.
    """
    given = {key: value for key, value in options.items() if value not in (None, "", (), [])}
    tree: dict[str, Any] = {"model": model}
    origin = COMMAND_LINE
    if model.endswith(YAML):
        path = Path(expand_home(model))
        if not path.is_file():
            raise ConfigError(
                f"There is no file {model}. Name a model, or a YAML file with keys such as model and pairs."
            )
        tree, origin = read_mapping(path), str(path)
        if wrong := [key for key in ("extends", "data", "train") if key in tree]:
            raise ConfigError(
                f"{path} is a recipe (it has the key {wrong[0]}): run it with xalign pretrain {model}. The keys of "
                f"xalign continue are {', '.join(FiveLines.model_fields)}."
            )
    for key in map(str, tree):
        meant = None if key in FiveLines.model_fields else meant_key(RunConfig, (), "", key)
        if meant and meant not in FiveLines.model_fields:
            raise ConfigError(f"{origin}: '{key}' is a key of the recipe: write it as set: {{{meant}: VALUE}}.")
    if "set" in given and isinstance(tree.get("set"), str | list | Mapping):
        given["set"] = [*_as_settings(tree["set"]), *given["set"]]
    origins = dict.fromkeys(tree, origin) | dict.fromkeys(given, COMMAND_LINE)
    try:
        return FiveLines.model_validate(tree | given)
    except ValidationError as error:
        raise ConfigError(explain_validation(error, FiveLines, origins, origin)) from None
