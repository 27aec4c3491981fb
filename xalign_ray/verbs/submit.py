"""The verb `submit`: uploads what a verb needs to a running Ray cluster, follows the job's log, gives its result."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import shutil
import site
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from yaml import YAMLError

from xalign_ray.config.explain import suggest
from xalign_ray.config.load import RECIPES, load_recipe
from xalign_ray.config.plugins import look_here
from xalign_ray.config.yaml_text import parse_yaml
from xalign_ray.errors import ClusterError, ConfigError, first_sentence
from xalign_ray.train.cluster_address import why_unauthenticated
from xalign_ray.verbs.continue_encoder import check_submitted
from xalign_ray.work import process
from xalign_ray.work.credentials import has_credentials, hint_for, strip_credentials
from xalign_ray.work.mirror import check_lasting
from xalign_ray.work.status_line import say
from xalign_ray.work.storage import RUN_OF

PACKAGE = RECIPES.parent
SHIPPED = (".py", ".typed", ".yaml", ".tsv", ".html", ".css", ".md")  # the kinds of files that the package has
YAML = (".yaml", ".yml")
PLUGINS = "plugins"
MAX_BYTES = 50_000_000  # the dashboard takes at most 100 MiB a request, and says little about why it refused
SHOWN = 5
_URI = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"]+")


@dataclass
class Upload:
    """Files by their place in the upload, and the command as the job gives it.

    Attributes:
        files: where each lies here, by its path in the upload.
        own: those of them that are the user's.
        left_out: what lies in the package's folder and no job reads.
        installed: plug-ins of packages that are installed here; the nodes need them too.
        folder: of the upload, in which the command runs.
        words: the arguments, with paths as they are in the upload.
        stripped: URIs whose credentials stay here, as whoever opens the dashboard reads what goes along.
    """

    files: dict[Path, Path] = field(default_factory=dict)
    own: list[Path] = field(default_factory=list)
    left_out: list[Path] = field(default_factory=list)
    installed: list[str] = field(default_factory=list)
    folder: Path = Path()
    words: list[str] = field(default_factory=list)
    stripped: list[str] = field(default_factory=list)

    def check_size(self, max_bytes: int = MAX_BYTES) -> int:
        """Counts the upload before anything is sent.

        Returns:
            Its size in bytes, not packed.

        Raises:
            ConfigError: it is larger than `max_bytes`; names the largest files.
        """
        sizes = {path: source.stat().st_size for path, source in self.files.items()}
        if (total := sum(sizes.values())) <= max_bytes:
            return total
        largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:SHOWN]
        named = ", ".join(f"{path} ({sizes[path] / 1e6:.1f} MB)" for path in largest)
        raise ConfigError(
            f"The upload is {total / 1e6:.1f} MB, more than {max_bytes / 1e6:g} MB. The largest files: {named}. Move "
            "them out of the code: data and models go to storage that all nodes see."
        )

    def write(self, target: Path) -> None:
        """Lays it out in a folder of its own, where no .gitignore decides what is left out."""
        for path, source in self.files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            if source.suffix in YAML and path in self.own:
                (target / path).write_text(self.without_credentials(source.read_text("utf-8")), encoding="utf-8")
            else:
                shutil.copyfile(source, target / path)
        (target / self.folder).mkdir(parents=True, exist_ok=True)

    def without_credentials(self, text: str) -> str:
        def strip(found: re.Match[str]) -> str:
            shown = strip_credentials(found[0]) if has_credentials(found[0]) else found[0]
            if shown != found[0] and shown not in self.stripped:
                self.stripped.append(shown)
            return shown

        return _URI.sub(strip, text)

    def describe(self) -> Iterator[str]:
        """What goes along and what does not, in sentences."""
        if self.own:
            yield f"Goes along: {', '.join(map(str, self.own))}."
        if self.left_out:
            yield f"Not uploaded, as no job reads them: {', '.join(map(str, self.left_out))}."
        if self.installed:
            yield f"Installed here, and not uploaded: {', '.join(self.installed)}. The cluster's nodes need them too."
        for shown in self.stripped:
            yield (
                f"The credentials in {shown} do not go along: everybody who opens the dashboard would read them. On "
                f"the cluster's nodes give them by {hint_for(shown)}."
            )


def make_upload(words: Sequence[str], package: Path = PACKAGE) -> Upload:
    """The package, the YAML files that a command names, what these name in turn, and the plug-ins of them all."""
    upload = Upload()
    shipped, left_out = find_code(package)
    upload.files = {Path(package.name) / path: package / path for path in shipped}
    upload.left_out = [Path(package.name) / path for path in left_out]
    written = [part for word in words if word.endswith(YAML) for part in (word, word.rpartition("=")[2])]
    named = [Path(part.removeprefix(RUN_OF)) for part in written]  # alone, in an option, or in the value of --set
    trees = dict(_read(path.resolve()) for path in named if path.is_file())
    left = list(trees)
    while left:
        found = [path for path in _named(left.pop(), trees) if path not in trees]
        trees |= dict(map(_read, found))
        left += found
    here = Path.cwd()
    root = Path(os.path.commonpath([here, *(path.parent for path in trees)]))
    upload.folder = here.relative_to(root)
    own = {path.relative_to(root): path for path in trees}
    for name in dict.fromkeys([*_listed(trees.values()), *_set(words)]):
        modules = find_plugin(name)
        own |= modules
        upload.installed += [] if modules else [name]
    upload.own = sorted(own)
    upload.files |= own
    upload.words = [upload.without_credentials(_in_upload(word)) for word in words]
    return upload


def _in_upload(word: str) -> str:
    """A word of a command: the YAML file that it is, or ends in behind `=`, by its place from the current folder."""
    for text in (word, word.rpartition("=")[2]):
        path = text.removeprefix(RUN_OF)
        if path.endswith(YAML) and Path(path).is_file():
            return word.removesuffix(path) + os.path.relpath(os.path.realpath(path))
    return word


def find_code(package: Path) -> tuple[list[Path], list[Path]]:
    """The files of the package that a job needs, relative to it; and what lies beside them and is left out.

    Left out are dot files, links that lead out of the package, and files of a kind that no job reads.
    """
    shipped, left_out = [], []
    for path in sorted(package.rglob("*")):
        own = path.relative_to(package)
        if "__pycache__" in own.parts or (path.is_dir() and not path.is_symlink()):
            continue
        hidden = any(part.startswith(".") for part in own.parts)
        inside = path.resolve().is_relative_to(package.resolve())
        takes = not hidden and inside and path.is_file() and path.suffix in SHIPPED
        (shipped if takes else left_out).append(own)
    return shipped, left_out


def find_plugin(name: str) -> dict[Path, Path]:
    """A module's file, or those of the package that it is in, by what they are imported as; none if it is installed."""
    look_here()
    spec = find_spec(name.partition(".")[0])
    if spec is None:
        raise ConfigError(f"There is no module {name} here or on Python's path, which is named as a plug-in.")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [folder / path for folder in folders for path in find_code(folder)[0] if path.suffix == ".py"]
    files = files or [Path(str(spec.origin))]
    root = (folders[0] if folders else files[0]).parent
    if any(root.is_relative_to(folder) for folder in (*site.getsitepackages(), site.getusersitepackages())):
        return {}
    return {path.relative_to(root): path for path in files}


