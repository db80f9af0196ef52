"""What a change concerns: only the histories that it can say something new about."""

import msgspec
import pytest

from services.watcher.core.cache import Cache
from services.watcher.core.observed import ObservedNode
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.naming import JobKey, Uid
from shared.job.views import PodView
from tests.kit.builders import worker
from tests.kit.histories import KEY
from tests.watcher.watching import WAITING, a_request, a_resource

AT = (KEY.namespace, KEY.name)
replace = msgspec.structs.replace

SECOND_LIFE = JobKey(KEY.namespace, KEY.name, Uid("uid-2"))


def test_a_job_that_comes_goes_or_is_made_again_concerns_the_requests_that_wait_for_it():
    cache = Cache()
    assert cache.set_job(TRAININGJOBS, AT, a_resource()) == (WAITING, KEY)
    assert cache.set_job(TRAININGJOBS, AT, a_resource(key=SECOND_LIFE)) == (WAITING, KEY, SECOND_LIFE)
    assert cache.set_job(TRAININGJOBS, AT, None) == (WAITING, SECOND_LIFE)


def test_a_job_that_changes_concerns_itself_alone():
    # Each status that is written is such a change, of every job there is.
    cache = Cache()
    cache.set_job(TRAININGJOBS, AT, a_resource(version=5))
    assert cache.set_job(TRAININGJOBS, AT, a_resource(version=6)) == (KEY,)


@pytest.mark.parametrize(
    ("now", "concerned"),
    [
        pytest.param(worker(0, phase="Pending", version=6), (), id="a label"),
        pytest.param(replace(worker(0, phase="Pending", version=6), node="node-1"), (), id="bound to a node"),
        pytest.param(replace(worker(0, phase="Pending", version=6), node="spot"), (KEY,), id="bound to one that ends"),
        pytest.param(replace(worker(0, phase="Pending", version=6), uid=Uid("again")), (KEY,), id="made again"),
        pytest.param(worker(0, version=6), (KEY,), id="runs"),
        pytest.param(None, (KEY,), id="gone"),
    ],
)
def test_a_pod_concerns_its_job_when_an_event_may_tell_of_it(now: PodView | None, concerned: tuple[JobKey, ...]):
    cache = Cache()
    cache.set_node("spot", ObservedNode(reason="NodeDisruption"))
    cache.set_pod(AT, (KEY, worker(0, phase="Pending", version=5)))
    assert cache.set_pod(AT, (KEY, now) if now is not None else None) == concerned


def test_requests_are_placed_anew_when_their_job_is_another():
    cache = Cache()
    request = a_request("out")
    cache.set_request("ScaleOut", (KEY.namespace, "out"), request)
    places = []
    for resource in (None, a_resource(version=5), a_resource(version=6), a_resource(key=SECOND_LIFE), None):
        cache.set_job(TRAININGJOBS, AT, resource)
        places += [key for key in (WAITING, KEY, SECOND_LIFE) if cache.requests_of(key)]
    assert places == [WAITING, KEY, KEY, SECOND_LIFE, WAITING]


def test_a_request_is_found_by_its_uid_and_by_the_job_it_names_until_it_is_gone():
    cache = Cache()
    first, second = a_request("first"), a_request("second")
    for request in (first, second, first):
        cache.set_request("ScaleOut", (KEY.namespace, request.name), request)
    assert cache.requests_of(WAITING) == {first.uid: first, second.uid: second}
    assert cache.request(first.uid) == first
    assert [*cache.keys()] == [WAITING, WAITING]
    cache.set_request("ScaleOut", (KEY.namespace, "first"), None)
    assert cache.requests_of(WAITING) == {second.uid: second}
    assert cache.request(first.uid) is None
