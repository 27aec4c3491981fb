"""The token of the clusters that this user starts: made before Ray makes it, and readable by this user alone."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from xalign_ray.errors import ConfigError

GIVEN = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # where Ray looks before it looks into the home folder


def ensure_token() -> None:
    """Writes `~/.ray/auth_token` where there is none and the environment gives none.

    Ray would write it readable by every user of the machine, and two commands at once would write two.

    Raises:
        ConfigError: the home folder cannot be written.
    """
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token" or any(os.environ.get(name) for name in GIVEN):
        return
    path = Path.home() / ".ray" / "auth_token"
    try:
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        own = path.with_name(f"auth_token.{os.getpid()}")
        with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        with suppress(FileExistsError):  # another process was first: its token holds
            os.link(own, path)
        own.unlink()
    except OSError as error:
        raise ConfigError(
            f"The token that keeps other users out of this cluster cannot be written to {path}: {error.strerror}. "
            "Set RAY_AUTH_TOKEN to a long random text, or RAY_AUTH_TOKEN_PATH to a file that holds one."
        ) from None
