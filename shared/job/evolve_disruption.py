"""Tracks workers that left the hosts files while they still run, for their drain time.  Pure; called by `evolve`."""

from collections.abc import Mapping

import msgspec

from shared.job.events.event import At
from shared.job.events.scaler import HostsPublished
from shared.job.membership import Departure, Members
from shared.job.naming import Slot
from shared.job.state import Job, hosts_seen
from shared.job.views import indices

replace = msgspec.structs.replace


def departed(job: Job, event: HostsPublished) -> Mapping[Slot, Departure]:
    """All workers that left the hosts files, including this event's; `job` has the members before the event."""
    if not isinstance(job.membership, Members):
        return {}
    departures = job.membership.departures
    left = job.membership.indices - indices(event.members)
    if not left and not departures:
        return departures
    kept = {slot: departure for slot, departure in departures.items() if slot in job.attempt.slots}
    slots = map(job.attempt.worker_slot, left)
    return {**kept, **dict.fromkeys(slots, Departure(event.version, event.drain))}


def departures_seen(job: Job, at: At) -> Job:
    """Note when hosts files without these workers were first seen in place."""
    if not isinstance(job.membership, Members):
        return job
    due = {
        slot: replace(departure, seen=at.sequence)
        for slot, departure in job.membership.departures.items()
        if not departure.seen and hosts_seen(job, departure.version)
    }
    if not due:
        return job
    return replace(job, membership=replace(job.membership, departures={**job.membership.departures, **due}))
