"""Whoever has the watcher's password at the log cannot have somebody's objects deleted, changed or entered.

The log of a job that does not exist names the objects of another job, and of nobody, by their real names and uids.
"""

from typing import Any

import msgspec
import pytest
import typer

from muster.history import disowned
from shared.cluster import Execution, Resource
from shared.cluster.kinds import CONFIGMAPS, PODS, SECRETS, SERVICES
from shared.eventlog import Entry
from shared.eventlog.subject import Subject
from shared.frameworks.scale_requests import SCALEINS, SCALEOUTS
from shared.frameworks.training_job import TRAININGJOBS
from shared.job.events.catalog import AnyEvent
from shared.job.events.status import JobSucceeded
from shared.job.events.watcher import ChildrenObserved, JobGone, PodsObserved, TimePassed
from shared.job.naming import JobKey, Uid, subject_of
from shared.job.timers import TIME_TO_LIVE
from shared.job.views import ChildView
from tests.kit.builders import a_spec, launcher, observed, scale_in, scale_out, worker
from tests.kit.services import wall_clock
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import NAMESPACE, World, a_scale_in, a_scale_out
from tests.memory.eventlog import MemoryEventLog

INVENTED = JobKey(NAMESPACE, "resnet", Uid("invented-uid"))
"""Its name is that of a job that is there: so are the names of its objects."""
KINDS: tuple[Resource[Any], ...] = (PODS, SERVICES, CONFIGMAPS, SECRETS, SCALEINS, SCALEOUTS, TRAININGJOBS)
OF_NOBODY = {"metadata": {"name": "bystander"}, "spec": {"containers": [{"name": "main", "image": "shop"}]}}


@pytest.mark.attack("the watcher's password at NATS", "pods, Services, Secrets and ConfigMaps of others")
@in_virtual_time
async def test_a_forged_end_of_a_job_deletes_nothing():
    async with World() as world:
        await robbed_of_the_watchers_password(world)
        before = everything(world)
        await forge(world, observed(a_spec()), pods_of_others(world), children_of_others(world), JobGone(version=9))
        for effect in ("DeletePod", "DeleteService", "DeleteHosts"):
            await refused(world, effect)
        assert everything(world) == before


@pytest.mark.attack("the watcher's password at NATS", "a shell in a pod of others")
@in_virtual_time
async def test_a_forged_launcher_is_neither_changed_nor_entered():
    async with World() as world:
        entered = await robbed_of_the_watchers_password(world)
        theirs = world.apply(SCALEINS, a_scale_in(1, name="theirs", script="/bin/hook"))
        before = everything(world)
        await pretend_to_run(world)
        await refused(world, "NudgeLauncher")
        request = msgspec.structs.replace(scale_in(1, script=True), name="theirs", uid=Uid(theirs.metadata["uid"]))
        await forge(world, msgspec.structs.replace(request, owner=INVENTED.uid))
        await world.until(lambda: "ScriptFinished" in world.types(), "the script is refused")
        assert b'"reason":"NotOurs"' in next(e for e in world.journal.events if "ScriptFinished" in e.subject).body
        assert not entered
        assert everything(world) == before


@pytest.mark.attack("the watcher's password at NATS", "scale requests of others")
@in_virtual_time
async def test_a_forged_request_takes_nobodys_request_away():
    async with World() as world:
        await robbed_of_the_watchers_password(world)
        theirs = world.apply(SCALEOUTS, a_scale_out(1, name="theirs"))
        before = everything(world)
        await pretend_to_run(world)
        request = msgspec.structs.replace(scale_out(1, owned=False), name="theirs", uid=Uid(theirs.metadata["uid"]))
        await forge(world, request)
        await refused(world, "OwnRequest")
        assert everything(world) == before


@pytest.mark.attack("the watcher's password at NATS", "jobs of others")
@in_virtual_time
async def test_a_job_that_asks_for_no_time_to_live_is_not_deleted():
    async with World() as world:
        await robbed_of_the_watchers_password(world)
        held = world.store.get(TRAININGJOBS, NAMESPACE, "resnet")
        assert held is not None
        key = JobKey(NAMESPACE, "resnet", Uid(held.metadata["uid"]))
        before = everything(world)
        world.exit_codes["resnet-launcher"] = 0
        ended = launcher(version=10_000, phase="Succeeded")
        ended = msgspec.structs.replace(ended, uid=Uid(world.pods()["resnet-launcher"].metadata["uid"]))
        spec = a_spec(1, ttl_seconds_after_finished=0)
        await forge(world, msgspec.structs.replace(observed(spec, generation=2), version=10_000), key=key)
        await forge(world, PodsObserved(pods=(ended,)), key=key)
        await world.until(lambda: "JobSucceeded" in world.types())
        over = world.types().index("JobSucceeded") + 1
        await forge(world, TimePassed(anchor=over, timer=TIME_TO_LIVE), key=key)
        await refused(world, "DeleteJob", "NotAsked")
        jobs = [known for known in before if known[0] == "TrainingJob"]
        assert [known for known in everything(world) if known[0] == "TrainingJob"] == jobs


