"""Commands within launchers: what is executed, with what, and which fact comes of it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from services.scaler.core.commands import QUIETLY
from services.scaler.core.effects import CheckDrain, RunScript
from services.scaler.launcher_commands import HOSTS, LOOK_SECONDS, LOOKS_AT_ONCE, LauncherCommands
from shared.cluster import Execution
from shared.cluster.kinds import PODS
from shared.errors import Refused, Transient, Trouble
from shared.frameworks.framework import owner_reference
from shared.frameworks.scale_requests import SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.scaler import DrainChecked, ScriptFinished
from shared.job.naming import JOB_UID, JobKey, Uid
from shared.job.reasons import EXEC_OFF
from shared.job.state import Job, JobResource
from shared.job.timing import SCRIPT_GRACE_SECONDS
from tests.memory.cluster import MemoryCluster
from tests.memory.store import MemoryStore

KEY = JobKey("team-a", "resnet", Uid("uid-1"))
JOB = Job(key=KEY, resource=JobResource(kind="TrainingJob", api_version=TRAININGJOBS.api_version))
LAUNCHER = {
    "metadata": {
        "name": "resnet-launcher",
        "labels": {JOB_UID: KEY.uid},
        "ownerReferences": [owner_reference(TRAININGJOBS, KEY)],
    },
    "spec": {"containers": []},
}
R1 = Uid("request-1")
SECRET = "a b; touch x\t$(id)"
Answer = Callable[[], Awaitable[Execution]]


async def well() -> Execution:
    return Execution(0, b"")


class Inside:
    """A launcher and a request, and a word-by-word memory of what was executed."""

    def __init__(self, answer: Answer = well, **spec: Any) -> None:
        self.store = MemoryStore()
        self.store.program = self._program
        self.cluster = MemoryCluster(self.store)
        self.commands = LauncherCommands(self.cluster)
        self.executed: list[tuple[str, str, tuple[str, ...]]] = []
        self.hosts: Iterator[bytes] = itertools.repeat(b"w:1\na:1\nb:1\n")
        """What the launcher finds in its hosts file, time after time."""
        self.hosts_code = 0
        self.most_at_once = 0
        self._at_once = 0
        self._answer = answer
        pod = self.store.create(PODS, KEY.namespace, LAUNCHER)
        wish = {"selector": {"name": "resnet"}, "toAdd": {"count": 2}, "script": "/opt/grow.sh", "timeout": 30, **spec}
        request = self.store.create(SCALEOUTS, KEY.namespace, {"metadata": {"name": "out"}, "spec": wish})
        self.request, self.pod = Uid(request.metadata["uid"]), Uid(pod.metadata["uid"])

    async def run(self, **changes: Any) -> ScriptFinished:
        effect: dict[str, Any] = {
            "kind": "ScaleOut",
            "name": "out",
            "request": self.request,
            "pod": "resnet-launcher",
            "pod_uid": self.pod,
            "container": "main",
            "hosts": "a:1,b:1",
            "timeout": 30,
            "decision": 7,
        }
        return await self.commands.run(JOB, RunScript(**effect | changes))

    async def look(self, *names: str) -> DrainChecked:
        workers = tuple(enumerate(names or ("resnet-worker-0", "resnet-worker-1")))
        effect = CheckDrain(
            request=R1, pod="resnet-launcher", pod_uid=self.pod, container="main", workers=workers, count=1
        )
        return await self.commands.check_drain(JOB, effect)

    async def _program(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> Execution:
        assert namespace == KEY.namespace
        if tuple(command) == HOSTS:
            return Execution(self.hosts_code, next(self.hosts))
        self.executed.append((pod, container, tuple(command)))
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._answer()
        finally:
            self._at_once -= 1


def says(output: bytes, code: int = 0) -> Answer:
    async def answer() -> Execution:
        return Execution(code, output)

    return answer


def fails(trouble: Trouble) -> Answer:
    async def answer() -> Execution:
        raise trouble

    return answer


async def hangs() -> Execution:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_script_runs_in_the_first_container_with_its_hosts():
    inside = Inside()
    assert await inside.run() == ScriptFinished(request=inside.request, exit_code=0)
    assert inside.executed == [("resnet-launcher", "main", (*QUIETLY, "sh", "/opt/grow.sh", "a:1,b:1"))]


@pytest.mark.parametrize(
    ("answer", "exit_code", "reason"),
    [
        pytest.param(says(SECRET.encode(), 3), 3, "", id="an exit code"),
        pytest.param(fails(Refused(SECRET, reason="Forbidden")), None, "Forbidden", id="not allowed"),
        pytest.param(fails(Refused(SECRET, reason="CannotExecute")), None, "CannotExecute", id="no shell"),
        pytest.param(fails(Transient(SECRET)), None, "ScriptOutcomeUnknown", id="a connection cut"),
        pytest.param(hangs, None, "TimedOut", id="longer than its timeout"),
    ],
)
async def test_its_end_is_a_fact_and_its_output_is_not(answer: Answer, exit_code: int | None, reason: str):
    inside = Inside(answer, env=[{"name": "A", "value": SECRET}])
    begun = asyncio.get_running_loop().time()
    assert await inside.run() == ScriptFinished(request=inside.request, exit_code=exit_code, reason=reason)
    assert asyncio.get_running_loop().time() - begun <= 31
    assert len(inside.executed) == 1, "at most once"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"name": "another"}, "RequestDeleted", id="the request is gone"),
        pytest.param({"request": Uid("older")}, "RequestDeleted", id="another request has its name"),
        pytest.param({"pod": "another"}, "NoLauncher", id="the launcher is gone"),
        pytest.param({"pod_uid": Uid("older")}, "NoLauncher", id="another launcher has its name"),
    ],
)
async def test_what_it_was_decided_for_is_what_it_runs_in_or_nothing_runs(changes: dict[str, Any], reason: str):
    inside = Inside()
    wanted = changes.get("request", inside.request)
    assert await inside.run(**changes) == ScriptFinished(request=wanted, reason=reason)
    assert inside.executed == []


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param({"script": ""}, "RequestChanged", id="no script any more"),
        pytest.param({"script": 7}, "RequestChanged", id="a script that is no text"),
        pytest.param({"env": [{"name": "A=B", "value": "x"}]}, "RequestChanged", id="a name that is none"),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}, "InvalidEnvironment", id="a value elsewhere"
        ),
    ],
)
async def test_a_request_that_was_changed_behind_our_back_runs_nothing(spec: dict[str, Any], reason: str):
    inside = Inside(**spec)
    assert await inside.run() == ScriptFinished(request=inside.request, reason=reason)
    assert inside.executed == []


async def test_reading_the_request_is_tried_again_and_running_the_script_is_not():
    inside = Inside()
    inside.store.faults.fail_next("get", Transient("busy"), plural="scaleouts", times=3)
    assert await inside.run() == ScriptFinished(request=inside.request, exit_code=0)
    cut = Inside(fails(Transient("cut")))
    assert await cut.run() == ScriptFinished(request=cut.request, reason="ScriptOutcomeUnknown")
    assert len(inside.executed) == len(cut.executed) == 1


async def test_out_the_script_waits_until_the_launcher_finds_those_that_come():
    inside = Inside()
    inside.hosts = iter([b"w:1\n", b"w:1\na:1\n", b"w:1\na:10\nb:1\n", b"w:1\na:1\nb:1\n"])
    assert await inside.run() == ScriptFinished(request=inside.request, exit_code=0)
    assert not [*inside.hosts], "it looked until they were there"
    assert len(inside.executed) == 1


async def test_out_a_launcher_that_never_finds_them_runs_nothing():
    inside = Inside()
    inside.hosts = itertools.repeat(b"w:1\n")
    assert await inside.run() == ScriptFinished(request=inside.request, reason="HostsNotWritten")
    assert inside.executed == []


async def test_where_no_check_is_possible_there_is_no_wait():
    inside = Inside()
    inside.hosts, inside.hosts_code = itertools.repeat(b""), 127
    begun = asyncio.get_running_loop().time()
    assert await inside.run() == ScriptFinished(request=inside.request, exit_code=0)
    assert asyncio.get_running_loop().time() - begun < 1


async def test_a_request_that_cannot_be_read_runs_nothing():
    inside = Inside()
    inside.store.faults.fail_next("get", Transient("busy"), plural="scaleouts", times=9)
    assert await inside.run() == ScriptFinished(request=inside.request, reason="Unreachable")
    assert inside.executed == []


@pytest.mark.parametrize(
    ("answer", "in_use", "reason"),
    [
        pytest.param(says(b"ssh\0resnet-worker-1\0"), (1,), "", id="in use"),
        pytest.param(says(b"python\0train.py\0"), (), "", id="not in use"),
        pytest.param(says(b"python\0train.py\0", 1), (), "", id="a process ended while we looked"),
        pytest.param(says(b"python\0train.py\0", 3), (), "", id="its cat counts the files that are not there"),
        pytest.param(says(b"", 127), (), "NoAnswer", id="no program to look with"),
        pytest.param(says(b"python\0", 137), (), "NoAnswer", id="a look that was killed before it saw all"),
        pytest.param(says(b"ssh\0resnet-worker-1\0", 137), (1,), "", id="in use, as it saw before it was killed"),
        pytest.param(says(b"x" * (5 << 20)), (), "TooLong", id="more than we keep"),
        pytest.param(says(b"ssh\0resnet-worker-1\0" + b"x" * (5 << 20)), (1,), "", id="in use, and more than we keep"),
        pytest.param(fails(Refused("no", reason="Forbidden")), (), "Forbidden", id="not allowed"),
        pytest.param(fails(Refused("no", reason="CannotExecute")), (), "CannotExecute", id="no shell"),
        pytest.param(fails(Transient("cut")), (), "TimedOut", id="a connection cut"),
        pytest.param(hangs, (), "TimedOut", id="a launcher that hangs"),
    ],
)
async def test_a_look_shows_which_workers_are_in_use_or_why_that_is_unknown(
    answer: Answer, in_use: tuple[int, ...], reason: str
):
    inside = Inside(answer)
    begun = asyncio.get_running_loop().time()
    assert await inside.look() == DrainChecked(request=R1, in_use=in_use, reason=reason)
    assert asyncio.get_running_loop().time() - begun <= LOOK_SECONDS
    look = ("sh", "-c", "cat /proc/[0-9]*/cmdline /etc/edl/hostfile /etc/mpi/hostfile")
    assert inside.executed == [("resnet-launcher", "main", look)]


async def test_no_command_runs_where_commands_are_switched_off():
    inside = Inside()
    inside.commands = LauncherCommands(inside.cluster, allowed=False)
    assert await inside.run() == ScriptFinished(request=inside.request, reason=EXEC_OFF)
    assert await inside.look() == DrainChecked(request=R1, reason=EXEC_OFF)
    assert inside.executed == []


async def test_launchers_that_hang_delay_the_look_into_another_by_seconds_only():
    inside = Inside(hangs)
    begun = asyncio.get_running_loop().time()
    looks = await asyncio.gather(*(inside.look() for _ in range(100)))
    assert {found.reason for found in looks} == {"TimedOut"}
    assert asyncio.get_running_loop().time() - begun <= LOOK_SECONDS
    assert inside.most_at_once == LOOKS_AT_ONCE


async def test_a_script_that_begins_late_has_less_time_so_that_its_end_is_known_in_time():
    inside = Inside(hangs)
    inside.hosts = itertools.chain(itertools.repeat(b"w:1\n", 8), itertools.repeat(b"a:1\nb:1\n"))
    begun = asyncio.get_running_loop().time()
    assert await inside.run() == ScriptFinished(request=inside.request, reason="TimedOut")
    assert asyncio.get_running_loop().time() - begun < 30 + SCRIPT_GRACE_SECONDS


async def test_a_script_whose_time_is_up_before_it_can_begin_is_not_begun():
    inside = Inside()
    inside.store.faults.fail_next("get", Transient("busy", retry_after=20.0), plural="scaleouts", times=2)
    assert await inside.run() == ScriptFinished(request=inside.request, reason="Unreachable")
    assert inside.executed == []
