"""Credentials inside a tracking URI: taken out before anything is written, kept by this process, reported once."""

from __future__ import annotations

import os
import re
import sys
from urllib.parse import unquote

_DATABASE = re.compile(r"([\w+.-]+://[^:/@]*):[^@]*(@.*)", re.DOTALL)  # as SQLAlchemy reads it
_SERVER = re.compile(r"(https?://)(.*)", re.DOTALL)
_ADDRESS = re.compile(r"([^:@]*|\[[^\]@]*\])(:\d+)?")  # a host and a port, nothing before them
_QUERY = re.compile(r"([?&])[^=&]*(?:password|passwd|pwd|secret|token|api_?key|access_?key)=([^&#]*)&?", re.IGNORECASE)
_IN_TEXT = re.compile(r"([A-Za-z][\w+.-]*://)[^\s/'\"]*@")
_SERVERS = "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in the environment"
_HINTS = {
    "http": _SERVERS,
    "https": _SERVERS,
    "postgresql": "PGPASSWORD in the environment, or ~/.pgpass",
    "mysql": "an option file that the URI names, ?read_default_file=PATH",
}
_OTHER = "what its driver reads them from, or put an MLflow server before it"
_kept: dict[str, str] = {}  # URI with credentials by the URI without


def without_credentials(uri: str) -> str:
    """The URI without credentials, to write and show; this process keeps them, and warns once."""
    shown = strip_credentials(uri)
    if shown != uri:
        if shown not in _kept:
            sys.stderr.write(
                f"The credentials in {shown} are used now and written nowhere. Next time give them by "
                f"{hint_for(uri)}.\n"
            )
        _kept[shown] = uri
        os.environ |= _environment(uri)
    return shown


def with_credentials(shown: str) -> str:
    """The URI for the one who connects: a database's as it was given to this process.

    A server's credentials are in the environment by then: MLflow prints the address that it is given.
    """
    return shown if _server(shown) else _kept.get(shown, shown)


def strip_credentials(uri: str) -> str:
    """Of a server nothing stays but the address; of a database the user's name stays, which a password belongs to."""
    if server := _server(uri):
        return server[0]
    address, mark, query = _DATABASE.sub(r"\1\2", uri).partition("?")
    harmless = "&".join(pair for pair in query.split("&") if not _QUERY.match(f"?{pair}"))
    return f"{address}{mark}{harmless}" if harmless else address


def has_credentials(uri: str) -> bool:
    """Whether a URI of any kind, also one of data, may hold some: a plain query is none."""
    return "@" in uri or _QUERY.search(uri) is not None


def _server(uri: str) -> tuple[str, str, str] | None:
    """The address of a server, what stood before it, and its query."""
    match = _SERVER.fullmatch(uri)
    if not match:
        return None
    rest, *query = re.split(r"[?#]", match[2], maxsplit=1)
    secret = ""
    if not _ADDRESS.fullmatch(rest.partition("/")[0]):
        if "@" not in rest:  # a password with a ? or # in it
            rest, query = match[2], []
        secret, _, rest = rest.rpartition("@")
    return match[1] + rest, secret, "".join(query)


def _environment(uri: str) -> dict[str, str]:
    """The environment variables that MLflow reads in place of credentials in a server's URI."""
    _, secret, query = _server(uri) or ("", "", "")
    user, colon, password = secret.partition(":")
    if colon:
        return {"MLFLOW_TRACKING_USERNAME": unquote(user), "MLFLOW_TRACKING_PASSWORD": unquote(password)}
    named = _QUERY.search(f"?{query}")
    token = user or (named[2] if named else "")
    return {"MLFLOW_TRACKING_TOKEN": unquote(token)} if token else {}


def hint_for(uri: str) -> str:
    """How the credentials of such a URI are given instead."""
    return _HINTS.get(re.split(r"[+:]", uri, maxsplit=1)[0], _OTHER)


def hide_credentials(text: str) -> str:
    """A text for a log or the user, without the credentials of the URIs in it."""
    for shown, uri in _kept.items():
        text = text.replace(uri, shown)
    return _IN_TEXT.sub(r"\1***@", text)
