"""Submits a verb to a running cluster: uploads the code and nothing else, follows the log, returns the job's result.

    python jobs/submit.py --address http://HEAD:8265 pretrain tiny/mlm --set output=/shared/runs

Data, models and results never travel in the upload: they lie on storage that all nodes see.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from xalign_ray.errors import ConfigError, XalignError

ROOT = Path(__file__).resolve().parent.parent
CODE = ("xalign_ray", "jobs")
VERBS = ("prepare", "pretrain", "evaluate", "tune")
MOST_BYTES = 50_000_000  # the dashboard takes at most 100 MiB a request, and says little about why it refused
SHOWN = 5


def find_code(root: Path) -> list[Path]:
    """The files a job needs, relative to the repository: the package and the job scripts."""
    found = (path for folder in CODE for path in sorted((root / folder).rglob("*")))
    return [path.relative_to(root) for path in found if path.is_file() and "__pycache__" not in path.parts]


def check_size(root: Path, files: Iterable[Path], most_bytes: int = MOST_BYTES) -> int:
    """Counts the upload before anything is sent.

    Returns:
        Its size in bytes, not packed.

    Raises:
        ConfigError: it is larger than `most_bytes`; names the largest files.
    """
    sizes = {path: (root / path).stat().st_size for path in files}
    if (total := sum(sizes.values())) <= most_bytes:
        return total
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:SHOWN]
    told = ", ".join(f"{path} ({sizes[path] / 1e6:.1f} MB)" for path in largest)
    raise ConfigError(
        f"The upload is {total / 1e6:.1f} MB, more than {most_bytes / 1e6:g} MB. The largest files: {told}. Move them "
        "out of the code: data and models go to storage that all nodes see."
    )


def copy_code(root: Path, files: Iterable[Path], target: Path) -> None:
    """Lays the upload out in a folder of its own, where no .gitignore decides what is left out."""
    for path in files:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, target / path)


def submit(address: str, verb: str, arguments: Sequence[str]) -> int:
    """Runs a verb on the cluster at `address`, with its log on stderr; 0 if the job succeeded, else 1."""
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobStatus, JobSubmissionClient

    files = find_code(ROOT)
    size = check_size(ROOT, files)
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
        entry = shlex.join(["python", f"jobs/{verb}.py", *arguments])
        job = client.submit_job(entrypoint=entry, runtime_env={"working_dir": folder})
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
