"""Names the method of a recipe by its streams and losses, whatever the recipe is called."""

from __future__ import annotations

from xalign_ray.config.schema import RunConfig


def method_of(config: RunConfig) -> str:
    """The recipe's method in the words of the papers, `mlm` where nothing is added to plain masked text."""
    read = {loss.stream for loss in config.objectives}
    names = [stream.method for stream in config.streams if stream.kind not in read]
    for loss in config.objectives:
        names.append(loss.method(next((stream for stream in config.streams if stream.kind == loss.stream), None)))
    return "+".join(filter(None, names)) or "mlm"
