"""A run's checkpoints and export as revisions of a model on the Hugging Face hub, by way of a queue on disk.

RUN/hub holds an export of each checkpoint that the hub lacks, and `pushed.json`, what it has: a run goes on when the
hub does not answer, and `xalign hub push RUN` sends what is left.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from xalign_ray.config.load import open_saved
from xalign_ray.errors import ConfigError, DataError, TrackingError
from xalign_ray.exports import export_run, open_data
from xalign_ray.track.events import EventReader
from xalign_ray.track.follower import HUB, Track, reason_of
from xalign_ray.work.artifacts import whole_json, write_atomic
from xalign_ray.work.mirror import opened
from xalign_ray.work.run_folder import RunFolder
from xalign_ray.work.status_line import say

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
    repository = repository or open_saved(folder)[0].config.track.hub or ""
    if not repository:
        raise ConfigError(f"{folder} names no repository: give one, as in --to ORG/NAME.")
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
            self._push(folder.name, folder)
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
