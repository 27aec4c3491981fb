"""Errors that speak to the user: each is one or more sentences that name the key or file and the fix."""

from __future__ import annotations

from xalign_ray.credentials import hide_credentials


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
    """Input files are missing, empty, damaged, or worse than the stated tolerance."""


class CheckpointError(XalignError):
    """A checkpoint cannot be written, or belongs to another run."""


class TrainingError(XalignError):
    """Training cannot go on: a loss that is not finite, workers that kept dying."""


class StoppedError(TrainingError):
    """The process was told to stop by a signal and did so in order.

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


class TrackingError(XalignError):
    """The tracking server was asked for directly and cannot be reached."""
