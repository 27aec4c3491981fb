"""Submits a verb to a running cluster: uploads a list of code and nothing else, follows the log, returns its result.

    python jobs/submit.py --address http://HEAD:8265 pretrain tiny/mlm --set output=/shared/runs

A YAML file that is named goes along; what it extends beside it does not. Data, models and results never travel in the
upload: they lie on storage that all nodes see.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from xalign_ray.credentials import hint_for, strip_credentials
from xalign_ray.errors import ConfigError, XalignError

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = {"xalign_ray": (".py", ".typed", ".yaml", ".tsv", ".html", ".css", ".md"), "jobs": (".py",)}  # by folder
GIVEN = "given"  # where a file of the user lies in the upload
GRACE = {"RAY_JOB_STOP_WAIT_TIME_S": "300"}  # seconds that `ray job stop` leaves a step and its checkpoint; Ray's 3
VERBS = ("prepare", "pretrain", "evaluate", "tune", "study")
MAX_BYTES = 50_000_000  # the dashboard takes at most 100 MiB a request, and says little about why it refused
SHOWN = 5
_URI = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"]+")


def find_code(root: Path) -> tuple[list[Path], list[Path]]:
    """The files a job needs, relative to the repository; and what lies beside them and is left out.

    Left out are dot files, links that lead out of the repository, and files of a kind that no job reads.
    """
    shipped, left_out = [], []
    for folder, kinds in SHIPPED.items():
        for path in sorted((root / folder).rglob("*")):
            own = path.relative_to(root)
            if "__pycache__" in own.parts or (path.is_dir() and not path.is_symlink()):
                continue
            hidden = any(part.startswith(".") for part in own.parts)
            inside = path.resolve().is_relative_to(root.resolve())
            takes = not hidden and inside and path.is_file() and path.suffix in kinds
            (shipped if takes else left_out).append(own)
    return shipped, left_out


def check_size(root: Path, files: Iterable[Path], max_bytes: int = MAX_BYTES) -> int:
    """Counts the upload before anything is sent.

    Returns:
        Its size in bytes, not packed.

    Raises:
        ConfigError: it is larger than `max_bytes`; names the largest files.
    """
    sizes = {path: (root / path).stat().st_size for path in files}
    if (total := sum(sizes.values())) <= max_bytes:
        return total
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:SHOWN]
    told = ", ".join(f"{path} ({sizes[path] / 1e6:.1f} MB)" for path in largest)
    raise ConfigError(
        f"The upload is {total / 1e6:.1f} MB, more than {max_bytes / 1e6:g} MB. The largest files: {told}. Move them "
        "out of the code: data and models go to storage that all nodes see."
    )


def copy_code(root: Path, files: Iterable[Path], target: Path) -> None:
    """Lays the upload out in a folder of its own, where no .gitignore decides what is left out."""
    for path in files:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, target / path)


def take_along(arguments: Sequence[str], target: Path) -> list[str]:
    """Copies the YAML file that a verb is given into the upload; the arguments as the job sees them.

    Neither holds credentials of a tracking URI: whoever opens the dashboard reads both.
    """
    taken = []
    for at, word in enumerate(arguments):
        option = at > 0 and arguments[at - 1].startswith("--")
        if word.endswith((".yaml", ".yml")) and not option and Path(word).is_file():
            (target / GIVEN).mkdir(exist_ok=True)
            text = Path(word).read_text(encoding="utf-8")
            (target / GIVEN / Path(word).name).write_text(_without_credentials(text), encoding="utf-8")
            word = f"{GIVEN}/{Path(word).name}"
        taken.append(_without_credentials(word))
    return taken


def _without_credentials(text: str) -> str:
    def strip(found: re.Match[str]) -> str:
        shown = strip_credentials(found[0])
        if shown != found[0]:
            sys.stderr.write(
                f"The credentials in {shown} do not go along: everybody who opens the dashboard would read them. On "
                f"the cluster's nodes give them by {hint_for(shown)}.\n"
            )
        return shown

    return _URI.sub(strip, text)


def submit(address: str, verb: str, arguments: Sequence[str]) -> int:
    """Runs a verb on the cluster at `address`, with its log on stderr; 0 if the job succeeded, else 1."""
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobStatus, JobSubmissionClient

    files, left_out = find_code(ROOT)
    size = check_size(ROOT, files)
    if left_out:
        sys.stderr.write(f"Not uploaded, as no job reads them: {', '.join(map(str, left_out))}.\n")
    try:
        client = JobSubmissionClient(address)
    except ConnectionError:
        raise ConfigError(
            f"No Ray dashboard answers at {address}. Give its address, http://HEAD:8265, as --address."
        ) from None
    except AuthenticationError:
        raise ConfigError(
            f"The cluster at {address} wants its token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the token or "
            "RAY_AUTH_TOKEN_PATH to a file that holds it."
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        copy_code(ROOT, files, Path(folder))
        entry = shlex.join(["python", f"jobs/{verb}.py", *take_along(arguments, Path(folder))])
        job = client.submit_job(entrypoint=entry, runtime_env={"working_dir": folder, "env_vars": GRACE})
    sys.stderr.write(f"{job}: {entry} ({size / 1e6:.1f} MB of code). It goes on without this process; to end it: ")
    sys.stderr.write(f"ray job stop --address {address} {job}\n")
    asyncio.run(_show_log(client, job))
    status, details = client.get_job_status(job), client.get_job_info(job).message
    sys.stderr.write(f"{job}: {status.value}. {details or ''}\n")
    return 0 if status == JobStatus.SUCCEEDED else 1


async def _show_log(client, job: str) -> None:
    async for lines in client.tail_job_logs(job):
        sys.stderr.write(lines)


def main() -> int:
    """Reads the command line; an error for the user is a sentence."""
    known = os.environ.get("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8265")
    parser = argparse.ArgumentParser(description="Run a verb of xalign on a running Ray cluster.")
    parser.add_argument("--address", default=known, help="of the dashboard; default %(default)s")
    parser.add_argument("verb", choices=VERBS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="as for `xalign VERB`")
    given = parser.parse_args()
    try:
        return submit(given.address, given.verb, given.arguments)
    except XalignError as error:
        sys.stderr.write(f"submit: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
