"""A run's weights as a Hugging Face folder: of its newest checkpoint, of another step, or as the seed gave them."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.load import Recipe, open_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError
from xalign_ray.track.events import EventReader
from xalign_ray.work.artifacts import finished_run
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import fetch, fetch_checkpoint, local_folder, opened
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import shown_path

if TYPE_CHECKING:
    from torch import Tensor

    from xalign_ray.models.sentence_modules import SentenceForm
    from xalign_ray.shards.prepared import Prepared

SENTENCES = "sentence-transformers"
LIBRARIES = ("transformers.modeling_utils", "deepspeed", "xalign_ray.models.export", "xalign_ray.results.card")
LOOK_S = 1.0


@contextmanager
def libraries_ahead(log: Path) -> Iterator[None]:
    """Inside, after the first step of training, a thread imports what `export_run` needs: this process only waits.

    Args:
        log: the event log of the run; before it tells of a step the processor is busy with the start of workers.
    """
    over, events = threading.Event(), EventReader(log)
    for _ in events.stream():
        pass  # of earlier attempts

    def load() -> None:
        with suppress(Exception):  # of a process that ends meanwhile; if it is another, the export itself meets it
            while not any(event["event"] == "step" for event in events.read()):
                if over.wait(LOOK_S):
                    return
            from xalign_ray.models.export import name_accelerator

            name_accelerator()
            for name in LIBRARIES:
                importlib.import_module(name)

    threading.Thread(target=load, name="libraries", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def export_run(
    recipe: Recipe,
    prepared: Prepared,
    folder: Path,
    facts: dict[str, Any],
    step: int | None = None,
    out: Path | None = None,
    trust: bool = False,
    form: SentenceForm | None = None,
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
        form,
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


def sentence_form(config: RunConfig, pooling: str = "", prompts: Sequence[str] = ()) -> SentenceForm:
    """How a run's encoder makes sentence vectors: as asked for, else as its loss pools, else as its start does.

    Args:
        pooling: "mean" or "cls"; if empty, that of the first loss that pools, else of the encoder that was continued,
            else "mean".
        prompts: `NAME=TEXT` each, besides those of the encoder that was continued; the first is the default.

    Raises:
        ConfigError: the encoder has language embeddings, or an argument cannot mean anything.
        DataError: files of the encoder that was continued are damaged.
    """
    from xalign_ray.models.sentence_modules import SentenceForm, own_max_length, own_pooling, own_prompts

    if config.model.language_embeddings:
        raise ConfigError(
            f"--as {SENTENCES}: this encoder has language embeddings, and Sentence Transformers says no text's "
            "language. Continue it with model.language_embeddings: false."
        )
    if pooling not in ("", "mean", "cls"):
        raise ConfigError(f"--pooling {pooling}: it is mean or cls.")
    if wrong := [one for one in prompts if not one.partition("=")[0] or "=" not in one]:
        raise ConfigError(f"--prompt '{wrong[0]}': give a name and a text, such as 'query=query: '.")
    given = {name: text for name, _, text in (one.partition("=") for one in prompts)}
    start = config.model.init_from
    others, default = own_prompts(start) if start else ({}, None)
    asked = next((found for loss in config.objectives if (found := getattr(loss, "pooling", None))), None)
    pooled = pooling or asked or (own_pooling(start) if start else None) or "mean"
    first = next(iter(given), default)
    return SentenceForm(pooled, others | given, first, own_max_length(start) if start else None)


def open_data(run: Path) -> Prepared:
    """The shards that a run reads.

    Raises:
        DataError: its event log does not say which.
    """
    from xalign_ray.shards.prepared import Prepared
    from xalign_ray.track.events import read_events

    data = next((event["data"] for event in read_events(RunFolder(run).events) if "data" in event), None)
    if data is None:
        raise DataError(f"{RunFolder(run).events} does not say which data the run reads. Restore it from a copy.")
    fetch(prepared := local_folder(data))
    return Prepared.open(prepared)


def export(
    run: str | Path,
    step: int | None = None,
    out: Path | None = None,
    trust: bool = False,
    as_: str = "",
    pooling: str = "",
    prompts: Sequence[str] = (),
) -> Path:
    """Exports a run folder again, finished or not.

    Args:
        step: of a checkpoint that was kept, the newest if None; 0 is the untrained encoder, the control of its run.
        out: `<run>/export` by default, for a step `<run>/export_step_<step>`.
        trust: whether the files of the checkpoint may run code.
        as_: "sentence-transformers" for a folder that Sentence Transformers opens; pooling and prompts are for it.
    """
    run, out = opened(run), local_folder(out) if out else None
    recipe, fingerprint = open_saved(run)
    if as_ not in ("", SENTENCES):
        raise ConfigError(f"--as {as_}: the other form of an export is {SENTENCES}.")
    if not as_ and (pooling or prompts):
        raise ConfigError(f"--pooling and --prompt say how sentence vectors are made: add --as {SENTENCES}.")
    form = sentence_form(recipe.config, pooling, prompts) if as_ else None
    say(f"Exporting {shown_path(run)}: reading {'its newest checkpoint' if step is None else f'step {step}'}.")
    prepared = open_data(run)
    if step != 0:
        fetch_checkpoint(run, step)
    from xalign_ray.results.card import write_model_card

    with open_job(out or run, "export", with_run=True) as job:
        if out is None and step is None:
            job.finish(card=write_model_card)  # which lies in the export that is replaced
        return export_run(recipe, prepared, run, {"fingerprint": fingerprint}, step, out, trust, form)
