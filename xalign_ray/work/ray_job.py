"""Ray jobs: a verb that runs in one works in an uploaded copy of the code, which is removed after the job."""

from __future__ import annotations

import os
from pathlib import Path

from xalign_ray.errors import ConfigError
from xalign_ray.work.local_paths import shown_path
from xalign_ray.work.mirror import local_folder, url_of

JOB_MARK = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # what Ray sets in the process that `ray job submit` started, and only there


def check_lasting(key: str, path: str | Path | None, in_job: bool = False) -> None:
    """Refuses a folder in the working directory of a Ray job: that is an upload, which goes with the job.

    Args:
        in_job: the verb will run in a job, in another working directory; a relative path starts there.
    """
    if path is None or url_of(local_folder(path)):
        return
    folder = Path(path)
    if in_job:
        lasts = folder.is_absolute()
    else:
        lasts = JOB_MARK not in os.environ or not folder.absolute().is_relative_to(Path.cwd())
    if not lasts:
        raise ConfigError(
            f"{key} is '{shown_path(folder)}': in a Ray job a relative path lies in the uploaded copy of the code, "
            "which is removed after the job. Give an absolute one that all nodes see, for example --set "
            "output=/shared/runs."
        )
