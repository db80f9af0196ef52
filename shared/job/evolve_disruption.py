"""What losing its place in the hosts files changes for a worker that still runs: since when nobody uses it.  Pure;
called by `evolve`.
"""

import msgspec

from shared.job.events.event import At
from shared.job.events.scaler import HostsPublished
from shared.job.state import Departure, Job, hosts_seen
from shared.job.views import indices

replace = msgspec.structs.replace


def departed(job: Job, event: HostsPublished) -> Job:
    """Note who leaves with the hosts files that come; `job` still has the members of those before."""
    left = job.members - indices(event.members)
    if not left and not job.departures:
        return job
    kept = {slot: departure for slot, departure in job.departures.items() if slot in job.slots}
    slots = map(job.worker_slot, left)
    return replace(job, departures={**kept, **dict.fromkeys(slots, Departure(event.version, event.drain))})


def departures_seen(job: Job, at: At) -> Job:
    """Note when hosts files without these workers were first seen in place."""
    due = {
        slot: replace(departure, seen=at.sequence)
        for slot, departure in job.departures.items()
        if not departure.seen and hosts_seen(job, departure.version)
    }
    return replace(job, departures={**job.departures, **due}) if due else job