@pytest.mark.attack("the watcher's password at NATS", "the progress of a job, for good")
@in_virtual_time
async def test_an_event_of_nonsense_stops_its_job_until_it_is_disowned():
    async with World() as world:
        job = await world.trains(workers=1)
        key = JobKey(NAMESPACE, "resnet", Uid(job.metadata["uid"]))
        await forge(world, JobSucceeded(reason="TrainingJobSucceeded"), key=key)
        nonsense = len(world.journal.events)
        await world.until(lambda: all(runtime.held() for runtime in world.runtimes()))
        world.exit_codes["resnet-launcher"] = 0
        await world.quiet()
        assert len(world.journal.events) == nonsense, "nobody acts on it"
        admin = MemoryEventLog(world.journal)
        said = await disowned(admin, nonsense, "a stolen password", "by-a-person", wall_clock())
        assert said == f"{key}: the event {nonsense} counts for nothing"
        await world.phase("Succeeded")
        with pytest.raises(typer.Exit):
            await disowned(admin, nonsense, "twice", "again", wall_clock())


async def robbed_of_the_watchers_password(world: World) -> list[str]:
    """A job runs, a bystander too; then its watcher is gone, and whoever has its password writes in its place.

    The pods in which a command was run from then on are in the result.
    """
    await world.trains(workers=1)
    for resource in (PODS, SERVICES, CONFIGMAPS, SECRETS):
        world.apply(resource, OF_NOBODY)
    await world.quiet()
    await world.kill("watcher")
    entered: list[str] = []

    async def note(namespace: str, pod: str, container: str, command: object) -> Execution:
        entered.append(pod)
        return Execution(0, b"")

    world.store.program = note
    return entered


async def forge(world: World, *events: AnyEvent, key: JobKey = INVENTED) -> None:
    """Append these events as the watcher."""
    log = MemoryEventLog(world.journal, user="watcher")
    for event in events:
        subject = subject_of(key, "facts", "watcher", event.__struct_config__.tag)
        last = await log.last(Subject.parse(subject).scope)
        at = len(world.journal.events)
        time = world.journal.events[-1].time
        entry = Entry(subject=subject, event_id=f"forged-{at}", time=time, body=msgspec.json.encode(event))
        await log.append(entry, expect=last.sequence if last is not None else 0)


async def pretend_to_run(world: World) -> None:
    """The invented job runs, in pods of others, and a hosts file of another is its own."""
    pod = world.pods()["bystander"].metadata["uid"]
    await forge(world, observed(a_spec(2)))
    await world.until(lambda: of_the_invented(world, "SlotsAssigned") == 1)
    await forge(world, children_of_others(world))
    await forge(world, PodsObserved(pods=(worker(0), worker(1))))
    await world.until(lambda: of_the_invented(world, "HostsPublished") == 1)
    await forge(world, children_of_others(world, hosts=2))
    await world.until(lambda: of_the_invented(world, "SlotsAssigned") == 2)
    shown = msgspec.structs.replace(launcher(hosts=0), name="bystander", uid=Uid(pod))
    await forge(world, PodsObserved(pods=(shown,)))
    await world.until(lambda: of_the_invented(world, "JobRunning") == 1)


def of_the_invented(world: World, kind: str) -> int:
    ours = [event.subject for event in world.journal.events if f".{INVENTED.uid}." in event.subject]
    return sum(subject.endswith(f".{kind}") for subject in ours)


def pods_of_others(world: World) -> PodsObserved:
    """A job's own pods, and one that is nobody's."""
    views = []
    for index, (name, held) in enumerate(world.pods().items()):
        views.append(msgspec.structs.replace(worker(index), name=name, uid=Uid(held.metadata["uid"])))
    return PodsObserved(pods=tuple(views))


def children_of_others(world: World, hosts: int = 1) -> ChildrenObserved:
    """Services, Secrets and ConfigMaps, as if they were the job's own with hosts files of this version."""
    views = []
    for resource in (SERVICES, SECRETS, CONFIGMAPS):
        for held in world.store.find(resource):
            name, uid = held.metadata["name"], Uid(held.metadata["uid"])
            views.append(ChildView(kind=resource.kind, name=name, uid=uid, version=4 + hosts, ours=True, hosts=hosts))
    return ChildrenObserved(children=tuple(views))


def everything(world: World) -> list[tuple[str, str, dict[str, Any]]]:
    """Every object but those of the invented job, without the status of jobs, which goes on."""
    found = []
    for resource in KINDS:
        for held in world.store.find(resource):
            if INVENTED.uid not in str(held.metadata.get("ownerReferences")):
                metadata = {name: part for name, part in held.metadata.items() if name != "resourceVersion"}
                status = {} if resource is TRAININGJOBS else held.manifest.get("status")
                manifest = {**held.manifest, "metadata": metadata, "status": status}
                found.append((resource.kind, held.metadata["name"], manifest))
    return found


async def refused(world: World, effect: str, reason: str = "NotOurs") -> None:
    """Wait until the log has the refusal of this effect."""
    said = f'"effect":"{effect}","reason":"{reason}"'.encode()
    await world.until(lambda: any(said in event.body for event in world.journal.events), f"{effect} is refused")