def _read(path: Path) -> tuple[Path, Any]:
    try:
        return path, parse_yaml(path.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}.") from None


def _named(path: Path, trees: Mapping[Path, Any]) -> Iterator[Path]:
    """The YAML files outside the package that one names: what it extends, or any value that is a path of one."""
    tree = trees[path]
    extends = tree.get("extends", ()) if isinstance(tree, Mapping) else ()
    names = [extends] if isinstance(extends, str) else list(extends)
    names += [f"{name}.yaml" for name in names]
    names += [text.removeprefix(RUN_OF) for text in _texts(tree) if text.endswith(YAML)]
    for candidate in (folder / name for name in names for folder in (path.parent, Path.cwd())):
        if candidate.is_file() and not (found := candidate.resolve()).is_relative_to(PACKAGE):
            yield found


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping | list):
        for one in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _texts(one)


def _listed(trees: Iterable[Any]) -> Iterator[str]:
    """The plug-ins of recipes, and the tasks of the user's own of studies."""
    for tree in filter(lambda tree: isinstance(tree, Mapping), trees):
        yield from tree.get(PLUGINS) or ()
        for one in (*(tree.get("evaluations") or ()), *(tree.get("finetunings") or ())):
            if isinstance(one, Mapping) and "." in str(one.get("task")):
                yield one["task"]


def _set(words: Iterable[str]) -> Iterator[str]:
    """The plug-ins of `--set plugins=[...]`, and the task of the user's own of `--task`."""
    before = ""
    for word in words:
        key, _, text = word.partition("=")
        if key == PLUGINS:
            yield from parse_yaml(text)
        task = word if before == "--task" else text if key == "--task" else ""
        if "." in task:
            yield task
        before = word


