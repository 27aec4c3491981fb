"""A model repository on this machine that answers as the Hugging Face hub does, and fails as told."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGE = (".safetensors", ".bin", ".model")  # what goes by way of LFS


@dataclass
class Hub:
    """What it holds, and how it fails.

    Attributes:
        files: of each revision by name.
        failing: answers that the next requests of a kind get in place of the right one, by the end of its path: a
            status, or `cut`: the connection ends in the middle of what is sent.
        asked: method and path of every request.
        token: that it wants.
    """

    url: str = ""
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    failing: dict[str, list[int | str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    private: bool | None = None
    token: str = "hf_right"


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Runs on a free port."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def do_PUT(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        if self._failure() == "cut":
            self.rfile.read(length // 2)
            self.close_connection = True
            self.connection.close()
            return
        self._answer(self.rfile.read(length), failed=None)

    def _failure(self) -> int | str | None:
        for end, left in self.hub.failing.items():
            if re.search(end, self.path) and left:
                return left.pop(0)
        return None

    def _answer(self, body: bytes, failed: int | str | None = -1) -> None:
        self.hub.asked.append(f"{self.command} {self.path}")
        failed = self._failure() if failed == -1 else failed
        if isinstance(failed, int):
            return self._send(failed, {"error": "told to"}, {"Retry-After": "0"})
        if not self.path.startswith("/large/") and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            return self._send(401, {"error": "Invalid credentials"})
        for method, path, answer in ROUTES:
            if method == self.command and (found := re.fullmatch(path, self.path.partition("?")[0])):
                status, said = answer(self.hub, body, *found.groups())
                return self._send(status, said)
        return self._send(404, {"error": f"no {self.path}"})

    def _send(self, status: int, said: Any, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(said).encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(text)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text)


def _create(hub: Hub, body: bytes) -> tuple[int, Any]:
    there = "main" in hub.files
    if not there:
        hub.private = json.loads(body)["visibility"] == "private"
        hub.files["main"] = {}
    url = {"url": f"{hub.url}/org/name"}
    return (409, {"error": "You already created this model repo", **url}) if there else (200, url)


def _preupload(hub: Hub, body: bytes, revision: str) -> tuple[int, Any]:
    known = hub.files[revision]
    files = [
        {
            "path": (path := one["path"]),
            "uploadMode": "lfs" if path.endswith(LARGE) else "regular",
            "shouldIgnore": False,
            "oid": _oid(path, known[path]) if path in known else None,
        }
        for one in json.loads(body)["files"]
    ]
    return 200, {"files": files}


def _oid(path: str, content: bytes) -> str:
    if path.endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()  # git's


def _batch(hub: Hub, body: bytes) -> tuple[int, Any]:
    objects = []
    for one in json.loads(body)["objects"]:
        actions = {} if one["oid"] in hub.large else {"upload": {"href": f"{hub.url}/large/{one['oid']}"}}
        objects.append({**one, "authenticated": True, "actions": actions} if actions else one)
    return 200, {"transfer": "basic", "objects": objects}


def _put(hub: Hub, body: bytes, oid: str) -> tuple[int, Any]:
    assert hashlib.sha256(body).hexdigest() == oid
    hub.large[oid] = body
    return 200, {}


def _commit(hub: Hub, body: bytes, revision: str) -> tuple[int, Any]:
    new = dict(hub.files[revision])
    for line in body.decode().splitlines():
        item = json.loads(line)
        value = item["value"]
        if item["key"] == "file":
            new[value["path"]] = base64.b64decode(value["content"])
        if item["key"] == "lfsFile":
            new[value["path"]] = hub.large[value["oid"]]
    hub.files[revision] = new
    oid = hashlib.sha1(body).hexdigest()
    return 200, {"commitUrl": f"{hub.url}/org/name/commit/{oid}", "commitOid": oid, "pullRequestUrl": None}


def _info(hub: Hub, _: bytes, revision: str = "main") -> tuple[int, Any]:
    if revision not in hub.files:
        return 404, {"error": "Revision not found"}
    return 200, {"id": "org/name", "sha": "0" * 40, "siblings": [], "private": hub.private}


ROUTES = [
    ("POST", r"/api/repos/create", _create),
    ("POST", r"/api/models/org/name/preupload/(.+)", _preupload),
    ("POST", r"/org/name\.git/info/lfs/objects/batch", _batch),
    ("PUT", r"/large/(\w+)", _put),
    ("POST", r"/api/models/org/name/commit/(.+)", _commit),
    ("POST", r"/api/validate-yaml", lambda _, __: (200, {"errors": [], "warnings": []})),
    ("GET", r"/api/models/org/name/revision/(.+)", _info),
    ("GET", r"/api/models/org/name", _info),
]
