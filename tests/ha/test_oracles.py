"""The checks of high availability see what they are there for: each is shown a spoilt history."""

from collections.abc import Callable
from datetime import datetime

import msgspec
import pytest

from shared.eventlog import Stored
from shared.job.fold import History
from tests.ha import oracles
from tests.ha.figures import Figure, slow
from tests.ha.oracles import Acknowledged, Election, Place
from tests.ha.run import Outcome
from tests.ha.strikes import Strike, Struck
from tests.ha.witness import print_of
from tests.kit.builders import a_running_job
from tests.kit.histories import KEY, stored
from tests.kit.invariants import faults_of

REPLACE = msgspec.structs.replace
Log = list[Stored]


def a_log() -> Log:
    history, log = History(KEY), list[Stored]()
    for event in a_running_job(workers=2):
        log.append(stored(history, event))
        history.fold(log[-1])
    return log


def told(log: Log) -> list[Acknowledged]:
    """Every append was acknowledged."""
    parts = [(one.sequence, one.subject.split(".")) for one in log]
    return [Acknowledged("one", 0.0, sequence, part[4], part[3], part[5]) for sequence, part in parts]


def decision(log: Log, number: int = 1) -> int:
    return [at for at, one in enumerate(log) if one.subject.startswith("jobs.")][number]


def without(log: Log, at: int) -> Log:
    return [*log[:at], *log[at + 1 :]]


def shortened(log: Log) -> Log:
    """What a server forgot at its end, another event has taken the place of."""
    return [*log[:-1], REPLACE(log[-1], event_id="another", subject=log[0].subject, body=b"{}")]


def repeated(log: Log) -> Log:
    at = decision(log)
    again = REPLACE(log[at], sequence=log[-1].sequence + 1)
    return [*log, again]


def said_again(log: Log) -> Log:
    return [*log, REPLACE(log[-1], sequence=log[-1].sequence + 1, event_id="another")]


def swapped(log: Log) -> Log:
    one, other = log[2], log[3]
    return [*log[:2], REPLACE(other, sequence=one.sequence), REPLACE(one, sequence=other.sequence), *log[4:]]


def altered(log: Log) -> Log:
    at = decision(log)
    return [*log[:at], REPLACE(log[at], body=log[at].body + b" "), *log[at + 1 :]]


def branched(log: Log) -> Log:
    """A decision that was taken on what was known before the last one, as without a guard it could be."""
    history = History(KEY)
    first = decision(log, 0)
    for one in log[:first]:
        history.fold(one)
    late = REPLACE(log[first], sequence=log[-1].sequence + 1, event_id="late", basis=history.basis)
    return [*log, late]


def faults(log: Log, spoilt: Log) -> set[str]:
    """The names of the checks that find something wrong."""
    found = {
        "lost": oracles.lost(spoilt, told(log)),
        "changed": oracles.changed(spoilt, "n0", [(one.sequence, print_of(one)) for one in log]),
        "doubled": oracles.delay(spoilt),
        "unlawful": faults_of(spoilt),
    }
    return {name for name, words in found.items() if words}


def test_a_whole_history_has_no_faults():
    log = a_log()
    assert len(log) > 6
    assert not faults(log, log)


@pytest.mark.parametrize(
    ("spoil", "seen"),
    [
        pytest.param(lambda log: without(log, 2), {"lost", "changed", "unlawful"}, id="an event is lost"),
        pytest.param(lambda log: log[:-1], {"lost", "changed"}, id="the last event is lost"),
        pytest.param(shortened, {"lost", "changed"}, id="the last event makes room for another"),
        pytest.param(repeated, {"changed", "doubled", "unlawful"}, id="a decision is there twice"),
        pytest.param(said_again, {"changed", "doubled"}, id="the same is said twice"),
        pytest.param(swapped, {"lost", "changed", "unlawful"}, id="two events change places"),
        pytest.param(altered, {"changed", "unlawful"}, id="a body is altered"),
        pytest.param(branched, {"changed", "unlawful"}, id="a decision knows nothing of the one before"),
    ],
)
def test_every_fault_is_seen(spoil: Callable[[Log], Log], seen: set[str]):
    log = a_log()
    assert faults(log, spoil(log)) >= seen


def test_a_slot_with_two_pods_is_seen():
    made = {Place("Pod", "a-worker-0", "job"): {"1": 10, "2": 20}, Place("Pod", "a-worker-1", "job"): {"3": 11}}
    assert len(oracles.made_twice(made, deleted={})) == 1
    assert len(oracles.made_twice(made, deleted={"job": 30})) == 1


