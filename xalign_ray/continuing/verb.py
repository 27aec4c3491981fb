"""The verb `continue`: an encoder and data in; trained, exported, compared with itself before, and reported."""

from __future__ import annotations

from pathlib import Path

from xalign_ray.continuing.five_lines import FiveLines
from xalign_ray.work.status_line import say


def plan(lines: FiveLines) -> str:
    """What was found in the data, and what the run will need; starts and writes nothing."""
    from xalign_ray import pipeline
    from xalign_ray.continuing.recipe import resolve

    found = resolve(lines)
    return "\n".join([*found.notes, "", pipeline.plan(found.recipe)])


def show_recipe(lines: FiveLines) -> str:
    """The recipe behind the lines, as the text of a file for `xalign pretrain`."""
    from xalign_ray.continuing.recipe import resolve

    return resolve(lines).as_yaml


def continue_encoder(lines: FiveLines, local: bool = False, trust: bool = False, rehash: bool = False) -> Path:
    """Trains what the lines say, exports it, and compares it with the encoder that it began from.

    Args:
        local: train in this process; the data are prepared on Ray all the same.
        trust: whether the files of a checkpoint that it resumes from may run code.
        rehash: read all input files again.

    Returns:
        The folder of the run; a finished one as it is.

    Raises:
        ConfigError: lines, data and encoder do not fit together.
        DataError: a file is missing or damaged.
        TrainingError: training cannot go on.
        LockError: another process writes the run.
    """
    say(f"Continuing {lines.model}: looking at the encoder and the data.")
    from xalign_ray import pipeline  # from here on imports take seconds
    from xalign_ray.continuing.recipe import resolve

    found = resolve(lines)
    for note in found.notes:
        say(note)
    if local:
        pipeline.prepare(found.recipe, rehash=rehash)
    run = pipeline.pretrain(found.recipe, found.out, local, trust, rehash and not local)
    from xalign_ray.continuing.closing import close

    close(found, run)
    return run
