"""Errors for the user, in sentences with the key or file and the fix; sentences for errors of the disk and of Ray."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from xalign_ray.work.credentials import hide_credentials

SHOWN = 80  # characters of what stands in a file, in a message
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HINTS = {
    **dict.fromkeys(_FULL, "Make room, or raise the limit, and give it again."),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "Raise the limit (`ulimit -n 65536`) and rerun the command."),
    **dict.fromkeys((errno.EAGAIN, errno.ENOMEM), "End other processes, or raise the limit (memory, `ulimit -u`)."),
    **dict.fromkeys((errno.EIO, errno.ESTALE), "The disk or its server fails: look at it and rerun the command."),
    **dict.fromkeys(
        (errno.ECONNREFUSED, errno.ECONNRESET, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPIPE),
        "Check the network and rerun the command.",
    ),
    errno.ENOTEMPTY: "Remove what is there and rerun the command.",
    errno.ENAMETOOLONG: "Give a shorter name.",
    errno.ELOOP: "Links lead in a circle there: remove one.",
    errno.ENOENT: "It was there, or should be: give the command that makes it again.",
}
_IN_RUST = re.compile(r"\(os error (\d+)\)")  # as tokenizers and safetensors write errors of the system
# Messages of Ray's memory monitor: the machine's memory, and each process that it kills.
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
    """Input files are missing, empty, damaged, or worse than the recipe allows.

    Args:
        what: the sentences; of a file what follows its name.
        path, line: the file, and the line in it.
        shown: its content; the message has the first SHOWN characters.
    """

    def __init__(self, what: str, path: str | Path = "", line: int = 0, shown: str | bytes = "") -> None:
        where = f"{path}:{line} " if line else f"{path} " if path else ""
        text = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else shown
        super().__init__(f"{where}{what}" + (f" It begins: {' '.join(text.split())[:SHOWN]!r}" if text else ""))


class CheckpointError(XalignError):
    """A checkpoint cannot be written, or belongs to another run."""


class TrainingError(XalignError):
    """Training cannot continue: a loss or gradient is not finite, or workers kept dying."""


class LossError(TrainingError):
    """The loss of a step, or its gradient, is not finite."""


class StoppedError(TrainingError):
    """The process was asked to stop by a signal and did so in order.

    Args:
        sentence: the message.
        code: the exit code.
    """

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence, code)
        self.exit_code = code

    def __str__(self) -> str:
        return self.args[0]


class LockError(XalignError):
    """Another process writes the folder, or has taken it over, or nobody can write it."""


class ClusterError(XalignError):
    """Ray did not start, or one of its processes died; recipe and data are fine."""


class TrackingError(XalignError):
    """A tracking server or hub that the command needs cannot be reached."""


def first_sentence(error: BaseException) -> str:
    """The first sentence of an error's message: Ray adds explanations for developers."""
    message = " ".join(str(error).split()) or type(error).__name__
    return message.partition(". ")[0].rstrip(".") + "."


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
    """The sentence for an error of the disk or of Ray; None for any other, which is a bug."""
    return long_temporary_folder(error) or _disk_error(error) or _encoding_error(error) or _ray_error(error)


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
    """Inside, the error of a full disk gets the name of the folder or file: the system names none."""
    try:
        yield
    except Exception as error:
        if _number_of(error) in _FULL and getattr(error, "filename", None) is None:
            error.filename = str(place)  # type: ignore[attr-defined]
        raise


def fault_of(work: Callable[[], object], folder: Path) -> str:
    """Runs a task that writes below a folder; returns the fault of its input or of the disk as a sentence, else empty.

    Ray would wrap such an error, and try the task again in vain. Other errors are raised.
    """
    try:
        work()
    except Exception as error:
        if _number_of(error) in _FULL:
            error.filename = str(folder)  # type: ignore[attr-defined]  # of all its files: a sentence for all tasks
        fault = str(error) if isinstance(error, DataError) else _disk_error(error)
        if fault is None:
            raise
        return fault
    return ""


def _disk_error(error: Exception) -> str | None:
    """A sentence that names the file, and what to do about it where that is known."""
    if (number := _number_of(error)) is None:  # a library's error without a number of the system
        return None
    named = getattr(error, "filename2", None) or getattr(error, "filename", None)
    if named is None and number == errno.ENOENT and _folder_is_gone():
        return "The current folder was removed. Change to one that is there and rerun the command."
    named = named or ("A file that was being written" if number in _FULL else "The system says")
    hint = _HINTS.get(number, "Give a place that can be read and written, with --out or --set output=DIR.")
    return f"{named}: {os.strerror(number)}. {hint}"


def _number_of(error: Exception) -> int | None:
    """The system's number of an error; None of other errors."""
    if isinstance(error, OSError):
        return error.errno
    match = _IN_RUST.search(str(error))
    return int(match[1]) if match else None


def _folder_is_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _encoding_error(error: Exception) -> str | None:
    """A sentence for a file name that is not UTF-8: no file of a run could hold it."""
    if not isinstance(error, UnicodeEncodeError):
        return None
    begin = max(0, error.start - 200)  # of a text of any length
    if not (named := _NO_UTF_8.search(error.object, begin, error.start + 200)):
        return None
    name = named[0].encode(errors="backslashreplace").decode()
    return f"{name} is a name that is not UTF-8. Rename the file or folder, for example with convmv."


def _ray_error(error: Exception) -> str | None:
    """A sentence for the death of one of Ray's processes; None for an error that a task raised."""
    raised = getattr(sys.modules.get("ray"), "exceptions", None)  # None without Ray
    if raised is None or not isinstance(error, raised.RayError) or isinstance(error, raised.RayTaskError):
        return None
    return out_of_memory(str(error)) or (
        f"The Ray cluster lost a process or a node under this command ({type(error).__name__}: "
        f"{first_sentence(error)}) Rerun the same command: it resumes from the files on disk."
    )
