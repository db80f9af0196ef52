"""When a change stands in the status, by an audit log."""

from typing import Any

from tests.bench.real.ten_thousand import stood
from tests.bench.real.world import BARE


def a_patch(user: str, resource: str, name: str, at: float, namespace: str = "others") -> dict[str, Any]:
    moment = f"2030-01-01T00:00:{at:09.6f}Z"
    of = {"resource": resource, "subresource": "status", "namespace": namespace, "name": name}
    whose = {"username": f"system:serviceaccount:muster:{user}"}
    return {
        "verb": "patch",
        "objectRef": of,
        "user": whose,
        "requestReceivedTimestamp": moment,
        "stageTimestamp": moment,
    }


def test_the_clock_stops_at_the_last_write_before_the_next_change_of_the_job():
    calls = [
        a_patch(BARE, "pods", "job-1-worker-0", 1.0),
        a_patch(BARE, "pods", "job-2-worker-0", 1.5),
        a_patch("status", "trainingjobs", "job-1", 2.0),
        a_patch("status", "trainingjobs", "job-1", 2.5),
        a_patch("nodes", "pods", "job-1-worker-1", 2.6),
        a_patch(BARE, "pods", "job-1-worker-1", 3.0),
        a_patch("status", "trainingjobs", "job-1", 3.25),
        a_patch("status", "trainingjobs", "job-2", 3.5),
        a_patch("status", "trainingjobs", "job-1", 3.75, namespace="ours"),
    ]
    assert sorted(stood(calls, "others")) == [0.25, 1.5, 2.0]


def test_a_status_that_tells_of_a_change_only_after_the_next_one_tells_of_both():
    calls = [
        a_patch(BARE, "pods", "job-1-worker-0", 1.0),
        a_patch(BARE, "pods", "job-1-worker-1", 2.0),
        a_patch("status", "trainingjobs", "job-1", 3.0),
    ]
    assert sorted(stood(calls, "others")) == [1.0, 2.0]
