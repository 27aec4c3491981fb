"""A run's weights as a Hugging Face folder, of any step; and a run as a model of the Hugging Face hub.

Checkpoints and export become revisions on the hub by way of a queue on disk. RUN/hub holds an export of each checkpoint
that the hub lacks, and `pushed.json`, what it has: a run goes on when the hub does not answer, and
`xalign hub push RUN` sends what is left.
"""

from __future__ import annotations

import importlib
import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_ray.config.load import Recipe, open_saved
from xalign_ray.config.schema import RunConfig
from xalign_ray.errors import ConfigError, DataError, TrackingError
from xalign_ray.track.events import EventReader
from xalign_ray.track.follower import HUB, Track, reason_of
from xalign_ray.work.artifacts import LOCK, MANIFEST, finished_run, whole_json, whole_manifest, write_atomic
from xalign_ray.work.job import open_job
from xalign_ray.work.mirror import RECORD, data_of_run, fetch, fetch_checkpoint, local_folder, opened
from xalign_ray.work.run_folder import CARD, RunFolder
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import shown_path

if TYPE_CHECKING:
    from torch import Tensor

    from xalign_ray.models.sentence_modules import SentenceForm
    from xalign_ray.shards.prepared import Prepared


SENTENCES = "sentence-transformers"
LIBRARIES = ("transformers.modeling_utils", "xalign_ray.models.export", "xalign_ray.results.card")
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
            import torch

            from xalign_ray.private.deepspeed import load_deepspeed

            load_deepspeed(torch.cuda.is_available())  # without MLflow, which transformers would bring in with it
            for name in LIBRARIES:
                if over.is_set():
                    return
                importlib.import_module(name)

    thread = threading.Thread(target=load, name="libraries", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()  # who imports the same at once, or ends the process, meets modules that are half there


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
    from xalign_ray.track.events import newest_data

    data = newest_data(RunFolder(run).events)
    if data is None:
        raise DataError(f"{RunFolder(run).events} does not say which data the run reads. Restore it from a copy.")
    fetch(prepared := data_of_run(run, data))
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
    if out:
        _check_replaceable(out)
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


def _check_replaceable(out: Path) -> None:
    """Refuses a place that holds something else than an earlier export, which a new one replaces as a whole."""
    is_folder = not out.exists() or out.is_dir()
    files = (whole_manifest(out, "fingerprint", "step") or {}).get("files") if is_folder else None
    own = {MANIFEST, CARD, RECORD, LOCK, *(files if isinstance(files, dict) else ())}
    found = (path for path in (out.rglob("*") if is_folder else [out]) if path.is_symlink() or not path.is_dir())
    if other := next((path for path in found if path.relative_to(out).as_posix() not in own), None):
        raise ConfigError(
            f"--out {shown_path(out)}: {shown_path(other)} is there, which no export wrote, and an export replaces all "
            "that is there. Name a new folder."
        )


QUEUE, PUSHED, MAIN = "hub", "pushed.json", "main"
REFUSALS = (400, 401, 403, 404)


def hub_track(repository: str | None) -> Track | None:
    """The repository as one more place that shows a run; None where the recipe names none."""
    return Track(HUB, "", lambda folder: HubRun(folder, repository)) if repository else None


def make_repository(repository: str) -> None:
    """Makes the repository if it is not there, private. A hub that does not answer is said, and holds up no run.

    Raises:
        ConfigError: it answers, and refuses.
    """
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        _api().create_repo(repository, private=True, exist_ok=True)
    except HFValidationError as error:
        raise ConfigError(f"track.hub: '{repository}' is no repository: {error}") from error
    except Exception as error:  # httpx has errors of its own
        if isinstance(error, HfHubHTTPError) and error.response.status_code in REFUSALS:
            raise ConfigError(
                f"track.hub: {repository} cannot be written ({reason_of(error)}). Log in by `hf auth login`, or set "
                "HF_TOKEN to a token that may write there, or set track.hub=null."
            ) from error
        say(f"The hub does not answer ({reason_of(error)}). What a run has for it waits in the run's folder.")


def push(run: str | Path, repository: str = "") -> dict[str, str]:
    """Brings a run to the hub as it stands: checkpoints that are kept as branches `step-500`, its export as `main`.

    What the hub has is not sent again.

    Args:
        repository: `ORG/NAME`; that of the run's recipe if empty.

    Returns:
        The revisions that the hub has now, and their commits.

    Raises:
        ConfigError: neither names a repository, or the hub refuses it.
        TrackingError: the hub does not answer, or has taken a part only; what is left stays in the queue.
    """
    folder = opened(run)
    recipe, _ = open_saved(folder)
    repository = repository or recipe.config.track.hub or ""
    if not repository:
        raise ConfigError(f"{folder} names no repository: give one, as in --to ORG/NAME.")
    say(f"Pushing {shown_path(folder)} to the hub.")
    make_repository(repository)
    hub = HubRun(folder, repository)
    try:
        hub.advance()
        hub.finish()
    except (ConfigError, DataError):
        raise
    except Exception as error:
        raise TrackingError(
            f"{HUB} does not hold all of {folder} ({reason_of(error)}); the same command sends the rest."
        ) from error
    if hub.gone:
        steps = ", ".join(f"{step:,}" for step in hub.gone)
        say(f"Not pushed: checkpoints that are not kept any more, of steps {steps}.")
    return hub.pushed


class HubRun:
    """A run on the hub, as a tracker has it.

    Attributes:
        gone: steps of checkpoints that had been removed before they were exported.
    """

    def __init__(self, folder: Path, repository: str) -> None:
        self.run_id = repository
        self.gone: list[int] = []
        self._folder, self._queue = folder, folder / QUEUE
        self._reader = EventReader(RunFolder(folder).events)
        self._api = _api()

    @property
    def pushed(self) -> dict[str, str]:
        """The commit of each revision that the hub has."""
        known = whole_json(self._queue / PUSHED) or {}
        return known.get(self.run_id, {})

    def advance(self) -> bool:
        """Exports new checkpoints into the queue, then pushes what is in it."""
        for event in self._reader.read():
            if event["event"] == "checkpoint":
                self._take(event["step"])
        for folder in sorted(self._queue.glob("step-*[0-9]"), key=lambda path: int(path.name.removeprefix("step-"))):
            if folder.name not in self.pushed:
                self._push(folder.name, folder)
            own = open_saved(self._folder)[0].config.track.hub or self.run_id
            if folder.name in (whole_json(self._queue / PUSHED) or {}).get(own, {}):  # else it waits for that one
                shutil.rmtree(folder)
        return False

    def finish(self) -> None:
        """Pushes the export, if there is one."""
        if RunFolder(self._folder).manifest.is_file():
            self._push(MAIN, RunFolder(self._folder).export)

    def _take(self, step: int) -> None:
        target = self._queue / f"step-{step}"
        if target.name in self.pushed or target.is_dir():
            return
        recipe, fingerprint = open_saved(self._folder)
        try:
            export_run(recipe, open_data(self._folder), self._folder, {"fingerprint": fingerprint}, step, target)
        except DataError:
            if RunFolder(self._folder).checkpoint(step).is_dir():
                raise
            self.gone.append(step)

    def _push(self, revision: str, folder: Path) -> None:
        self._api.create_repo(self.run_id, private=True, exist_ok=True)
        if revision != MAIN:
            self._api.create_branch(self.run_id, branch=revision, exist_ok=True)
        done = self._api.upload_folder(
            repo_id=self.run_id,
            folder_path=folder,
            revision=revision,
            commit_message=f"{self._folder.name}, {revision}",
        )
        known = whole_json(self._queue / PUSHED) or {}
        known[self.run_id] = {**self.pushed, revision: done.oid}
        write_atomic(self._queue / PUSHED, json.dumps(known, indent=1) + "\n")


def _api() -> Any:
    from huggingface_hub import HfApi
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    return HfApi(library_name="xalign-ray")
