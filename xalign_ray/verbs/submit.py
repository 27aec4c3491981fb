"""Job submission: uploads the package and the user's files of a command to a Ray cluster, and follows the job's log."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from yaml import YAMLError

from xalign_ray.config.explain import suggest
from xalign_ray.config.load import RECIPES, load_recipe
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ClusterError, ConfigError, first_sentence
from xalign_ray.train.cluster_address import UNAUTHENTICATED
from xalign_ray.verbs.continue_encoder import check_submitted
from xalign_ray.work import process
from xalign_ray.work.credentials import has_credentials, hint_for, strip_credentials
from xalign_ray.work.mirror import check_lasting
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import RUN_OF

PACKAGE = RECIPES.parent
SHIPPED = (".py", ".typed", ".yaml", ".tsv", ".html", ".css", ".md")  # suffixes of the package's files
YAML = (".yaml", ".yml")
MAX_BYTES = 50_000_000  # the dashboard refuses requests above 100 MiB without naming the reason
SHOWN = 5
URI = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"]+")
VERBS = ("prepare", "pretrain", "continue", "export", "evaluate", "tune", "study", "report")
GRACE = {"RAY_JOB_STOP_WAIT_TIME_S": "300"}  # seconds between SIGTERM and SIGKILL: a step and its checkpoint; Ray's 3
POLL_S = 1.0
LOST_S = 60.0  # without an answer of the dashboard; a busy head answers within seconds
LOG_S = 10.0  # for the rest of the log after the job's end
STOPPED = process.exit_code("SIGTERM")  # Ray stops a job by SIGTERM and keeps no exit code of it


def write_upload(verb: str, words: Sequence[str], target: Path, package: Path = PACKAGE) -> tuple[str, list[str]]:
    """Writes the code of a job into an empty folder: the package, and the user's files that the words name.

    Those files may name others, which are written too. Everybody who opens the dashboard can read an upload and its
    command: URIs in the words and in YAML files lose their credentials.

    Returns:
        The command line, for a shell in `target`; and sentences on what goes along and what does not.

    Raises:
        ConfigError: a file is not YAML, or the upload is larger than MAX_BYTES.
    """
    files, texts = set[Path](), [(Path.cwd(), text) for word in words for text in (word, *texts_of_setting(word))]
    while texts:
        for path in {*named_files(*texts.pop())} - files:
            files.add(path)
            if path.suffix in YAML:
                try:
                    tree = parse_yaml(path.read_text(encoding="utf-8"))
                except (YAMLError, UnicodeDecodeError) as error:
                    raise ConfigError(f"{path} is not YAML: {error}.") from None
                texts += [(path.parent, text) for text in texts_in(tree)]
    root = Path(os.path.commonpath([Path.cwd(), *(path.parent for path in files)]))
    names = {path: path.relative_to(root) for path in sorted(files)}
    names |= {package / path: Path(package.name) / path for path in code_files(package)}
    check_size({name: path.stat().st_size for path, name in names.items()})
    folder, stripped = Path.cwd().relative_to(root), list[str]()
    (target / folder).mkdir(parents=True, exist_ok=True)
    for path, name in names.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if path in files and path.suffix in YAML:
            (target / name).write_text(strip_uris(path.read_text(encoding="utf-8"), stripped), encoding="utf-8")
        else:
            shutil.copyfile(path, target / name)
    shown = [strip_uris(in_upload(word), stripped) for word in words]
    command = shlex.join(["python", "-m", "xalign_ray", verb, *shown])
    notes = [f"Goes along: {', '.join(str(names[path]) for path in sorted(files))}."] if files else []
    notes += [
        f"The credentials in {uri} do not go along: everybody who opens the dashboard would read them. On the "
        f"cluster's nodes give them by {hint_for(uri)}."
        for uri in stripped
    ]
    # exec: as a child of the shell the verb would outlive it; in a container whose first process does not reap zombies
    # Ray would wait for the shell until its grace period ends.
    return (f"cd {shlex.quote(str(folder))} && " if folder.parts else "") + f"exec {command}", notes


def check_size(sizes: Mapping[Path, int]) -> None:
    """Raises ConfigError, with the largest files, for more than MAX_BYTES."""
    if (total := sum(sizes.values())) > MAX_BYTES:
        largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:SHOWN]
        named = ", ".join(f"{path} ({sizes[path] / 1e6:.1f} MB)" for path in largest)
        raise ConfigError(
            f"The upload is {total / 1e6:.1f} MB, more than {MAX_BYTES / 1e6:g} MB. The largest files: {named}. Move "
            "them out of the code: data and models go to storage that all nodes see."
        )


def named_files(folder: Path, text: str) -> Iterator[Path]:
    """The user's files behind a text of a command, or of a YAML file in a folder: a YAML file, a module's, or none.

    A recipe is named with or without its suffix, and by `run:`; a module, of a plug-in or a task, as in an import. Of a
    package all modules are taken.
    """
    name, here = text.removeprefix(RUN_OF), Path.cwd()
    paths = [base / f"{name}{suffix}" for base in (folder, here) for suffix in ("", *YAML)]
    for path in (path.resolve() for path in paths if path.suffix in YAML and os.path.isfile(path)):
        if not path.is_relative_to(PACKAGE):
            yield path
    module = here.joinpath(*name.split(".")) if all(part.isidentifier() for part in name.split(".")) else here
    if os.path.isfile(f"{module}.py") or os.path.isfile(module / "__init__.py"):
        top = here / name.partition(".")[0]
        yield from [top / path for path in code_files(top, (".py",))] if top.is_dir() else [Path(f"{top}.py")]


def texts_of_setting(word: str) -> Iterator[str]:
    """The texts in the value of `KEY=VALUE` or `--OPTION=VALUE`."""
    with suppress(YAMLError):
        yield from texts_in(parse_yaml(word.partition("=")[2]))


def texts_in(tree: Any) -> Iterator[str]:
    """The texts in a tree of YAML, keys apart."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping | list):
        for value in tree.values() if isinstance(tree, Mapping) else tree:
            yield from texts_in(value)


