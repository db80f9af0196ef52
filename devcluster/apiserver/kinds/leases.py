"""Leases, with which owners of partitions and nodes show that they live."""

from devcluster.apiserver.errors import Cause, Json, invalid_value
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.shapes import Lease


def wrong(lease: Json, old: Json | None) -> list[Cause]:
    spec = lease.get("spec") or {}
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    causes = []
    if duration is not None and duration <= 0:
        causes.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        causes.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return causes


def fill(lease: Json, old: Json | None) -> None:
    lease["spec"] = lease.get("spec") or {}


RULES = Rules(shape=Lease, fill=fill, wrong=wrong, must_say_version=True, created_by_update=True)