VERBS = ("prepare", "pretrain", "continue", "export", "evaluate", "tune", "study", "report")
GRACE = {"RAY_JOB_STOP_WAIT_TIME_S": "300"}  # seconds that `ray job stop` leaves a step and its checkpoint; Ray's 3
POLL_S = 1.0
LOST_S = 60.0  # without an answer, after which a job is given up; a head that is only busy answers within seconds
LAST_WORDS_S = 10.0  # for the log to come to its end when the job has
STOPPED = process.exit_code("SIGTERM")  # the signal that Ray stops a job with; it keeps no exit code of such a job


def check_arguments(verb: str, given: Mapping[str, Any]) -> None:
    """Refuses what cannot run in a job: a mistake in a recipe, or a path that only this machine sees.

    Args:
        given: the arguments of the verb's command by name.

    Raises:
        ConfigError: as the verb would in the job.
    """
    if "recipe" in given:
        check_lasting("output", load_recipe(given["recipe"], given["settings"]).config.output, in_job=True)
    if verb == "continue":
        check_submitted(given)


def submit_verb(address: str, verb: str, words: Sequence[str], name: str = "", wait: bool = True) -> int:
    """Runs a verb on a cluster, or follows or stops the job that `words` names; the exit code.

    Raises:
        ConfigError: no such verb runs on a cluster, or see `run_job`.
    """
    if verb in OF_JOBS:
        if len(words) != 1:
            raise ConfigError(f"xalign submit {verb} takes the name of one job, as `ray job list` says it.")
        return OF_JOBS[verb](address, words[0])
    if verb not in VERBS:
        raise ConfigError(
            f"xalign submit {verb}: no verb that runs on a cluster.{suggest(verb, VERBS)} Those are "
            f"{', '.join(VERBS)}; {' and '.join(OF_JOBS)} take the name of a job."
        )
    return run_job(address, verb, words, name, wait)


def run_job(address: str, verb: str, words: Sequence[str], name: str, wait: bool) -> int:
    """Runs a verb on the cluster whose dashboard is at `address`, with its log on stderr; the verb's exit code.

    Raises:
        ConfigError: the cluster does not answer or wants a token, the upload is too large, or a job of the
            name runs.
    """
    upload = make_upload(words)
    size = upload.check_size()
    client = connect(address)
    name = name or f"{verb}-{_subject(words)}-{time.strftime('%Y%m%d-%H%M%S')}"
    # Not a child of the shell: it would outlive it, and in a container whose first process leaves zombies Ray would
    # wait for it all of its grace.
    entry = f"exec {shlex.join(['python', '-m', 'xalign_ray', verb, *upload.words])}"
    if upload.folder.parts:
        entry = f"cd {shlex.quote(str(upload.folder))} && {entry}"
    with tempfile.TemporaryDirectory() as folder:
        upload.write(Path(folder))
        for sentence in upload.describe():
            say(sentence)
        if earlier := [job for job in client.list_jobs() if job.submission_id == name]:
            if not earlier[0].status.is_terminal():
                raise ConfigError(f"The job {name} on {address} has not ended; give another --name, or stop it first.")
            client.delete_job(name)
            say(f"{name} has ended before ({earlier[0].status.value}); this job takes its name, and its log is gone.")
        client.submit_job(
            entrypoint=entry,
            submission_id=name,
            runtime_env={"working_dir": folder, "env_vars": GRACE},
            metadata={"verb": verb},
        )
    say(f"{name}: {entry} ({len(upload.files)} files of code, {size / 1e6:.1f} MB).")
    if not wait:
        say(_how(address, name))
        return 0
    return follow(address, name)


def follow(address: str, name: str) -> int:
    """Shows the log of a job from its beginning until it ends; its exit code. Interrupted, it leaves the job alone."""
    client = connect(address)
    _check_known(client, address, name)
    try:
        log = threading.Thread(target=_show_log, args=(client, name), name="log", daemon=True)
        log.start()
        _wait(client, address, name)
        log.join(LAST_WORDS_S)
        return _result(client, name)
    except KeyboardInterrupt:
        say(f"\n{name} goes on without this process. {_how(address, name)}")
        return 1


