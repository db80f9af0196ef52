"""The wanted size of a job, and the queue of requests that change it.  Pure."""

from collections.abc import Mapping

import msgspec

from shared.job.naming import Slot, Uid
from shared.job.request import Request
from shared.job.sorted_set import SortedSet


class Scaling(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The scale requests of a job; at most one is carried out at a time."""

    size: int = 0
    """The wanted number of workers, with which a restart begins.  Requests change it, losses do not."""
    least: int = 0
    """The minimum of a job that names none, while its resource has the size that requests led to; 0 otherwise."""
    requests: Mapping[Uid, Request] = {}
    """In the order first seen."""
    open: Uid = Uid("")
    """The request that is being carried out; empty if there is none."""

    @property
    def open_request(self) -> Request | None:
        """The request that is being carried out, if any."""
        return self.requests.get(self.open)

    @property
    def next_request(self) -> Request | None:
        """The first waiting request in the order of the log."""
        return next((request for request in self.requests.values() if request.phase == "Pending"), None)

    @property
    def arriving(self) -> SortedSet[Slot]:
        """The workers that the open request adds, until its point of no return."""
        request = self.open_request
        return request.added if request is not None and not request.published else SortedSet()
