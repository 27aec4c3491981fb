"""A run's weights as a Hugging Face folder: of its newest checkpoint, of another step, or as the seed gave them."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.load import Recipe
from xalign_ray.config.saved import open_saved
from xalign_ray.errors import DataError
from xalign_ray.work.artifacts import finished_run
from xalign_ray.work.job import open_job
from xalign_ray.work.local_paths import shown_path
from xalign_ray.work.mirror import fetch, fetch_checkpoint, local_folder, opened
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

if TYPE_CHECKING:
    from torch import Tensor

    from xalign_ray.data.prepared import Prepared

LIBRARIES = ("transformers.modeling_utils", "deepspeed", "xalign_ray.models.export", "xalign_ray.results.card")
LOOK_S = 1.0


@contextmanager
def libraries_ahead(log: Path) -> Iterator[None]:
    """Inside, as soon as workers train, a thread imports what `export_run` needs: this process only waits for them.

    Args:
        log: the event log of their run; before it grows the processor is busy with their start.
    """
    over, size = threading.Event(), _size(log)

    def load() -> None:
        while _size(log) == size:
            if over.wait(LOOK_S):
                return
        from xalign_ray.models.export import name_accelerator

        name_accelerator()
        with suppress(Exception):  # of a process that ends meanwhile; if it is another, the export itself meets it
            for name in LIBRARIES:
                importlib.import_module(name)

    threading.Thread(target=load, name="libraries", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _size(log: Path) -> int:
    return log.stat().st_size if log.is_file() else 0


def export_run(
    recipe: Recipe,
    prepared: Prepared,
    folder: Path,
    facts: dict[str, Any],
    step: int | None = None,
    out: Path | None = None,
    trust: bool = False,
) -> Path:
    """Writes the weights of a run as a Hugging Face folder: of its newest checkpoint, or of a step."""
    from xalign_ray.models.export import export as write_export

    state, reached = _weights(recipe, prepared, folder, facts["fingerprint"], step, trust)
    target = out or (RunFolder(folder).export if step is None else RunFolder(folder).export_at(step))
    write_export(
        state,
        recipe.config,
        prepared,
        target,
        {"recipe": recipe.name, "fingerprint": facts["fingerprint"], "step": reached},
    )
    return target


def _weights(
    recipe: Recipe, prepared: Prepared, folder: Path, fingerprint: str, step: int | None, trust: bool
) -> tuple[dict[str, Tensor], int]:
    """The weights and the step they are of; at step 0 those that the seed gives, as every run of it began."""
    from xalign_ray.train.checkpoint import consolidate, newest
    from xalign_ray.train.loop import build_objectives

    if step == 0:
        return build_objectives(recipe.config, prepared).state_dict(), 0
    finished = finished_run(folder) or {}
    checkpoint, damage = newest(folder, fingerprint, step, trust)
    if checkpoint is None or (step is None and checkpoint.step < finished.get("steps", 0)):
        asked = "whole checkpoint to export" if step is None else f"whole checkpoint of step {step}"
        hint = f"{RunFolder(folder).checkpoints} has no {asked}; let `xalign pretrain` reach one."
        raise DataError(" ".join([*damage, hint]))
    return consolidate(checkpoint), checkpoint.step


def export(run: str | Path, step: int | None = None, out: Path | None = None, trust: bool = False) -> Path:
    """Exports a run folder again, finished or not.

    Args:
        step: of a checkpoint that was kept, the newest if None; 0 is the untrained encoder, the control of its run.
        out: `<run>/export` by default, for a step `<run>/export_step_<step>`.
        trust: whether the files of the checkpoint may run code.
    """
    from xalign_ray.data.prepared import Prepared
    from xalign_ray.track.events import read_events

    run, out = opened(run), local_folder(out) if out else None
    recipe, fingerprint = open_saved(run)
    say(f"Exporting {shown_path(run)}: reading {'its newest checkpoint' if step is None else f'step {step}'}.")
    data = next((event["data"] for event in read_events(RunFolder(run).events) if "data" in event), None)
    if data is None:
        raise DataError(f"{RunFolder(run).events} does not say which data the run reads. Restore it from a copy.")
    fetch(prepared := local_folder(data))
    if step != 0:
        fetch_checkpoint(run, step)
    from xalign_ray.results.card import write_model_card

    with open_job(out or run, "export", with_run=True) as job:
        if out is None and step is None:
            job.finish(card=write_model_card)  # which lies in the export that is replaced
        return export_run(recipe, Prepared.open(prepared), run, {"fingerprint": fingerprint}, step, out, trust)
