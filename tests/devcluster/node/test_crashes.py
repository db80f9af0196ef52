"""What is left when the agent or the API server dies: of the agent nothing, of the pods what the API says."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.devcluster.apiserver.client import BOUND
from tests.devcluster.node.kit import FOREVER, a_cluster, a_space, state

ESCAPED = "(setsid setsid sleep {0} </dev/null >/dev/null 2>&1 &); setsid sleep {0} & " + FOREVER
"""A container that does what it can to leave processes behind; they are known by how long they sleep."""


@pytest.fixture(scope="module")
def fragile(tmp_path_factory):
    """A cluster whose processes are killed."""
    with a_cluster(tmp_path_factory.mktemp("fragile") / "fragile") as cluster:
        yield cluster


@pytest.fixture
async def space(fragile, request):
    if not fragile.apiserver.running:
        await fragile.apiserver.run()
    if not fragile.node.running:
        fragile.node.start()
    async with a_space(fragile, "space-" + request.node.name.replace("_", "-")[5:40].strip("-")) as space:
        yield space


def sleeping(marker):
    """The processes of the machine that sleep for as long."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", marker.encode()]:
            found.append(int(folder.name))
    return found


def traces(cluster):
    """What of the agent the host could still see: mounts, links, named namespaces."""
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(cluster.data) in line]
    links = [line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    named = Path("/run/netns")
    return mounts, [link for link in links if link.startswith("pod")], [*named.iterdir()] if named.exists() else []


async def until(holds):
    async with asyncio.timeout(BOUND):
        while not holds():
            await asyncio.sleep(0.01)


async def is_ready(space, cluster, wanted):
    path = f"/api/v1/nodes/{cluster.node.name}"
    await space.api.until(path, lambda answer: answer.body["status"]["conditions"][0]["status"] == wanted)


async def test_a_killed_agent_leaves_nothing_and_the_next_one_goes_on(fragile, space):
    marker = "777001"
    await space.run("never", ESCAPED.format(marker))
    await space.run("always", FOREVER, restartPolicy="Always")
    await space.run("done", "exit 3")
    await space.logged("never", "up")
    await space.ready("always")
    await space.over("done")
    await until(lambda: len(sleeping(marker)) == 2)

    fragile.node.kill()
    await until(lambda: not sleeping(marker))
    assert traces(fragile) == ([], [], [])
    unreachable = await space.api.get(f"{space.path('pods', 'never')}/log")
    assert (unreachable.code, unreachable.body["reason"]) == (503, "ServiceUnavailable")

    stale = fragile.data / "node-0" / "pods" / "of-an-unknown-pod"
    stale.mkdir()
    fragile.node.start()
    lost = await space.over("never")
    assert (state(lost)["terminated"]["exitCode"], state(lost)["terminated"]["reason"]) == (255, "Unknown")
    again = await space.pod("always", lambda pod: pod["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 255
    # It has the address that the other one had: a pod has one of a family, else a real API server takes no status.
    ready = (await space.ready("always"))["status"]
    assert ready["podIPs"] == [{"ip": ready["podIP"]}]
    assert state(await space.over("done"))["terminated"]["exitCode"] == 3
    assert not stale.exists()
    await space.run("new", "exit 0")
    await space.over("new")


async def test_a_stopped_agent_ends_its_pods_and_says_so(fragile, space):
    marker = "777002"
    await space.run("p", ESCAPED.format(marker))
    await space.run("deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    await space.logged("p", "up")
    await space.logged("deaf", "up")
    begun = time.monotonic()
    await fragile.node.stop()
    assert time.monotonic() - begun < 5
    assert sleeping(marker) == []
    assert traces(fragile) == ([], [], [])
    for name, code in (("p", 0), ("deaf", 137)):
        pod = await space.over(name)
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
        assert state(pod)["terminated"]["exitCode"] == code
    await is_ready(space, fragile, "False")
    fragile.node.start()
    await is_ready(space, fragile, "True")


async def test_pods_go_on_without_an_api_server_and_are_reported_afterwards(fragile, space):
    await space.run("stays", FOREVER)
    await space.run("ends", "echo up; while [ ! -e /run/end ]; do sleep 0.01; done; exit 9")
    await space.run("leaves", FOREVER)
    for name in ("stays", "ends", "leaves"):
        await space.logged(name, "up")
    before = (await space.ready("stays"))["status"]
    await space.exec("ends", "sh", "-c", "(sleep 0.3; touch /run/end) >/dev/null 2>&1 &")
    fragile.apiserver.kill()
    await asyncio.to_thread(wait_for_exit, fragile)
    await fragile.apiserver.run()
    assert state(await space.over("ends"))["terminated"]["exitCode"] == 9
    after = (await space.ready("stays"))["status"]
    assert after["containerStatuses"][0]["containerID"] == before["containerStatuses"][0]["containerID"]
    await space.api.delete(space.path("pods", "leaves"))
    await space.gone("leaves")
    await space.run("new", "exit 0")
    await space.over("new")


def wait_for_exit(cluster):
    """Until the container has ended: its pod's volumes are then taken away."""
    deadline = time.monotonic() + BOUND
    while any(b"/run/end" in words for words in commands()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def commands():
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield (folder / "cmdline").read_bytes()
            except OSError:
                continue


async def test_pods_deleted_while_the_agent_was_away_are_gone(fragile, space):
    await space.run("p", FOREVER)
    await space.logged("p", "up")
    fragile.node.kill()
    await space.api.delete(space.path("pods", "p"), {"gracePeriodSeconds": 30})
    fragile.node.start()
    await space.gone("p")
    await until(lambda: not [*(fragile.data / "node-0" / "pods").iterdir()])
