"""Scale requests as a watch shows it that is behind: a replica that takes over saw less than the log knows."""

import msgspec

from shared.job.events.watcher import ScaleRequestGone
from shared.job.scaling import Request
from tests.watcher.watching import Watching, a_request, watching_a_running_job

replace = msgspec.structs.replace


def knowing(version: int) -> Watching:
    """A running job whose log knows a request as it was at this version; the cache shows all but that request."""
    watching = watching_a_running_job(version=1)
    watching.listed(1_000)
    watching.show_requests(a_request("out", version=version, owner="uid-1"))
    watching.settle()
    assert "out" in watching.job().scaling.requests
    watching.take_request("out")
    return watching


def the_request(watching: Watching) -> Request:
    (request,) = watching.job().scaling.requests.values()
    return request


def test_a_request_is_gone_if_a_list_that_is_at_least_as_new_does_not_show_it():
    watching = knowing(version=50)
    watching.cache.requests["ScaleOut"].version = 49
    assert watching.seen() == []
    watching.cache.requests["ScaleOut"].version = 50
    assert watching.seen() == [ScaleRequestGone(uid=the_request(watching).uid)]


def test_an_older_view_of_a_request_says_nothing():
    watching = knowing(version=50)
    old = replace(a_request("out", version=40), spec=replace(a_request("out").spec, count=7))
    watching.show_requests(old)
    assert watching.seen() == []


def test_in_a_restored_store_a_request_that_is_missing_is_gone_whatever_its_version_was():
    watching = knowing(version=5_000)
    watching.cache.epoch = 1
    watching.listed(900)
    watching.settle()
    assert not watching.job().scaling.requests
