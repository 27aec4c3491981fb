"""The preStop hook of a Ray pod: a head stops its jobs and waits until they saved; a worker waits while it has work.

Kubernetes ends a pod's processes when its hook is over, after terminationGracePeriodSeconds at the latest. A cluster
that is deleted loses all pods at once: without a hook workers would be gone before the driver had been told to stop.
"""

import os
import sys
import time
from pathlib import Path

DASHBOARD = "http://127.0.0.1:8265"
AT_REST = (  # titles of processes that hold no work of ours; the last two are detached actors of Ray Data
    *("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent"),
    *("ray::_StatsActor", "ray::_AutoscalingCoordinatorActor"),
)
QUIET_S = 5  # between two data tasks a node is at rest for a moment


def stop_jobs() -> None:
    """Stops the jobs of this cluster and returns when the last has ended."""
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(os.environ.get("RAY_API_SERVER_ADDRESS", DASHBOARD))
    going = [job.submission_id for job in client.list_jobs() if job.submission_id and not job.status.is_terminal()]
    for job in going:
        client.stop_job(job)
    while not all(client.get_job_status(job).is_terminal() for job in going):
        time.sleep(1)


def works() -> bool:
    """Whether a task or an actor of Ray runs on this node."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = file.read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        if title.startswith("ray::") and not title.startswith(AT_REST):
            return True
    return False


def wait_for_rest() -> None:
    """Returns when no work of Ray was seen here for QUIET_S."""
    quiet = 0
    while quiet < QUIET_S:
        quiet = 0 if works() else quiet + 1
        time.sleep(1)


if __name__ == "__main__":
    {"head": stop_jobs, "worker": wait_for_rest}[sys.argv[1]]()
