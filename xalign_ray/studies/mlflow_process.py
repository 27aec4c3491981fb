"""Process that brings a study and its cells to MLflow, so that its driver spends no time on that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue

from xalign_ray.errors import XalignError
from xalign_ray.track.follower import publish, replay_one, runs_inside, runs_page
from xalign_ray.work.status_line import say


class MlflowProcess:
    """The driver's end of the process: folders go in, one line each.

    Attributes:
        uri: of MLflow.
        page: of the study's runs in MLflow, once finished.
    """

    def __init__(self, study: Path, tracking_uri: str, experiment: str) -> None:
        self.uri, self.page = tracking_uri, ""
        self._study, self._experiment = study, experiment
        paths = [os.path.abspath(path) for path in sys.path]  # tasks of the user's own are imported as here
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(study), tracking_uri, experiment],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            text=True,
        )

    def publish(self, folder: Path) -> None:
        """Queues the folder of a cell, or of the study itself."""
        with suppress(OSError):  # the process has died: `finish` makes up for it
            assert self._process.stdin
            self._process.stdin.write(json.dumps(str(folder)) + "\n")
            self._process.stdin.flush()

    def finish(self) -> str:
        """Waits until MLflow has the study and all of its cells; else gives a sentence on what it lacks."""
        said, _ = self._process.communicate()
        try:
            self.page, lacking = json.loads(said)
        except ValueError:  # it has died
            lacking = publish(self._study, self.uri, self._experiment) or ""
            self.page = runs_page(self.uri, self._experiment)
        return lacking


@contextmanager
def publishing(study: Path, tracking_uri: str, experiment: str) -> Iterator[MlflowProcess]:
    """Publishes a study; at the end MLflow has all of it, or a sentence says what it lacks."""
    publisher = MlflowProcess(study, tracking_uri, experiment)
    publisher.publish(study)
    try:
        yield publisher
    finally:
        if lacking := publisher.finish():
            say(lacking)


def _main(study: Path, tracking_uri: str, experiment: str) -> None:
    """Publishes each folder that is read from standard input; at its end the study, and those of its cells that MLflow
    has not got. Ends with the driver.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the driver
    driver, folders, done = os.getppid(), SimpleQueue[Path | None](), set[Path]()

    def read() -> None:  # at once, so that the driver never waits for the pipe
        for line in sys.stdin:
            folders.put(Path(json.loads(line)))
        folders.put(None)

    threading.Thread(target=read, daemon=True).start()
    while (folder := folders.get()) is not None and os.getppid() == driver:
        with suppress(XalignError):  # tried again at the end
            replay_one(folder, tracking_uri, experiment)
            done.add(folder)
    lacking = ""
    for folder in (study, *(inside for inside in runs_inside(study) if inside not in done)):
        if os.getppid() != driver:
            return
        try:
            replay_one(folder, tracking_uri, experiment)
        except XalignError as error:
            lacking = str(error)
            break
    sys.stdout.write(json.dumps([runs_page(tracking_uri, experiment), lacking]))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), *sys.argv[2:])
