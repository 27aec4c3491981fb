"""Four losses on two workers, one of which dies for good: given again, the same rows and losses; no open socket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench.sockets import LOOPBACK, METRICS, OPEN, TOKEN, Listening
from tests.parity.train.pool import Pool
from tests.ray.runs import Curve, calm, check_rows, kill_worker, on_ray, reached, sockets_watched, starts, when
from tests.ray.small import batches, recipe, write_world
from tests.unit.data.conftest import prepare_here
from xalign_ray.errors import TrainingError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]
STEPS, SAVED_EVERY = 48, 8
KILLED_AT = 3 * SAVED_EVERY + 2  # a save is on disk when the next one begins: the second is, at this step
AGENT, WORKER = "ray::DashboardAgent", "ray::RayTrainWorker"


@dataclass(frozen=True)
class Killed:
    """A run whose second worker was killed, the calm one's curve and its own, and what closed each of its sockets."""

    folder: Path
    expected: Curve
    curve: Curve
    sockets: dict[Listening, str]


@pytest.fixture(scope="module")
def killed(two: Pool, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = tmp_path_factory.mktemp("six")
    settings = write_world(folder, parallel=300)
    settings += batches(16, 8, STEPS, saved_every=SAVED_EVERY, held_out_every=SAVED_EVERY)
    settings += ["model.hidden_dropout_prob=0.1", "objectives.3.queue_size=100", "parallel.max_failures=0"]
    config = recipe(settings, name="tiny/all")
    assert [one.kind for one in config.objectives] == [
        "masked_lm",
        "dictionary_alignment",
        "word_exchange",
        "momentum_contrast",
    ]
    prepare_here(config)
    expected = calm(two, config, folder / "calm")
    killer = when((reached(folder / "killed", KILLED_AT), kill_worker(1)))
    with sockets_watched() as sockets:
        with pytest.raises(TrainingError, match=r"Workers failed more often than parallel.max_failures allows"):
            on_ray(config, folder / "killed")
        curve = on_ray(config, folder / "killed")
    killer.join(1)
    return Killed(folder / "killed", expected, curve, sockets)


def test_a_killed_run_of_four_objectives_ends_as_the_calm_one(killed: Killed) -> None:
    first, again = starts(killed.folder)
    assert (first, again % SAVED_EVERY) == (0, 0)
    assert 2 * SAVED_EVERY <= again < STEPS
    assert killed.curve == killed.expected
    check_rows(killed.folder, killed.expected)


def test_each_socket_of_a_run_is_on_loopback_or_behind_the_token(killed: Killed) -> None:
    assert {one: closed for one, closed in killed.sockets.items() if closed == OPEN} == {}
    reading = {one.process for one, closed in killed.sockets.items() if closed == METRICS}
    assert reading <= {"monitor.py", "dashboard.py", AGENT}
    # What would be open if nobody had closed it: the store and Gloo of the training workers, and Ray's own.
    closed = {(one.process, closed) for one, closed in killed.sockets.items()}
    assert closed >= {(WORKER, LOOPBACK), (WORKER, TOKEN), ("gcs_server", TOKEN), ("raylet", TOKEN)}
