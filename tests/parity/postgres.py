"""A real PostgreSQL server, Debian's, that tests start, break and start again."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest

USER, PASSWORD = "mlflow", "not-to-be-shown"
_PATIENCE_S = 120
_AS = next((user for user in ("postgres", "nobody") if user in {one.pw_name for one in pwd.getpwall()}), None)


def program(name: str) -> str:
    """Where a program of PostgreSQL is: Debian keeps those of a server off the PATH."""
    found = [shutil.which(name), *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True))]
    if found := [one for one in found if one]:
        return found[0]
    pytest.fail(f"{name} is not installed; MLflow is tried on a real PostgreSQL. Give `apt-get install postgresql`.")


class Postgres:
    """A server with one database, at loopback, with a password; PostgreSQL refuses to be root."""

    def __init__(self) -> None:
        self._as = _AS if os.geteuid() == 0 else None
        initdb = program("initdb")
        # pytest's own folders can be entered by their user alone.
        self.folder = Path(tempfile.mkdtemp(prefix="xalign-postgres-"))
        word = self.folder / "password"
        word.write_text(PASSWORD)
        if self._as:
            for path in (self.folder, word):
                shutil.chown(path, self._as)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.uri = f"postgresql+psycopg2://{USER}@127.0.0.1:{self._port}/postgres"
        self._run(initdb, "--no-sync", f"--username={USER}", "--auth=scram-sha-256", f"--pwfile={word}")
        self._control("start")

    def crash(self) -> None:
        """Ends it without a word to anybody, and starts it again from its log."""
        self._control("restart", "--mode=immediate")

    @contextmanager
    def holding(self, table: str, writers: int) -> Iterator[None]:
        """Whoever writes to a table waits until as many do: then all have read that what they create is not there."""
        place = self.uri.replace("+psycopg2", "").replace(USER, f"{USER}:{PASSWORD}", 1)
        with closing(psycopg2.connect(place)) as connection, connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {table} IN SHARE MODE")  # reading goes on
            yield
            until, waiting = time.monotonic() + _PATIENCE_S, 0
            while waiting < writers:
                assert time.monotonic() < until, f"{waiting} of {writers} write to {table}"
                time.sleep(0.1)
                cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass", (table,))
                (waiting,) = cursor.fetchone()

    def close(self) -> None:
        """Ends it; nothing stays."""
        self._control("stop", "--mode=immediate")
        shutil.rmtree(self.folder)

    def _control(self, verb: str, *more: str) -> None:
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        started = () if verb == "stop" else ("--options", options)
        self._run(program("pg_ctl"), verb, "--wait", f"--log={self.folder / 'log'}", *started, *more)

    def _run(self, *command: str) -> None:
        place = ("--pgdata", str(self.folder / "data"))
        done = subprocess.run(
            [*command, *place], user=self._as, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        assert done.returncode == 0, done.stderr.decode()
