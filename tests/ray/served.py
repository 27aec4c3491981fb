"""Runs `xalign` in forks of one process that has imported everything: a command costs no seconds of imports.

`python -P served.py SOCKET` serves one command after the other; `python -IS served.py SOCKET WORD...` gives it one, in
the folder, environment and streams of its own process, and ends as it ends.
"""

import json
import os
import socket
import sys


def serve(address: str) -> None:
    """Imports all of the package and what trains, and waits for commands."""
    from importlib import import_module
    from pkgutil import walk_packages

    import xalign_ray
    from tests.parity.train import warm  # noqa: F401
    from xalign_ray import cli

    for module in walk_packages(xalign_ray.__path__, "xalign_ray."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    door = socket.socket(socket.AF_UNIX)
    door.bind(address)
    door.listen()
    sys.stdout.write("serves\n")
    sys.stdout.flush()
    while True:
        client, _ = door.accept()
        message, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
        if (child := os.fork()) == 0:
            words, folder, environment = json.loads(message)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = ["xalign", *words]
            cli.main()  # which exits
        for stream in streams:
            os.close(stream)
        client.send(bytes([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255]))
        client.close()


def ask(address: str, words: list[str]) -> int:
    """The exit code of a command."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        message = json.dumps([words, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(server, [message], [0, 1, 2])
        return server.recv(1)[0]


if __name__ == "__main__":
    place, *given = sys.argv[1:]
    sys.exit(ask(place, given) if given else serve(place))
