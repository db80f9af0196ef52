"""`muster.client` reads histories with a kubeconfig alone as with a user at the log, and goes on after outages."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import msgspec
import pytest

import muster.client
from muster.client import Client, Event, Refused
from muster.client.facts import JobFailed
from services.history import answers, pages
from shared.eventlog.account import ADMIN, READER
from shared.job.fold import History
from shared.job.naming import JobKey, Uid
from tests.history.conftest import Site, record
from tests.kit.builders import a_running_job
from tests.kit.nats import connected

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONGEST_SECONDS = 60.0


def by_cluster(site: Site, user: str = "viewer-a") -> Client:
    return muster.client.connect(kubeconfig=site.cluster.kubeconfig(user))


def by_log(site: Site) -> Client:
    return muster.client.connect(nats_url=site.nats.url, nats_user=READER, nats_password=site.nats.users[READER])


@pytest.mark.parametrize("whole", [True, False], ids=["at once", "in pages"])
async def test_both_ways_have_the_same_answers(site: Site, monkeypatch: pytest.MonkeyPatch, *, whole: bool):
    if not whole:
        monkeypatch.setattr(answers, "MOST_BYTES", 1_000)
        monkeypatch.setattr(pages, "PAGE_BYTES", 1_000)
        # It keeps answers.
        await site.stop()
        await site.start()
    found = []
    for make in (by_cluster, by_log):
        async with make(site) as client:
            events = await client.history("team-a", "bygone", uid="uid-2")
            causes = await client.why("team-a", "resnet", "worker-1")
            report = await client.report("team-a", "bygone")
            # Each says when it was made.
            found.append((events, causes, msgspec.structs.replace(report, until="", shares=())))
            assert [event.type for event in events[-2:]] == ["JobRunning", "JobGone"]
            assert causes[0].author
            assert (report.job.gone, report.job.wanted) == (True, 0)
            assert [phase.phase for phase in report.phases] == ["Created", "Running"]
            for call in (client.history, client.why, client.report):
                with pytest.raises(Refused, match="the log knows no job team-a/none") as unknown:
                    await call("team-a", "none")
                assert unknown.value.reason == "NotFound"
    assert found[0] == found[1]


async def until_failed(client: Client, namespace: str, begun: asyncio.Event) -> list[Event]:
    seen = []
    async with aclosing(client.events(namespace, "vgg")) as events:
        async for event in events:
            seen.append(event)
            if event.type == "JobRunning":
                begun.set()
            if isinstance(event.fact, JobFailed):
                break
    return seen


@pytest.mark.parametrize(("make", "namespace"), [(by_cluster, "team-c"), (by_log, "team-d")], ids=["cluster", "log"])
async def test_events_of_a_job_to_come_are_waited_for_and_go_on_after_an_outage(
    site: Site, make: Callable[[Site], Client], namespace: str
):
    history = History(JobKey(namespace, "vgg", Uid(f"uid-{namespace}")))
    begun = asyncio.Event()
    async with make(site) as client, asyncio.timeout(LONGEST_SECONDS):
        following = asyncio.ensure_future(until_failed(client, namespace, begun))
        await asyncio.sleep(0.6)
        await site.stop()
        await asyncio.sleep(1.0)
        await site.start()
        async with connected(site.nats, ADMIN) as log:
            await record(log, a_running_job(2), history)
        await begun.wait()
        await site.stop()
        site.nats.kill()
        await asyncio.sleep(2.5)
        await site.nats.start()
        await site.start()
        async with connected(site.nats, ADMIN) as log:
            await record(log, [JobFailed(reason="JobFailed")], history)
        seen = await following
        assert [event.type for event in seen] == [*(type(event).__name__ for event in a_running_job(2)), "JobFailed"]
        later = client.events(namespace, "vgg", since=seen[-2].sequence)
        async with aclosing(later):
            assert (await anext(later)) == seen[-1]
