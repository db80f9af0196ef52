"""What one tenant does changes no decision about another tenant's jobs: pairs of runs, with and without the other."""

import functools
import os
import re

import msgspec
import pytest

from services.watcher.core.cache import Cache
from services.watcher.core.observed import ObservedRequest
from shared.eventlog import Stored
from shared.eventlog.subject import Subject
from tests.simulation.matrix import STEADY
from tests.simulation.plan import (
    AnyStep,
    Apply,
    Delete,
    Edit,
    EditRuntime,
    End,
    Foreign,
    Nonsense,
    Plan,
    Quota,
    Scale,
    Strip,
    Terminate,
    plan_of,
)
from tests.simulation.platform import LONGEST_USE_SECONDS
from tests.simulation.run import simulate

US, THEM = "team-a", "team-b"
OF_ONE_TENANT = (Apply, Scale, Edit, EditRuntime, Delete, Strip, Foreign, End, Nonsense, Quota, Terminate)
"""What a tenant can do; nodes, servers and replicas are everybody's."""

PAIRS = int(os.environ.get("MUSTER_PAIRS", "8"))
CHUNK = 8

UID = re.compile(r"[0-9a-f]{8}-0000-4000-8000-000000000000")
CAUSE = re.compile(r',"because":\d+|,"slot":(null|\{[^}]*\})')

DRAINED = LONGEST_USE_SECONDS + 2
"""After so long no launcher uses a worker that leaves."""

OURS: tuple[AnyStep, ...] = (
    Apply(at=0.5, job="job-0", kind="TrainingJob", workers=2, more={"restartPolicy": "OnFailure"}),
    Apply(at=0.5, job="job-1", kind="PyTorchJob", workers=2),
    Scale(at=2.5, name="out", job="job-0", by=2, more={"script": "out", "timeout": 20}),
    Scale(at=4.5, name="in", job="job-0", by=-1),
    Scale(at=4.5 + DRAINED, name="too-many", job="job-0", by=40),
    End(at=6.5 + DRAINED, pod="job-0-launcher", code=1),
    Edit(at=6.5 + DRAINED, job="job-1", patch={"spec": {"runPolicy": {"suspend": True}}}),
    Edit(at=9.5 + DRAINED, job="job-1", patch={"spec": {"runPolicy": {"suspend": False}}}),
    Delete(at=12.5 + DRAINED, job="job-1"),
)
"""Our steps wait for one another, so that no decision depends on which of two things is seen first.

Their jobs have the same names.
"""


def theirs(seed: int) -> list[AnyStep]:
    """All that a tenant does in this seed."""
    return [
        msgspec.structs.replace(step, namespace=THEM) for step in plan_of(seed).steps if isinstance(step, OF_ONE_TENANT)
    ]


def decisions(seed: int, *steps: AnyStep) -> dict[tuple[str, str], list[str]]:
    """What each service decides about each of our jobs: without causes, and with uids by their order in it."""
    found: dict[tuple[str, str], list[str]] = {}
    uids: dict[tuple[str, str], dict[str, str]] = {}

    def hear(stored: Stored) -> None:
        subject = Subject.parse(stored.subject)
        if subject.family == "jobs" and subject.namespace == US:
            of = subject.name, subject.author
            known = uids.setdefault(of, {})
            body = CAUSE.sub("", stored.body.decode())
            found.setdefault(of, []).append(UID.sub(lambda uid: known.setdefault(uid[0], f"uid {len(known)}"), body))

    plan = Plan(seed=seed, steps=tuple(sorted(steps, key=lambda step: step.at)), workload=STEADY)
    simulate(plan, hear)
    return found


@functools.cache
def decisions_alone(seed: int) -> dict[tuple[str, str], list[str]]:
    """Without the other tenant."""
    return decisions(seed, *OURS)


@pytest.mark.parametrize("first", range(0, PAIRS, CHUNK))
def test_another_tenant_changes_no_decision(first: int):
    for seed in range(first, first + CHUNK):
        alone, beside = decisions_alone(seed), decisions(seed, *OURS, *theirs(seed))
        assert {("job-0", "scaler"), ("job-1", "status")} <= alone.keys()
        assert beside == alone, f"seed {seed}"


def test_a_request_that_reaches_across_is_seen(monkeypatch: pytest.MonkeyPatch):
    set_request = Cache.set_request

    def across(self: Cache, kind: str, at: tuple[str, str], seen: ObservedRequest | None):
        taken = seen if seen is None or seen.job != "job-0" else msgspec.structs.replace(seen, namespace=US)
        return set_request(self, kind, at, taken)

    alone = [decisions_alone(seed) for seed in range(CHUNK)]
    monkeypatch.setattr(Cache, "set_request", across)
    assert any(decisions(seed, *OURS, *theirs(seed)) != alone[seed] for seed in range(CHUNK))
