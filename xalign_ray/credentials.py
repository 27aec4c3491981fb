"""Credentials inside a tracking URI: taken out before anything is written, kept by this process alone, told of once."""

from __future__ import annotations

import re
import sys

_DATABASE = re.compile(r"([\w+.-]+://[^:/@]*):[^@]*(@.*)", re.DOTALL)  # as SQLAlchemy reads it
_SERVER = re.compile(r"(https?://)(.*)", re.DOTALL)
_ADDRESS = re.compile(r"([^:@]*|\[[^\]@]*\])(:\d+)?")  # a host and a port, nothing before them
_QUERY = re.compile(r"([?&])[^=&]*(?:password|passwd|pwd|secret|token|api_?key|access_?key)=[^&]*&?", re.IGNORECASE)
_IN_TEXT = re.compile(r"([A-Za-z][\w+.-]*://)[^\s/'\"]*@")
_SERVERS = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in the environment"
_CURES = {
    "http": _SERVERS,
    "https": _SERVERS,
    "postgresql": "PGPASSWORD in the environment, or ~/.pgpass",
    "mysql": "an option file that the URI names, ?read_default_file=PATH",
}
_OTHER = "what its driver reads them from, or put an MLflow server before it"
_kept: dict[str, str] = {}  # by the URI as it is written and shown, the one that was given


def without_credentials(uri: str) -> str:
    """The URI as it may be written and shown; what was taken out stays in this process, and the user is told once."""
    shown = strip_credentials(uri)
    if shown != uri:
        if shown not in _kept:
            said = (
                f"The credentials in {shown} are used now and written nowhere. Next time give them by {cure_of(uri)}."
            )
            sys.stderr.write(f"{said}\n")
        _kept[shown] = uri
    return shown


def with_credentials(shown: str) -> str:
    """The URI as it was given to this process, for the one who connects."""
    return _kept.get(shown, shown)


def strip_credentials(uri: str) -> str:
    """Of a server nothing stays but the address; of a database the user's name stays, which a password belongs to."""
    if found := _SERVER.fullmatch(uri):
        rest = re.split(r"[?#]", found[2], maxsplit=1)[0]
        host = rest.partition("/")[0]
        return found[1] + (rest if _ADDRESS.fullmatch(host) else rest.rpartition("@")[2])
    address, mark, query = _DATABASE.sub(r"\1\2", uri).partition("?")
    return address + _QUERY.sub(r"\1", mark + query).rstrip("?&")


def cure_of(uri: str) -> str:
    """How the credentials of such a URI are given instead."""
    return _CURES.get(re.split(r"[+:]", uri, maxsplit=1)[0], _OTHER)


def hide_credentials(text: str) -> str:
    """A text for a log or the user, without the credentials of the URIs in it."""
    for shown, given in _kept.items():
        text = text.replace(given, shown)
    return _IN_TEXT.sub(r"\1***@", text)
