"""Address and token of a Ray cluster: whether one answers there, and the token of one that is started here."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from xalign_ray.errors import ConfigError
from xalign_ray.work.storage import home_folder

GIVEN = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # where Ray looks before it looks into the home folder


def ensure_token() -> None:
    """Writes `~/.ray/auth_token` where there is none and the environment gives none.

    Ray would write it readable by every user of the machine, and two commands at once would write two.

    Raises:
        ConfigError: the home folder cannot be written.
    """
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token" or any(os.environ.get(name) for name in GIVEN):
        return
    path = home_folder() / ".ray" / "auth_token"
    try:
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"auth_token.{os.getpid()}")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        with suppress(FileExistsError):  # another process was first: its token holds
            os.link(temporary, path)
        temporary.unlink()
    except OSError as error:
        raise ConfigError(
            f"The token that keeps other users out of this cluster cannot be written to {path}: {error.strerror}. "
            "Set RAY_AUTH_TOKEN to a long random text, or RAY_AUTH_TOKEN_PATH to a file that holds one."
        ) from None


ANSWER_S = 5.0  # to connect, and to answer


def named_cluster() -> str:
    """The address in RAY_ADDRESS; empty where it has none, or `local`: then a cluster is started on this machine."""
    address = os.environ.get("RAY_ADDRESS", "").strip()
    return "" if address == "local" else address


def check_named_cluster() -> None:
    """Whether the cluster that RAY_ADDRESS names answers, if it names one and this process has not joined any.

    Verbs ask before anything else: Ray alone takes seconds to import.

    Raises:
        ConfigError: as `check_address`.
    """
    ray = sys.modules.get("ray")
    if (address := named_cluster()) and not (ray and ray.is_initialized()):
        check_address(address)


def check_address(address: str) -> None:
    """Whether a gRPC server, as Ray's head node runs one, answers at an address of RAY_ADDRESS and takes our token.

    Addresses of another scheme, such as `http://`, are Ray's to judge.

    Raises:
        ConfigError: it has no host or port, nothing answers within ANSWER_S, something else does, or the token is not
            the cluster's.
    """
    written = address
    if address == "auto":
        from xalign_ray.private.ray import address_of_auto

        address = address_of_auto()
    scheme, _, rest = address.rpartition("://")
    if scheme not in ("", "ray"):
        return
    try:
        with socket.create_connection(_host_and_port(rest), timeout=ANSWER_S):
            why = ""
        if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
            why = _refusal(rest, is_auto=written == "auto")
    except ValueError:
        why = "it is no HOST:PORT" if address else "no cluster was started on this machine"
    except OSError as error:
        why = f"nothing answers there ({error.strerror or error})"
    if why:
        hint = "" if why == UNAUTHENTICATED else f". {_HINT}"
        raise ConfigError(f"The cluster at {written}, which RAY_ADDRESS names, cannot be joined: {why}{hint}")


_HINT = (
    "Start it, set RAY_ADDRESS to the HOST:PORT that `ray start` prints on the head node, or unset it to start a "
    "cluster here."
)
UNAUTHENTICATED = (
    "it wants its token, which `ray get-auth-token` prints on its head node. Set RAY_AUTH_MODE=token, and "
    "RAY_AUTH_TOKEN to the token or RAY_AUTH_TOKEN_PATH to a file that holds it."
)


def _refusal(address: str, is_auto: bool) -> str:
    """Why a call of Ray's, with the token that Ray would send, fails; Ray itself would try for 20 s."""
    import grpc  # here: a cluster that is started needs none of it

    mode, token = os.environ.get("RAY_AUTH_MODE"), _own_token()
    sends = mode.lower() == "token" if mode else is_auto and bool(token)
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetAllNodeInfo")(
                b"", timeout=ANSWER_S, metadata=(("authorization", f"Bearer {token}"),) if sends else ()
            )
        except grpc.RpcError as error:
            reasons = {
                grpc.StatusCode.UNAUTHENTICATED: UNAUTHENTICATED,
                grpc.StatusCode.DEADLINE_EXCEEDED: f"nothing has answered for {ANSWER_S:.0f} s",
                grpc.StatusCode.UNAVAILABLE: "what answers there is not Ray's head node",
            }
            return reasons.get(error.code(), "")  # type: ignore[attr-defined]
    return ""


def _own_token() -> str:
    """The token that Ray would send, empty where there is none; ConfigError where its file cannot be read."""
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or home_folder() / ".ray" / "auth_token")
    try:
        return path.read_text("utf-8", "replace").strip() if path.is_file() else ""
    except OSError as error:
        raise ConfigError(
            f"The cluster's token cannot be read from {path}: {error.strerror}. Let this user read it, or set "
            "RAY_AUTH_TOKEN to the token."
        ) from None


def _host_and_port(address: str) -> tuple[str, int]:
    """ValueError where there is none of either."""
    parts = urlsplit(f"//{address}")
    if not parts.hostname or not parts.port or any(map(str.isspace, address)):
        raise ValueError(address)
    return parts.hostname, parts.port
