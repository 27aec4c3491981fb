"""Errors that speak to the user: each is one or more sentences that name the key or file and the fix."""

from __future__ import annotations


class XalignError(Exception):
    """Base of every error that is shown without a traceback; exit code 1."""

    exit_code = 1


class ConfigError(XalignError):
    """The recipe or the command line cannot mean anything; exit code 2."""

    exit_code = 2


class DataError(XalignError):
    """Input files are missing, empty, damaged, or worse than the stated tolerance."""


class CheckpointError(XalignError):
    """A checkpoint cannot be written, or belongs to another run."""


class TrainingError(XalignError):
    """Training cannot go on: a loss that is not finite, workers that kept dying."""


class TrackingError(XalignError):
    """The tracking server was asked for directly and cannot be reached."""
