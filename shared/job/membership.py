"""Membership: the workers in the newest hosts files of an attempt, or `Unknown` before the first.  Pure.

"Unknown" and "no members" are different types: an empty hosts file is published only for a job without workers.
"""

from collections.abc import Mapping

import msgspec

from shared.job.naming import Slot
from shared.job.sorted_set import SortedSet


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A worker that left the hosts files and whose slot is not released yet."""

    version: int
    """The version of the first hosts files without the worker."""
    drain: int
    """Seconds that the worker gets once those files are in place."""
    seen: int = 0
    """The sequence at which those files were seen in place; 0 before."""


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """No hosts files were published in this attempt."""

    version: int = 0
    """The version of the newest hosts files of any attempt; 0 if there are none."""


class Members(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The members by the newest `HostsPublished` or by the job's adoption."""

    version: int
    """The version of the newest hosts files; 0 if another operator wrote them."""
    indices: SortedSet[int]
    """Worker indices in the newest hosts files."""
    leaving: SortedSet[int] = SortedSet()
    """Workers that a scale-in took out of the hosts files and has not released yet."""
    departures: Mapping[Slot, Departure] = {}
    """Workers that left the hosts files for any reason; may have entries of released slots."""
    written: int = 0
    """The sequence at which this version was seen in the cluster; 0 before."""


Membership = Unknown | Members