def in_upload(word: str) -> str:
    """A word of the command, with the YAML file that it names or sets as a path that is valid in the upload."""
    for text in (word, word.rpartition("=")[2]):
        path = text.removeprefix(RUN_OF)
        if path.endswith(YAML) and os.path.isfile(path):
            return word.removesuffix(path) + os.path.relpath(os.path.realpath(path))
    return word


def code_files(package: Path, suffixes: Sequence[str] = SHIPPED) -> list[Path]:
    """The files of a package that a job needs, relative to it: no dot file, no link to the outside, no other suffix."""
    inside = [path for path in sorted(package.rglob("*")) if path.suffix in suffixes and path.is_file()]
    files = [path.relative_to(package) for path in inside if path.resolve().is_relative_to(package.resolve())]
    return [path for path in files if not any(part.startswith(".") for part in path.parts)]


def strip_uris(text: str, stripped: list[str]) -> str:
    """A text with the URIs in it without credentials; URIs that had some are added to `stripped`."""

    def strip(match: re.Match[str]) -> str:
        uri = strip_credentials(match[0]) if has_credentials(match[0]) else match[0]
        if uri != match[0] and uri not in stripped:
            stripped.append(uri)
        return uri

    return URI.sub(strip, text)


def check_arguments(verb: str, arguments: Mapping[str, Any]) -> None:
    """Checks the arguments of a verb as the job will, and that all nodes see its paths.

    Args:
        arguments: of the verb's command, by name.

    Raises:
        ConfigError: a mistake in a recipe or an option, or a relative output.
    """
    if "recipe" in arguments:
        recipe = load_recipe(arguments["recipe"], arguments["settings"])
        check_lasting("output", recipe.config.output, in_job=True)
    if verb == "continue":
        check_submitted(arguments)


def submit_verb(address: str, verb: str, words: Sequence[str], name: str = "", wait: bool = True) -> int:
    """Runs a verb on a cluster with its log on stderr, or follows or stops the job that `words` names.

    Args:
        address: URL of the cluster's dashboard.
        name: of the job; by default verb, recipe and time.
        wait: follow the job until it ends.

    Returns:
        The verb's exit code; 0 without `wait`.

    Raises:
        ConfigError: no such verb runs on a cluster, the cluster does not answer or needs a token, the upload is too
            large, or a job of this name runs.
        ClusterError: the cluster is lost while the job is followed.
    """
    if verb in OF_JOBS:
        if len(words) != 1:
            raise ConfigError(f"xalign submit {verb} takes the name of one job; `ray job list` lists them.")
        return OF_JOBS[verb](address, words[0])
    if verb not in VERBS:
        raise ConfigError(
            f"xalign submit {verb}: no verb that runs on a cluster.{suggest(verb, VERBS)} Those are "
            f"{', '.join(VERBS)}; {' and '.join(OF_JOBS)} take the name of a job."
        )
    subject = re.sub(r"\W+", "-", words[0].removesuffix(".yaml"))[-40:].strip("-") if words else ""
    name = name or f"{verb}-{subject or 'job'}-{time.strftime('%Y%m%d-%H%M%S')}"
    with tempfile.TemporaryDirectory() as folder:
        entry, notes = write_upload(verb, words, Path(folder))
        client = connect(address)
        for note in notes:
            say(note)
        if earlier := [job for job in client.list_jobs() if job.submission_id == name]:
            if not earlier[0].status.is_terminal():
                raise ConfigError(f"The job {name} on {address} has not ended; give another --name, or stop it first.")
            client.delete_job(name)
            say(f"{name} has ended before ({earlier[0].status.value}); this job takes its name, and its log is gone.")
        environment = {"working_dir": folder, "env_vars": GRACE}
        client.submit_job(entrypoint=entry, submission_id=name, runtime_env=environment, metadata={"verb": verb})
    say(f"{name}: {entry}")
    if wait:
        return follow(address, name)
    say(_show_commands(address, name))
    return 0


