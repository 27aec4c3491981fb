"""Errors that speak to the user, each in sentences that name the key or file and the fix; the disk's and Ray's too."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from xalign_ray.work.credentials import hide_credentials

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HINTS = {
    **dict.fromkeys(_FULL, "Make room, or raise the limit, and give it again."),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "Raise the limit (`ulimit -n 65536`) and give the command again."),
    **dict.fromkeys((errno.EAGAIN, errno.ENOMEM), "End other processes, or raise the limit (memory, `ulimit -u`)."),
    **dict.fromkeys((errno.EIO, errno.ESTALE), "The disk or its server fails: look at it, and give the command again."),
    **dict.fromkeys(
        (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPIPE),
        "Check the network, and give the command again.",
    ),
    errno.ENOTEMPTY: "Remove what is there, and give the command again.",
    errno.ENAMETOOLONG: "Give a shorter name.",
    errno.ELOOP: "Links lead in a circle there: remove one.",
    errno.ENOENT: "It was there, or should be: give the command that makes it again.",
}
_IN_RUST = re.compile(r"\(os error (\d+)\)")  # how tokenizers and safetensors pass on what the system said
# What Ray's monitor of memory says of the machine, and of each process that it kills.
_OF_MACHINE = re.compile(r"was ([\d.]+)GB used / ([\d.]+)GB limit")
_KILLED = re.compile(r"Selected to kill: (?:.*?task name=([^,]*),)?.*?pid=(\d+), actual memory used=([\d.]+)GB")
_NO_UTF_8 = re.compile(r"[\w./ -]*[\udc80-\udcff][\w./ \udc80-\udcff-]*")  # a path, bytes as Python keeps them


class XalignError(Exception):
    """Base of every error that is shown without a traceback; exit code 1."""

    exit_code = 1

    def __str__(self) -> str:
        """The sentences; a URI in them without its credentials."""
        return hide_credentials(super().__str__())


class ConfigError(XalignError):
    """The recipe or the command line cannot mean anything; exit code 2."""

    exit_code = 2


class DataError(XalignError):
    """Input files are missing, empty, damaged, or worse than the recipe allows."""


class CheckpointError(XalignError):
    """A checkpoint cannot be written, or belongs to another run."""


class TrainingError(XalignError):
    """Training cannot go on: a loss or a gradient that is not finite, workers that kept dying."""


class LossError(TrainingError):
    """The loss of a step, or its gradient, is not finite."""


class StoppedError(TrainingError):
    """The process was asked to stop by a signal and did so in order.

    Args:
        said: the sentence.
        code: the exit code.
    """

    def __init__(self, said: str, code: int = 1) -> None:
        super().__init__(said, code)
        self.exit_code = code

    def __str__(self) -> str:
        return self.args[0]


class LockError(XalignError):
    """Another process writes the folder, or has taken it over, or nobody can write it."""


class ClusterError(XalignError):
    """Ray did not start, or a process of its own died: nothing is wrong with the recipe or the data."""


class TrackingError(XalignError):
    """The tracking server was asked for directly and cannot be reached."""


def first_sentence(error: BaseException) -> str:
    """What an error of Ray's says first: an explanation for its developers may follow."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said.partition(". ")[0].rstrip(".") + "."


def out_of_memory(text: str) -> str | None:
    """The sentence for processes that Ray killed because a machine's memory was nearly full; None for another text."""
    machine, killed = _OF_MACHINE.search(text), _KILLED.findall(text)
    if not machine or not killed:
        return None
    task, pid, held = max(killed, key=lambda process: float(process[2]))
    process, less = f"the process of {task or 'Ray'}", "parallel.data_cpus=2 runs fewer of them at once"
    if task.startswith("RayTrainWorker"):
        process, less = "a training process", "train.per_device_batch_size=N with a smaller N takes less"
    return (
        f"Out of memory: {process} (pid {pid}) held {held} GB when {machine[1]} of the machine's {machine[2]} GB were "
        f"in use, and Ray killed it. Rerun the same command to resume; --set {less}."
    )