def test_what_is_made_again_for_a_job_that_is_gone_is_no_double():
    made = {Place("Service", "a", "job"): {"1": 10, "2": 20}}
    assert not oracles.made_twice(made, deleted={"job": 15})


def test_what_a_process_wrote_between_two_moments_is_found_by_its_token():
    line = {
        "verb": "create",
        "user": {"extra": {"authentication.kubernetes.io/credential-id": ["JTI=1"]}},
        "objectRef": {"resource": "pods", "name": "a-worker-0"},
        "requestReceivedTimestamp": "2030-01-01T00:00:10.000000Z",
        "responseStatus": {"code": 201},
    }
    asked = line | {"objectRef": {"resource": "selfsubjectaccessreviews"}}
    made = oracles.writes([line, line | {"verb": "get"}, asked])
    assert [(write.what, write.code) for write in made] == [("pods/a-worker-0", 201)]
    at = made[0].at
    assert oracles.late(made, "JTI=1", at - 1, at + 1) == made
    assert not oracles.late(made, "JTI=2", at - 1, at + 1)
    assert not oracles.late(made, "JTI=1", at + 1, at + 2)
    assert oracles.stale(made)
    assert not oracles.stale([made[0]._replace(code=409)])


def test_a_script_of_a_process_that_was_not_the_owner_is_seen():
    # Over a WebSocket it is asked for with GET, and answered with 101.
    line = {
        "verb": "get",
        "user": {"extra": {"authentication.kubernetes.io/credential-id": ["JTI=1"]}},
        "objectRef": {"resource": "pods", "subresource": "exec", "name": "a-launcher"},
        "requestReceivedTimestamp": "2030-01-01T00:00:10.000000Z",
        "responseStatus": {"code": 101},
    }
    log = line | {"objectRef": {"resource": "pods", "subresource": "log", "name": "a-launcher"}}
    made = oracles.writes([line, log])
    assert [write.what for write in made] == ["pods/exec/a-launcher"]
    assert oracles.stale(made)
    assert not oracles.stale([made[0]._replace(code=403)])


def test_a_goal_that_was_missed_is_said():
    assert "p99 2.88 s, and the goal is ≤ 2.5 s" in Figure("killed", [2.88], 2.5).missed
    assert not Figure("killed", [2.5], 2.5).missed
    assert not Figure("killed", [9.0]).missed
    assert not Figure("killed", [], 2.5).missed
    assert Figure("killed", [2.88], 2.5).row().endswith("| p99 ≤ 2.5 s |")


def test_only_appends_count_as_acknowledged():
    line = {"event": "JobCreated", "service": "status", "uid": "u", "seq": 3, "timestamp": "2030-01-01T00:00:10Z"}
    others = [line | {"event": "effect will be retried"}, {"event": "started", "timestamp": line["timestamp"]}]
    assert [ack.sequence for ack in oracles.acknowledged("status-0", [line, *others])] == [3]


def test_whom_a_server_of_the_log_says_it_leads_is_read():
    line = "[7] 2030/01/01 00:00:10.500000 [INF] JetStream cluster new {} leader for 'LOG > {}'"
    lines = [line.format("stream", "KV_LEASES"), line.format("consumer", "JOBS > status"), "[7] Starting nats-server"]
    (one,) = oracles.elections(lines)
    assert one.stream == "KV_LEASES"
    assert one.at == datetime(2030, 1, 1, 0, 0, 10, 500_000).astimezone().timestamp()


def test_what_a_late_append_may_have_waited_for_is_told():
    killed = Struck(Strike("kill", "watcher", "owner"), "watcher-0", 100.0, 100.0, 101.0, 107.0)
    told = [Acknowledged("watcher-1", 106.0, 7, "watcher", "u", "JobObserved")]
    elections = [Election(99.0, "JOBS"), Election(105.5, "KV_LEASES"), Election(106.5, "JOBS")]
    outcome = Outcome([killed], told, [], {"watcher-1": [(101.5, True)]}, elections, {}, 1, 1, 0, 0, [])
    (words,) = slow([outcome])
    assert "after 6.00 s; its lease was another's after 1.50 s" in words
    assert words.endswith("at NATS meanwhile: KV_LEASES after 5.50 s")
    assert not slow([REPLACE(outcome, told=[told[0]._replace(at=102.0)])])
