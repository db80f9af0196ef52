"""Claims and changes meet in any order, once, in bounded memory; no user is named for the write of another."""

import gc
import random
import tracemalloc
from itertools import chain

import msgspec
import pytest

from services.audit import core
from services.audit.core import (
    CREATED,
    DELETED,
    KEPT_SECONDS,
    MOST_OF_ONE,
    Change,
    Claim,
    Matcher,
    Recorded,
    changes,
    claims,
)
from services.watcher.core.actors import attributed, writes
from services.watcher.core.observed import ObservedJob
from shared.job.events.catalog import AnyEvent
from shared.job.events.watcher import JobDeleting, JobGone, JobObserved, PodsGone, ScaleRequested
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from shared.job.spec import RuntimeUsed
from shared.job.views import Actor
from tests.audit.conftest import GROUP, a_list, an_event
from tests.kit.histories import KEY, stored
from tests.watcher.test_actors import a_job, entry


def a_change(sequence: int = 7, write: int = 40, uid: str = "uid-1") -> Change:
    return Change(sequence, JobKey("team-a", "resnet", Uid("uid-1")), uid, write)


def a_claim(
    user: str = "alice", write: int = 40, *, audit: str = "", namespace: str = "team-a", agent: str = ""
) -> Claim:
    return Claim(namespace, "uid-1", write, user, (), "", agent, audit or f"audit-{user}-{write}")


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (
            JobObserved(kind="TrainingJob", api_version="v", generation=3, version=42, writes=(40, 41)),
            [("uid-1", 40), ("uid-1", 41)],
        ),
        (JobObserved(kind="TrainingJob", api_version="v", generation=3, version=42), []),
        (ScaleRequested(kind="ScaleOut", name="more", uid=Uid("request")), [("request", CREATED)]),
        (JobDeleting(version=9), [("uid-1", DELETED)]),
        (JobGone(), [("uid-1", DELETED)]),
        (PodsGone(uids=(Uid("pod"),)), []),
    ],
    ids=["an edit", "an edit of which the writes are not known", "a request", "a deletion", "an end", "of no person"],
)
def test_the_changes_of_an_event(event: AnyEvent, found: list[tuple[str, int]]):
    assert [(change.uid, change.write) for change in changes(stored(History(KEY), event)).changes] == found


def test_events_of_other_authors_and_unreadable_ones_have_no_changes():
    event = stored(History(KEY), JobGone(), author="status")
    assert changes(event) == Recorded()


def test_they_meet_whichever_comes_first():
    first, second = Matcher(), Matcher()
    assert not [*first.change(a_change(), 0)]
    assert [match.claim.user for match in first.claim(a_claim(), 1)] == ["alice"]
    assert not [*second.claim(a_claim(), 0)]
    assert [match.change.sequence for match in second.change(a_change(), 1)] == [7]


def test_the_same_again_has_no_match():
    matcher = Matcher()
    assert len([*chain(matcher.change(a_change(), 0), matcher.claim(a_claim(), 0))]) == 1
    assert not [*chain(matcher.change(a_change(), 0), matcher.claim(a_claim(), 0))]


def test_another_version_or_object_has_no_match():
    matcher = Matcher()
    assert not [*matcher.change(a_change(), 0)]
    assert not [*matcher.claim(a_claim(write=41), 0)]
    assert not [*matcher.change(a_change(8, 41, "uid-2"), 0)]


def test_a_second_claim_of_a_write_is_written_down_too_so_that_readers_believe_neither():
    matcher = Matcher()
    found = [*chain(matcher.change(a_change(), 0), matcher.claim(a_claim(), 0), matcher.claim(a_claim("bob"), 0))]
    assert [match.claim.user for match in found] == ["alice", "bob"]


def test_two_claims_with_an_id_that_a_client_chose_are_two():
    matcher = Matcher()
    told = (
        matcher.change(a_change(), 0),
        matcher.claim(a_claim(audit="x"), 0),
        matcher.claim(a_claim("bob", audit="x"), 0),
    )
    assert [match.claim.user for match in chain(*told)] == ["alice", "bob"]


def test_a_write_that_two_events_tell_of_is_named_in_both():
    matcher = Matcher()
    found = [*chain(matcher.claim(a_claim(), 0), matcher.change(a_change(7), 0), matcher.change(a_change(9), 0))]
    assert [match.change.sequence for match in found] == [7, 9]