def explain(error: Exception) -> str | None:
    """The sentence for an error of the disk or of Ray; None for what is a mistake of our own."""
    return long_temporary_folder(error) or _what_the_disk_said(error) or _name_said(error) or _what_ray_said(error)


def long_temporary_folder(error: BaseException) -> str | None:
    """The sentence for a socket whose path is too long because of the temporary folder that it lies in."""
    if "AF_UNIX path" not in str(error):
        return None
    name = "RAY_TMPDIR" if "RAY_TMPDIR" in os.environ else "TMPDIR"
    folder = os.environ.get(name, "/tmp")
    return (
        f"{name} is too long for the sockets that Ray and Python put below it: '{folder}' has {len(folder)} "
        f"characters, and a socket's whole path at most 107. Set a shorter one, for example {name}=/tmp."
    )


@contextmanager
def written_in(place: Path) -> Iterator[None]:
    """Inside, a write that finds the disk full gets the name of the folder or file: the system names none."""
    try:
        yield
    except Exception as error:
        if _number_of(error) in _FULL and getattr(error, "filename", None) is None:
            error.filename = str(place)  # type: ignore[attr-defined]
        raise


def fault_of(work: Callable[[], object], folder: Path) -> str:
    """Does a task that writes below a folder; returns what is wrong with its input or with the disk, empty if nothing.

    Ray would wrap what is raised, and another try only meet it again. A mistake of our own is raised.
    """
    try:
        work()
    except Exception as error:
        if _number_of(error) in _FULL:
            error.filename = str(folder)  # type: ignore[attr-defined]  # of all its files: a sentence for all tasks
        said = str(error) if isinstance(error, DataError) else _what_the_disk_said(error)
        if said is None:
            raise
        return said
    return ""


def _what_the_disk_said(error: Exception) -> str | None:
    """A sentence that names the file, and what to do about it where that is known."""
    if (number := _number_of(error)) is None:  # a library's own, without what the system said
        return None
    named = getattr(error, "filename2", None) or getattr(error, "filename", None)
    if named is None and number == errno.ENOENT and _folder_is_gone():
        return "The current folder was removed. Change to one that is there, and give the command again."
    named = named or ("A file that was being written" if number in _FULL else "The system says")
    hint = _HINTS.get(number, "Give a place that can be read and written, with --out or --set output=DIR.")
    return f"{named}: {os.strerror(number)}. {hint}"


def _number_of(error: Exception) -> int | None:
    """The system's number of an error; None of what the system has not said."""
    if isinstance(error, OSError):
        return error.errno
    told = _IN_RUST.search(str(error))
    return int(told[1]) if told else None


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _name_said(error: Exception) -> str | None:
    """A sentence for a name of a file that is in another encoding than UTF-8: no file of ours could hold it."""
    if not isinstance(error, UnicodeEncodeError):
        return None
    begin = max(0, error.start - 200)  # of a text of any length
    if not (named := _NO_UTF_8.search(error.object, begin, error.start + 200)):
        return None
    name = named[0].encode(errors="backslashreplace").decode()
    return f"{name} is a name that is not UTF-8. Rename the file or folder, for example with convmv."


def _what_ray_said(error: Exception) -> str | None:
    """A sentence for the death of a process of Ray's own; what a task of ours raised is not Ray's."""
    raised = getattr(sys.modules.get("ray"), "exceptions", None)  # not imported for those who do without
    if raised is None or not isinstance(error, raised.RayError) or isinstance(error, raised.RayTaskError):
        return None
    return out_of_memory(str(error)) or (
        f"The Ray cluster lost a process or a node under this command ({type(error).__name__}: "
        f"{first_sentence(error)}) Give the same command again: it goes on from what is on disk."
    )
