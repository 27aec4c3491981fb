"""Where a run starts from: what `model.init_from` and the tokenizer `start` mean; and its folders as absolute paths"""

from __future__ import annotations

from dataclasses import replace

from xalign_ray.config.load import Recipe, find_recipe, load_recipe
from xalign_ray.config.schema import DEMO, RUN_OF, DataConfig
from xalign_ray.config.sources import FolderTokenizer, GivenTokenizer, StartTokenizer
from xalign_ray.errors import ConfigError
from xalign_ray.work.storage import absolute_model, absolute_path, is_url


def base_recipe(recipe: Recipe) -> Recipe | None:
    """The recipe whose run this one continues (`model.init_from: run:NAME`), or None.

    It has the same seed, data folder, output, workers and tracking: one run for all that continue it.

    Raises:
        ConfigError: there is no recipe of that name, or it is a URL.
    """
    start = recipe.config.model.init_from or ""
    if is_url(start):
        raise ConfigError(
            f"model.init_from: {start} is a URL; copy the encoder to a folder that all nodes share and name that, or "
            f"the recipe that made it ({RUN_OF}NAME, with the same output)."
        )
    if not start.startswith(RUN_OF):
        return None
    try:
        base = load_recipe(start.removeprefix(RUN_OF))
    except ConfigError as error:
        raise ConfigError(f"model.init_from is '{start}'. {error}") from None
    ours, data = recipe.config, base.config.data.model_copy(update={"root": recipe.config.data.root})
    same = {"seed": ours.seed, "output": ours.output, "parallel": ours.parallel, "track": ours.track, "data": data}
    return replace(base, config=base.config.model_copy(update=same))


def needed_recipes(recipe: Recipe) -> list[Recipe]:
    """The recipe, and those whose runs must be there before its own, each followed by the one that it continues.

    Raises:
        ConfigError: one of them is not there, or continues itself.
    """
    found, files = [recipe], [""]
    while base := base_recipe(found[-1]):
        start = found[-1].config.model.init_from or ""
        file = str(find_recipe(start.removeprefix(RUN_OF)))
        if file in files:
            raise ConfigError(f"model.init_from is '{start}': {file} would continue itself.")
        found.append(base)
        files.append(file)
    return found


def settle(recipe: Recipe, start: str | None) -> Recipe:
    """The recipe with the folder or hub id that it starts from in place of what it said, its tokenizer included.

    Args:
        start: an encoder's folder or hub id; for `prepare` its tokenizer's folder will do.
    """
    if start is None:
        return recipe
    config = recipe.config
    update: dict[str, object] = {"model": config.model.model_copy(update={"init_from": start})}
    if isinstance(tokenizer := config.data.tokenizer, StartTokenizer):
        given = FolderTokenizer(path=start, **tokenizer.model_dump(exclude={"kind"}))
        update["data"] = config.data.model_copy(update={"tokenizer": given})
    return replace(recipe, config=config.model_copy(update=update))


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
    teacher = data.teacher and data.teacher.model_copy(update={"path": absolute_model(data.teacher.path)})
    root = data.root if data.root == DEMO else absolute_path(data.root)
    return data.model_copy(update={"root": root, "tokenizer": tokenizer, "parallel": parallel, "teacher": teacher})


def absolute_aligner(written: str) -> str:
    """The name of an aligner; the folder of `encoder:FOLDER` as absolute path."""
    folder = written.removeprefix(_ENCODER)
    return written if folder == written else f"{_ENCODER}{absolute_model(folder)}"
