"""Who is a member: which workers the newest hosts files of an attempt list, or that none was published yet.  Pure.

"Unknown" and "no members" are two types: an empty hosts file is published only for a job without workers.
"""

from collections.abc import Mapping

import msgspec

from shared.job.naming import Slot
from shared.job.sorted_set import SortedSet


class Departure(msgspec.Struct, frozen=True, gc=False):
    """A worker that left the hosts files and whose slot was not released yet."""

    version: int
    """Of the first hosts files without it."""
    drain: int
    """Seconds that the worker gets from when those files are in place."""
    seen: int = 0
    """The sequence at which those files were seen in place; 0 before."""


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """No hosts files were published in this attempt."""

    version: int = 0
    """Of the newest hosts files of any attempt; 0 when there never were any."""


class Members(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The members as the newest `HostsPublished`, or the adoption of the job, says."""

    version: int
    """Of the newest hosts files; 0 where another operator wrote them."""
    indices: SortedSet[int]
    """Worker indices in the newest hosts files."""
    leaving: SortedSet[int] = SortedSet()
    """Workers that a scale-in took out of the hosts files and that were not released yet."""
    departures: Mapping[Slot, Departure] = {}
    """Workers that left the hosts files, for whatever reason; entries of released slots are harmless."""
    written: int = 0
    """The sequence at which hosts files of this version were seen in the cluster; 0 before."""


Membership = Unknown | Members
