"""A recipe's local paths, absolute: workers of Ray Train run in folders of their own."""

from __future__ import annotations

from dataclasses import replace

from xalign_ray.config.load import Recipe
from xalign_ray.config.schema import DEMO, DataConfig
from xalign_ray.config.tokenizers import GivenTokenizer
from xalign_ray.work.local_paths import absolute_model, absolute_path

_ENCODER = "encoder:"  # what `align` begins with where it names a folder


def with_absolute_paths(recipe: Recipe) -> Recipe:
    """The recipe with the folders that it names as absolute paths; relative ones start at the current folder.

    Paths of sources stay: they start at `data.root`. Names stay too: hub ids, URLs, `run:RECIPE`, `demo`.
    """
    config = recipe.config
    model = config.model
    if model.init_from is not None:
        model = model.model_copy(update={"init_from": absolute_model(model.init_from)})
    update = {"output": absolute_path(config.output), "data": _with_absolute_paths(config.data), "model": model}
    return replace(recipe, config=config.model_copy(update=update))


def _with_absolute_paths(data: DataConfig) -> DataConfig:
    tokenizer = data.tokenizer
    if isinstance(tokenizer, GivenTokenizer):
        tokenizer = tokenizer.model_copy(update={"path": absolute_model(tokenizer.path)})
    parallel = tuple(corpus.model_copy(update={"align": absolute_aligner(corpus.align)}) for corpus in data.parallel)
    root = data.root if data.root == DEMO else absolute_path(data.root)
    return data.model_copy(update={"root": root, "tokenizer": tokenizer, "parallel": parallel})


def absolute_aligner(written: str) -> str:
    """The name of an aligner; the folder of `encoder:FOLDER` as absolute path."""
    folder = written.removeprefix(_ENCODER)
    return written if folder == written else f"{_ENCODER}{absolute_model(folder)}"