def seen(epoch: int, *writes: int) -> AnyEvent:
    return JobObserved(kind="TrainingJob", api_version="v", generation=3, version=42, epoch=epoch, writes=writes)


def test_a_version_that_is_given_out_again_after_etcd_was_restored_is_not_the_first_ones_writer():
    matcher, history = Matcher(), History(JobKey("team-a", "resnet", Uid("uid-1")))
    first, second = (changes(stored(history, seen(epoch, 40))) for epoch in (0, 1))
    told = [a_claim(), a_claim(write=DELETED)]
    assert len([match for claim in told for match in matcher.claim(claim, 0)]) == 0
    assert [match.claim.user for match in matcher.record(first, 0)] == ["alice"]
    assert not [*matcher.record(second, 0)]
    assert not [*matcher.change(a_change(write=DELETED), 0)]
    # A replica that has not listed again yet knows the old versions.
    assert not [*matcher.record(first, 0)]
    assert [match.claim.user for match in matcher.claim(a_claim("bob"), 1)] == ["bob"]


def test_the_first_list_after_a_restore_has_no_change_and_ends_the_epoch_all_the_same():
    matcher, history = Matcher(), History(JobKey("team-a", "resnet", Uid("uid-1")))
    assert not [*matcher.claim(a_claim(write=DELETED), 0)]
    assert not [*matcher.record(changes(stored(history, seen(1))), 0)]
    assert not [*matcher.record(changes(stored(history, JobGone())), 0)]


def test_who_changes_how_a_deletion_goes_on_did_not_delete_the_job_and_has_not_the_deleters_name():
    matcher, history = Matcher(), History(JobKey("team-a", "resnet", Uid("uid-1")))
    assert not [*matcher.claim(a_claim(write=DELETED), 0)]
    events = JobDeleting(version=9), JobDeleting(version=10, orphan=True), JobGone()
    recorded = [changes(stored(history, event)) for event in events]
    recorded = [
        Recorded(tuple(msgspec.structs.replace(change, sequence=number) for change in each.changes))
        for number, each in enumerate(recorded)
    ]
    assert [match.change.sequence for each in recorded for match in matcher.record(each, 0)] == [0, 2]


def test_what_came_too_late_has_no_match():
    matcher = Matcher()
    assert not [*matcher.claim(a_claim(), 0)]
    assert not [*matcher.change(a_change(), KEPT_SECONDS + 1)]
    assert matcher.bytes == 0


def test_a_flood_in_one_namespace_takes_the_room_of_no_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(core, "MOST_BYTES_OF_NAMESPACE", 20_000)
    monkeypatch.setattr(core, "MOST_BYTES", 50_000)
    matcher = Matcher()
    assert not [*matcher.claim(a_claim(write=1, namespace="team-b"), 0)]
    for write in range(2, 2000):
        assert not [*matcher.claim(a_claim(write=write, agent="x" * 200), 0)]
    assert matcher.bytes <= 50_000
    assert [match.claim.namespace for match in matcher.change(a_change(write=1), 0)] == ["team-b"]
    assert [match.claim.write for match in matcher.change(a_change(write=1999), 0)] == [1999]
    assert not [*matcher.change(a_change(write=2), 0)]
    assert matcher.forced_out > 1000
    for namespace in range(2000):
        [*matcher.claim(a_claim(write=5000 + namespace, namespace=f"team-{namespace}"), 1)]
    assert matcher.bytes <= 50_000
    assert not [*matcher.claim(a_claim(write=1), KEPT_SECONDS * 3)]
    assert matcher.bytes == a_claim(write=1).weight


def test_what_has_met_already_is_not_lost_when_it_makes_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(core, "MOST_BYTES_OF_NAMESPACE", 20_000)
    monkeypatch.setattr(core, "MOST_CHANGES", 50)
    matcher = Matcher()
    for write in range(1, 1000):
        assert not [*matcher.change(a_change(write, write), 0)]
        assert len([*matcher.claim(a_claim(write=write), 0)]) == 1
    assert matcher.forced_out == 0
    for write in range(2000, 2100):
        assert not [*matcher.change(a_change(write, write), 0)]
    assert matcher.forced_out == 50


