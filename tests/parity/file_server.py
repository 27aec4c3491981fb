"""A server of files that breaks connections as a test asks, and the archives that it gives."""

from __future__ import annotations

import io
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """Files by path, how many bytes each connection may carry before it is cut, and the ranges that were asked for."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    break_after: int | None = None
    tag: str = '"one"'
    ranges: list[str] = field(default_factory=list)


@contextmanager
def serve() -> Iterator[Site]:
    """A server on a port of this machine, until the block ends."""
    state = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.ranges.append(self.headers.get("Range", ""))
            content = state.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = int(self.headers.get("Range", "bytes=0-")[6:-1])
            if start and self.headers.get("If-Range") != state.tag:
                start = 0
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("ETag", state.tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = len(content) if state.break_after is None else start + state.break_after
            self.wfile.write(content[start:end])
            if end < len(content):
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is http.server's
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def zipped(**members: bytes) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return sink.getvalue()


def tarred(**members: bytes) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return sink.getvalue()