def follow(address: str, name: str) -> int:
    """Prints a job's log from its beginning until the job ends; its exit code. Ctrl-C leaves the job running."""
    client = _connect_to_job(address, name)
    try:
        log = threading.Thread(target=_print_log, args=(client, name), name="log", daemon=True)
        log.start()
        _wait(client, address, name)
        log.join(LOG_S)
        return _exit_code(client, name)
    except KeyboardInterrupt:
        say(f"\n{name} goes on without this process. {_show_commands(address, name)}")
        return 1


def stop(address: str, name: str) -> int:
    """Stops a job after its step is saved, and waits for its end; 0 if it has stopped."""
    client = _connect_to_job(address, name)
    client.stop_job(name)
    say(f"{name} is told to stop; it ends its step and saves it first.")
    _wait(client, address, name)
    _, mark, last_words = client.get_job_logs(name).rpartition("\nxalign: ")
    if mark:
        say(last_words.strip())
    return 0 if _exit_code(client, name) in (0, STOPPED) else 1


OF_JOBS = {"follow": follow, "stop": stop}


def connect(address: str) -> Any:
    """A client of the dashboard; ConfigError if none answers, the answer is not a dashboard's, or it needs a token."""
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    for module in ("job.sdk", "dashboard_sdk"):  # they log uploads and sockets at length
        logging.getLogger(f"ray.dashboard.modules.{module}").setLevel(logging.WARNING)
    try:
        return JobSubmissionClient(address)
    except ConnectionError:
        fault = f"No Ray dashboard answers at {address}. Give its address, http://HEAD:8265, as --address."
    except AuthenticationError:
        fault = f"The cluster at {address} refuses us: {UNAUTHENTICATED}"
    except (OSError, RuntimeError, ValueError, KeyError) as error:  # an HTTP status, a page that is not JSON
        fault = (
            f"What answers at {address} is no Ray dashboard ({first_sentence(error).rstrip('.')}). Give its address, "
            "http://HEAD:8265, as --address."
        )
    url = urlsplit(address)
    if url.scheme in getproxies() and not proxy_bypass(url.hostname or ""):
        fault += f" The environment names a proxy, which was asked; NO_PROXY={url.hostname} goes past it."
    raise ConfigError(fault)


def _connect_to_job(address: str, name: str) -> Any:
    client = connect(address)
    try:
        client.get_job_status(name)
    except RuntimeError:
        names = sorted(job.submission_id for job in client.list_jobs() if job.submission_id)
        newest = f" It has {', '.join(names[-5:])}." if names else ""
        raise ConfigError(f"The cluster at {address} has no job {name}.{newest}") from None
    return client


def _show_commands(address: str, name: str) -> str:
    return f"See it: xalign submit --address {address} follow {name}. End it, saved: the same with stop."


def _print_log(client: Any, name: str) -> None:
    """Copies a job's log to stderr until the job ends or the connection breaks."""
    from aiohttp import ClientError

    async def copy() -> None:
        async for lines in client.tail_job_logs(name):
            sys.stderr.write(lines)

    with suppress(OSError, RuntimeError, ClientError):
        asyncio.run(copy())


def _wait(client: Any, address: str, name: str) -> None:
    """Returns when a job has ended; ClusterError after LOST_S without an answer.

    A thread requests the status: a request to a machine that lost its power may never return.
    """
    answered, ended = [time.monotonic()], threading.Event()

    def ask() -> None:
        while not ended.wait(POLL_S):
            with suppress(OSError, RuntimeError):
                is_over = client.get_job_status(name).is_terminal()
                answered[0] = time.monotonic()
                if is_over:
                    ended.set()

    threading.Thread(target=ask, name="status", daemon=True).start()
    while not ended.wait(POLL_S):
        if time.monotonic() - answered[0] > LOST_S:
            raise ClusterError(
                f"The cluster at {address} has not answered for {LOST_S:.0f} s what has become of {name}. If its head "
                "was lost, the job has ended with it: start the cluster and rerun the same command; a run goes on "
                f"from its newest checkpoint. If not: xalign submit --address {address} follow {name}."
            )


def _exit_code(client: Any, name: str) -> int:
    """Prints a job's end; the exit code of its verb, STOPPED of a job that was stopped, 1 of one that never started."""
    info = client.get_job_info(name)
    code = info.driver_exit_code
    say(f"{name}: {info.status.value}{'' if code is None else f', exit code {code}'}.")
    if code is None and info.status != "STOPPED":
        say(info.message or "")
        return 1
    return STOPPED if code is None else code