def test_the_weight_of_a_claim_is_near_to_what_it_takes():
    for groups, length in (0, 10), (10, 40), (50, 1000):
        for letter in "xж":
            tracemalloc.start()
            try:
                matcher = Matcher()
                for number in range(100):
                    names = [f"{number}-{group}-{letter * length}" for group in range(groups)]
                    claim = a_claim(f"user-{letter * length}{number}", number, agent=f"{number}{letter * 200}")
                    assert not [*matcher.claim(msgspec.structs.replace(claim, groups=tuple(names)), 0)]
                del claim, names
                gc.collect()
                taken, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert taken < matcher.bytes * 1.1
            assert matcher.bytes < 2.5 * taken


def test_claims_of_one_write_are_bounded():
    matcher = Matcher()
    assert not [*matcher.change(a_change(), 0)]
    found = [match for number in range(99) for match in matcher.claim(a_claim(audit=str(number)), 0)]
    assert len(found) == MOST_OF_ONE


CLIENTS = tuple(Actor(f"client-{number}", "Update") for number in range(6))


def test_six_clients_that_edit_one_job_ten_thousand_times_are_never_named_for_another_ones_write():
    """Through what the watcher makes of each state and what an API server tells of each request."""
    chance, matcher = random.Random(7), Matcher()
    wrote: dict[int, str] = {}
    told: list[tuple[float, bytes | Recorded]] = []
    size, version, generation, runtime, sequence = 2, 100, 1, 1, 0
    last: dict[Actor, int] = {CLIENTS[0]: 0}

    def state() -> ObservedJob:
        seen = a_job(version, size, *(entry(actor, second % 60, "spec") for actor, second in last.items()))
        used = RuntimeUsed(kind="TrainingRuntime", name="torch", uid="r", generation=runtime, digest=str(runtime))
        observed = msgspec.structs.replace(seen.observed, generation=generation)
        return msgspec.structs.replace(seen, observed=observed, runtime=used)

    job = attributed(state(), None, listed=True)
    history = History(JobKey("team-a", "resnet", Uid("uid-1")))
    recorded, missed = version, False
    for number in range(10_000):
        actor = chance.choice(CLIENTS)
        wish = chance.randint(1, 4)
        changed, labels = wish != size, False
        if changed:
            size, version, generation = wish, version + chance.randint(1, 3), generation + 1
            wrote[version] = actor.manager
            last[actor] = number
        elif labels := chance.random() < 0.3:
            # Who writes a label changes the object, and no wish.
            version += 1
            last[actor] = number
        # An edit that changes nothing is answered with the version of the last write, another client's.
        event = an_event(version=version, user=actor.manager, audit=f"audit-{number}", changed=changed or labels)
        told += [(number + chance.uniform(0, 300), a_list(event))] * chance.choice([0, 1, 1, 1, 2])
        if chance.random() < 0.05:
            # An edit of the runtime changes what the job wishes for, too.
            runtime, size = runtime + 1, size + 4 * (size < 5) - 4 * (size >= 5)
        missed = missed or chance.random() < 0.1
        if not missed or chance.random() < 0.5:
            # What the watch did not show is in a list.
            job = attributed(state(), job, listed=missed)
            missed = False
        if chance.random() < 0.5 and job.observed.version > recorded:
            sequence += 1
            found_writes = writes(recorded, job.changes)
            fact = msgspec.structs.replace(job.observed, writes=found_writes)
            seen = changes(stored(history, fact))
            moved = tuple(msgspec.structs.replace(each, sequence=sequence) for each in seen.changes)
            told.append((number + chance.uniform(0, 300), Recorded(moved, 0)))
            recorded = job.observed.version
    found: dict[int, str] = {}
    for _, each in sorted(told, key=lambda each: each[0]):
        matches = (
            [match for claim in claims(each, {(GROUP, "trainingjobs")}) for match in matcher.claim(claim, 0)]
            if isinstance(each, bytes)
            else [*matcher.record(each, 0)]
        )
        for match in matches:
            assert match.change.write not in found
            found[match.change.write] = match.claim.user
    assert found == {write: wrote.get(write) for write in found}
    assert len(found) > 1_000
