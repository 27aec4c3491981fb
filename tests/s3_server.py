"""A real S3 server (moto's) in a thread, with a gate before it that really slows down, fails and cuts off answers."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

BUCKET = "store"
_EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message></Error>"
)


class S3Server:
    """The server; its attributes are the faults that it causes from then on.

    Attributes:
      slow_s: each answer waits so long.
      failing: each so-manieth request is answered 500, 503, 500, ...; 0 for none.
      cut: the part of the answer's body that is sent of objects whose key contains the text; the rest never comes.
      cut_put: half of what is sent arrives of objects whose key contains the text; the answer is that all is well.
      expired: all requests are refused as those with an expired token are.
    """

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self.requests: list[tuple[str, str]] = []
        self.failed = self._before = 0
        self.heal()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def heal(self) -> None:
        """No faults any more."""
        self.slow_s, self.failing, self.cut, self.cut_put, self.expired = 0.0, 0, "", "", False

    @contextmanager
    def fault(self, **kinds: Any) -> Iterator[None]:
        """Inside, these faults."""
        for name, value in kinds.items():
            setattr(self, name, value)
        self.failed, self._before = 0, len(self.requests)
        try:
            yield
        finally:
            self.heal()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
            number = len(self.requests) - self._before
        time.sleep(self.slow_s)
        if self.expired:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("400 Bad Request", [("Content-Type", "application/xml"), ("Content-Length", str(len(_EXPIRED)))])
            return [_EXPIRED if environ["REQUEST_METHOD"] != "HEAD" else b""]
        if self.failing and number % self.failing == 0:
            self.failed += 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            status = ("500 Internal Server Error", "503 Slow Down")[self.failed % 2]
            start(status, [("Content-Length", "0")])
            return [b""]
        if self.cut_put and self.cut_put in environ["PATH_INFO"] and environ["REQUEST_METHOD"] == "PUT":
            whole = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            half = whole[: len(whole) // 2]
            environ |= {"wsgi.input": io.BytesIO(half), "CONTENT_LENGTH": str(len(half))}
        body = self._app(environ, start)
        if self.cut and self.cut in environ["PATH_INFO"] and environ["REQUEST_METHOD"] == "GET":
            whole = b"".join(body)
            return [whole[: len(whole) // 2]]  # its Content-Length stays: the connection ends before
        return body