def stop(address: str, name: str) -> int:
    """Tells a job to end its step, save it and stop; waits for that, and says how it ended; 0 if it has stopped."""
    client = connect(address)
    _check_known(client, address, name)
    client.stop_job(name)
    say(f"{name} is told to stop; it ends its step and saves it first.")
    _wait(client, address, name)
    _, found, said = client.get_job_logs(name).rpartition("\nxalign: ")
    if found:
        say(said.strip())
    return 0 if _result(client, name) in (0, STOPPED) else 1


def connect(address: str) -> Any:
    """A client of the dashboard; ConfigError if none answers, or something else does, or it wants a token."""
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    for name in ("job.sdk", "dashboard_sdk"):  # they speak of uploads and sockets at length
        logging.getLogger(f"ray.dashboard.modules.{name}").setLevel(logging.WARNING)
    try:
        return JobSubmissionClient(address)
    except ConnectionError:
        raise ConfigError(
            f"No Ray dashboard answers at {address}. Give its address, http://HEAD:8265, as --address.{_proxy(address)}"
        ) from None
    except AuthenticationError:
        raise ConfigError(f"The cluster at {address} refuses us: {why_unauthenticated()}{_proxy(address)}") from None
    except (OSError, RuntimeError, ValueError, KeyError) as error:  # an HTTP status, a page that is no JSON
        raise ConfigError(
            f"What answers at {address} is no Ray dashboard ({first_sentence(error).rstrip('.')}). Give its address, "
            f"http://HEAD:8265, as --address.{_proxy(address)}"
        ) from None


def _proxy(address: str) -> str:
    """A sentence where the environment sends what is asked of an address through a proxy."""
    asked = urlsplit(address)
    if asked.scheme not in getproxies() or proxy_bypass(asked.hostname or ""):
        return ""
    return f" The environment names a proxy, which was asked; NO_PROXY={asked.hostname} goes past it."


def _subject(words: Sequence[str]) -> str:
    """What a verb is called on: `tiny-mlm` of `tiny/mlm --set ...`, `mine` of `recipes/mine.yaml`."""
    first = words[0] if words else ""
    shown = Path(first).stem if first.endswith((".yaml", ".yml")) else first.strip("/.")
    return "".join(letter if letter.isalnum() else "-" for letter in shown)[-40:].strip("-") or "job"


def _how(address: str, name: str) -> str:
    return f"See it: xalign submit --address {address} follow {name}. End it, saved: the same with stop."


def _check_known(client: Any, address: str, name: str) -> None:
    try:
        client.get_job_status(name)
    except RuntimeError:
        known = [one.submission_id for one in client.list_jobs() if one.submission_id]
        newest = f" It has {', '.join(sorted(known)[-5:])}." if known else ""
        raise ConfigError(f"The cluster at {address} has no job {name}.{newest}") from None


def _show_log(client: Any, name: str) -> None:
    """Until the job has ended, or the connection; `_wait` says which."""
    from aiohttp import ClientError

    async def show() -> None:
        async for lines in client.tail_job_logs(name):
            sys.stderr.write(lines)

    with suppress(OSError, RuntimeError, ClientError):
        asyncio.run(show())


def _wait(client: Any, address: str, name: str) -> None:
    """Until the job has ended. Asked for in a thread: a request to a machine that has lost its power may hang.

    Raises:
        ClusterError: nobody has answered for LOST_S what has become of it.
    """
    heard, ended = [time.monotonic()], threading.Event()

    def ask() -> None:
        while not ended.is_set():
            with suppress(OSError, RuntimeError):
                done = client.get_job_status(name).is_terminal()
                heard[0] = time.monotonic()
                if done:
                    ended.set()
            ended.wait(POLL_S)

    threading.Thread(target=ask, name="status", daemon=True).start()
    while not ended.wait(POLL_S):
        if time.monotonic() - heard[0] > LOST_S:
            raise ClusterError(
                f"The cluster at {address} has not answered for {LOST_S:.0f} s what has become of {name}. If its head "
                "was lost, the job has ended with it: start the cluster and give the same command again; a run goes on "
                f"from its newest checkpoint. If not: xalign submit --address {address} follow {name}."
            )


def _result(client: Any, name: str) -> int:
    """The exit code of the verb; where the job did not come to one, 143 if it was stopped, else 1."""
    info = client.get_job_info(name)
    code = info.driver_exit_code
    say(f"{name}: {info.status.value}{'' if code is None else f', exit code {code}'}.")
    if code is not None:
        return code
    if info.status == "STOPPED":
        return STOPPED
    say(info.message or "")
    return 1


OF_JOBS = {"follow": follow, "stop": stop}
