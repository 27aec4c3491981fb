"""The listening sockets of processes, and what closes each to strangers, who ask without a token."""

from __future__ import annotations

import ipaddress
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import grpc
import psutil

LOOPBACK, TOKEN, METRICS, GONE, OPEN = "loopback", "Ray's token", "metrics to read, Ray's own, no token", "gone", "OPEN"
PATIENCE_S = 15  # a busy machine answers late
CALLS = (  # one of each of Ray's services
    "CoreWorkerService/GetCoreWorkerStats",
    "CoreWorkerService/PushTask",
    "NodeManagerService/GetNodeStats",
    "NodeManagerService/RequestWorkerLease",
    "ObjectManagerService/Pull",
    "NodeInfoGcsService/GetAllNodeInfo",
    "JobInfoGcsService/AddJob",
    "ReporterService/ReportOCMetrics",
    "RuntimeEnvGcsService/PinRuntimeEnvURI",
)


@dataclass(frozen=True)
class Listening:
    """A socket that takes connections: of which process, at which address of the machine (any: `::` or `0.0.0.0`)."""

    process: str
    pid: int
    address: str
    port: int

    @property
    def on_loopback(self) -> bool:
        """Whether no other machine reaches it."""
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def reached_at(self) -> str:
        """An address that reaches it from here."""
        anywhere = ipaddress.ip_address(self.address).is_unspecified
        return "127.0.0.1" if anywhere else self.address


def listening(pid: int) -> Iterator[Listening]:
    """The listening TCP sockets of a process and of all below it."""
    root = psutil.Process(pid)
    below = {process.pid: process for process in [root, *root.children(recursive=True)]}
    for one in psutil.net_connections("tcp"):  # the system's table once, not once a process: that takes seconds
        if one.status == psutil.CONN_LISTEN and one.pid in below:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                yield Listening(_name(below[one.pid].cmdline()), one.pid, one.laddr.ip, one.laddr.port)


def _name(words: list[str]) -> str:
    """`gcs_server`, `ray::DashboardAgent` whatever it does now, or the script or module that Python runs."""
    shown = [os.path.basename(word) for word in words if word and not word.startswith("-")]
    if shown and shown[0].startswith("ray::"):
        return shown[0].split()[0].partition(".")[0]
    python = bool(shown) and shown[0].startswith("python")
    return shown[1] if python and len(shown) > 1 else shown[0] if shown else "?"


def closed_by(one: Listening) -> str:
    """What keeps a stranger out of a socket; asks it what somebody without a token would."""
    if one.on_loopback:
        return LOOPBACK
    return _ask_http(one) or _ask_grpc(one)


def _ask_http(one: Listening) -> str:
    try:
        with urllib.request.urlopen(f"http://{one.reached_at}:{one.port}/metrics", timeout=PATIENCE_S) as answer:
            return METRICS if b"# HELP" in answer.read(100_000) else OPEN
    except urllib.error.HTTPError as error:
        return TOKEN if error.code in (401, 403) else OPEN
    except (OSError, ValueError):
        return ""
    except Exception:  # it speaks, and not HTTP
        return ""


def _ask_grpc(one: Listening) -> str:
    """Closed if each call that the service knows is refused for want of a token."""
    known = ask_grpc(f"{one.reached_at}:{one.port}")
    if not known:
        return OPEN if _answers(one) else GONE
    return TOKEN if known == {grpc.StatusCode.UNAUTHENTICATED} else OPEN


def ask_grpc(address: str, token: str = "") -> set[grpc.StatusCode]:
    """What a service says to those of `CALLS` that it knows."""
    headers = [("authorization", f"Bearer {token}")] if token else None
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        said = [_call(channel, f"ray.rpc.{name}", headers) for name in CALLS]
    unknown = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return {code for code in said if code not in unknown}


def _call(channel: grpc.Channel, name: str, headers: list[tuple[str, str]] | None) -> grpc.StatusCode:
    try:
        channel.unary_unary(f"/{name}")(b"", timeout=PATIENCE_S, metadata=headers)
    except grpc.RpcError as error:
        return error.code()  # type: ignore[attr-defined]
    return grpc.StatusCode.OK


def _answers(one: Listening) -> bool:
    with suppress(OSError), socket.create_connection((one.reached_at, one.port), timeout=PATIENCE_S):
        return True
    return False
