"""Muster for programs in Python: run jobs, follow their events, ask what happened.

`connect()` gives an asynchronous client, `muster.client.sync.connect()` the same one for programs without a loop.
The client writes to Kubernetes with the rights of the kubeconfig.  It reads histories there too, or from the log itself
where the environment or `connect()` says where the log is, as the commands do.
The types of facts are in `muster.client.facts`.  `docs/client.md` has examples.
"""

from muster.client.client import Client, connect
from muster.client.models import Cause, Event, Job, Report
from muster.following import Failed, WaitedTooLong
from muster.logs import Line
from shared.errors import Conflict, Refused, Transient, Trouble

__all__ = [
    "Cause",
    "Client",
    "Conflict",
    "Event",
    "Failed",
    "Job",
    "Line",
    "Refused",
    "Report",
    "Transient",
    "Trouble",
    "WaitedTooLong",
    "connect",
]
