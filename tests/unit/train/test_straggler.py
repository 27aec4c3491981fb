"""Which worker holds the others up, and what is said of it."""

from __future__ import annotations

from xalign_ray.train.watch import slow_worker

HOSTS = ["a", "b", "c"]


def test_the_worker_that_waits_for_nobody_is_named_with_its_host_and_the_reason() -> None:
    assert slow_worker([80.0, 2.0, 90.0], [1.0, 1.0, 1.0], 200.0, HOSTS) == (
        "Worker 1 on b holds the others up: they wait 85 of the 200 ms of a step for it, because its share of the work "
        "takes longer."
    )
    assert slow_worker([80.0, 90.0, 0.0], [1.0, 1.0, 70.0], 200.0, HOSTS) == (
        "Worker 2 on c holds the others up: they wait 85 of the 200 ms of a step for it, because it waits 70 ms for "
        "its rows."
    )


def test_nobody_is_named_where_all_wait_or_none_does_or_there_is_one() -> None:
    assert slow_worker([80.0, 60.0, 90.0], [0.0] * 3, 200.0, HOSTS) == ""
    assert slow_worker([20.0, 0.0, 30.0], [0.0] * 3, 200.0, HOSTS) == ""
    assert slow_worker([0.0], [100.0], 200.0, HOSTS) == ""
