"""Draining: whether the launcher still uses leaving workers, and for how long that is waited for."""

import pytest

from services.scaler.core import commands
from services.scaler.core.effects import CheckDrain
from shared.job.events.catalog import AnyEvent
from shared.job.events.scaler import DrainChecked, ScaleFailed, WorkersReleased
from shared.job.events.watcher import TimePassed
from shared.job.naming import Uid
from shared.job.steps import Record, Step
from shared.job.timing import next_due
from tests.kit.builders import (
    R1,
    a_running_job,
    exited,
    hosts_file,
    launcher,
    pods,
    published,
    scaling_in,
    workers,
)
from tests.kit.stories import given, scaler

BEFORE = [*a_running_job(workers=3), *scaling_in(2)]
DEADLINE = TimePassed(anchor=len(BEFORE) - 1, timer="ScalingDeadline")
SEEN: list[AnyEvent] = [*BEFORE, published(2, 0, 1, request=R1), hosts_file(2), pods(launcher(version=30, hosts=2))]
DRAINED = TimePassed(anchor=len(SEEN), timer="Drain")
IN_USE = DrainChecked(request=R1, in_use=(2,))
UNKNOWN = DrainChecked(request=R1, reason="CannotExecute")
DELETED = pods(launcher(version=39, deleting=True, hosts=2))
NEVER_RAN = pods(launcher(version=39, phase="Pending", deleting=True, hosts=2))
ENDED = pods(launcher(version=40, phase="Succeeded", exits=exited(0), hosts=2))


def look(count: int) -> CheckDrain:
    return CheckDrain(
        request=R1,
        pod="resnet-launcher",
        pod_uid=Uid("pod-launcher"),
        container="main",
        workers=((2, "resnet-worker-2"),),
        count=count,
    )


def released(reason: str) -> Record:
    return Record(WorkersReleased(request=R1, slots=(workers(2),), reason=reason))


def look_passed(after: list[AnyEvent]) -> TimePassed:
    """The time until the next look, after the one that ends this story."""
    return TimePassed(anchor=len(after), timer="DrainCheck")


@pytest.mark.parametrize(
    ("after", "step"),
    [
        pytest.param([], look(1), id="looked for as soon as the files are seen"),
        pytest.param([DRAINED], look(1), id="time alone proves nothing where one can look"),
        pytest.param([DrainChecked(request=R1)], released("Drained"), id="not in use"),
        pytest.param([IN_USE], None, id="in use, and waited for"),
        pytest.param([IN_USE, DRAINED], None, id="in use, however long it may take elsewhere"),
        pytest.param([IN_USE, look_passed([*SEEN, IN_USE])], look(2), id="looked for again"),
        pytest.param(
            [IN_USE, look_passed([*SEEN, IN_USE]), DrainChecked(request=R1)],
            released("Drained"),
            id="in use, and then no more",
        ),
        pytest.param([IN_USE, DEADLINE], released("DrainForced"), id="in use until the deadline"),
        pytest.param([UNKNOWN], None, id="unknown"),
        pytest.param([UNKNOWN, DRAINED], released("DrainTimed"), id="unknown, and they had their time"),
        pytest.param([DRAINED, UNKNOWN], released("DrainTimed"), id="unknown, and they had it before"),
        pytest.param(
            [IN_USE, look_passed([*SEEN, IN_USE]), DRAINED, UNKNOWN],
            released("DrainTimed"),
            id="in use, and then unknown",
        ),
        pytest.param([UNKNOWN, DEADLINE], released("DrainForced"), id="unknown until the deadline"),
        pytest.param([DEADLINE], released("DrainForced"), id="no answer until the deadline"),
        pytest.param([ENDED], released("Drained"), id="a launcher that has ended uses no worker"),
        pytest.param([DELETED], look(1), id="a launcher that is being deleted runs for its grace period"),
        pytest.param([IN_USE, DELETED], None, id="in use by a launcher that is being deleted"),
        pytest.param([NEVER_RAN], released("Drained"), id="deleted before it ran"),
        pytest.param([DELETED, ENDED], released("Drained"), id="until its processes have ended"),
    ],
)
def test_leaving_workers_go_when_no_process_uses_them(after: list[AnyEvent], step: Step | None):
    story = given(*SEEN, *after)
    story.then(scaler, *([step] if step is not None else []))


def test_a_launcher_without_files_to_see_is_not_looked_into():
    given(*BEFORE, published(2, 0, 1, request=R1), hosts_file(2)).then_among_others(scaler)
    assert not any(isinstance(step, CheckDrain) for step in given(*BEFORE).steps(scaler))


def test_the_looks_come_further_apart_and_each_has_a_time_of_its_own():
    story, waits = [*SEEN], []
    for _ in range(6):
        story.append(IN_USE)
        (timer,) = [timer for timer in next_due(given(*story).job) if timer.name == "DrainCheck"]
        assert timer.anchor == len(story)
        waits.append(timer.seconds)
        story.append(look_passed(story))
    assert waits == [1, 2, 4, 8, 10, 10]
    kept = [timer for timer in given(*story).job.efforts.timers_passed if timer[1] == "DrainCheck"]
    assert len(kept) == 1, "a drain of a day remembers no more than one of a minute"


@pytest.mark.parametrize(
    ("arguments", "used"),
    [
        pytest.param(b"mpirun\0-host\0resnet-worker-1,resnet-worker-10\0", (1, 10), id="a list of hosts"),
        pytest.param(b"ssh\0resnet-worker-10\0", (10,), id="worker 1 is not worker 10"),
        pytest.param(b"ssh\0my-resnet-worker-1\0", (), id="nor is another job's"),
        pytest.param(b"ssh\0-p\x0022\0root@resnet-worker-1\0", (1,), id="a user before it"),
        pytest.param(b"horovodrun\0-H\0resnet-worker-1:4,b:4\0", (1,), id="slots behind it"),
        pytest.param(b"x\0--hosts=resnet-worker-1\0", (1,), id="an option's value"),
        pytest.param(b"x\0resnet-worker-1.resnet.team-a.svc\0", (1,), id="a name in DNS"),
        pytest.param(b"sh\0-c\0exec ssh resnet-worker-1 orted\0", (1,), id="within a line of shell"),
        pytest.param(b"python\0resnet-worker-0:4\nresnet-worker-10:4\n", (10,), id="the launcher's hosts file"),
        pytest.param(b"python\0train.py\0", (), id="no worker at all"),
        pytest.param(b"x\0resnet-worker-1\xff\0", (), id="bytes that are no text"),
        pytest.param(b"", (), id="nothing"),
    ],
)
def test_names_are_compared_whole(arguments: bytes, used: tuple[int, ...]):
    assert commands.in_use(arguments, [(1, "resnet-worker-1"), (10, "resnet-worker-10")]) == used


def test_after_a_forced_drain_the_pods_have_time_to_go():
    story = [*SEEN, IN_USE, DEADLINE, WorkersReleased(request=R1, slots=(workers(2),), reason="DrainForced")]
    given(*story).then_nothing(scaler)
    (timer,) = next_due(given(*story).job)
    assert (timer.anchor, timer.name, timer.seconds) == (len(story), "ScalingDeadline", 60)
    left = "the workers have left and will be deleted: 3 -> 2 workers"
    given(*story, TimePassed(anchor=timer.anchor, timer=timer.name)).then(
        scaler, Record(ScaleFailed(request=R1, reason="WorkersNotGone", remains=left))
    )
