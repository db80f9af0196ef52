"""What the node refuses, survives or cannot do, and that it says so."""

import pytest

from devcluster.node.runtime import Isolation, Launch, Runtime, RuntimeProblem
from tests.devcluster.node.kit import FOREVER


async def test_a_pod_that_needs_the_hosts_network_is_rejected(space):
    await space.run("p", hostNetwork=True)
    pod = await space.over("p")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "NotOffered")


async def test_a_volume_of_an_unknown_kind_is_told(space):
    volumes = [{"name": "v", "nfs": {"server": "s", "path": "/"}}]
    await space.run("p", volumes=volumes)
    events = f"{space.path('events')}?fieldSelector=involvedObject.name=p"
    answer = await space.api.until(events, lambda answer: answer.body["items"])
    assert "nfs is not offered by this node" in answer.body["items"][0]["message"]


async def test_one_pod_that_makes_no_sense_does_not_harm_the_others(space):
    await space.run("good", FOREVER)
    await space.ready("good")
    mounts = [{"name": "v", "mountPath": "/x"}]
    await space.run("bad", volumes=[{"name": "v", "configMap": {}}], container={"volumeMounts": mounts})
    bad = await space.over("bad")
    assert bad["status"]["reason"] == "InternalError"
    assert (await space.exec("good", "true")).code == 0


async def test_containers_do_not_see_the_volumes_of_others(cluster, space):
    folder = cluster.data / "node-0" / "pods"
    assert await space.output("p", f"ls {folder} 2>/dev/null | wc -l") == "0\n"


async def test_a_container_without_a_command_cannot_be_made(space):
    await space.run("p", container={"command": []})
    pod = await space.pod("p", lambda pod: "CreateContainerError" in str(pod["status"]["containerStatuses"]))
    assert "no command specified" in str(pod["status"]["containerStatuses"])


@pytest.mark.parametrize(
    ("network", "links"),
    [
        pytest.param("pods", ["lo", "eth0"], id="pods"),
        pytest.param("none", ["lo"], id="none"),
    ],
)
async def test_a_network_has_what_it_says(tmp_path, network, links):
    runtime = Runtime(tmp_path, network, "10.88.0.1", lambda: None)
    try:
        try:
            await runtime.launch()
        except RuntimeProblem as problem:
            pytest.skip(f"this machine does not permit namespaces: {problem}")
        await runtime.add_network("p", "10.88.0.2")
        script = (
            "import socket, sys; sys.exit([n for _, n in socket.if_nameindex() if n in ('lo', 'eth0')] != sys.argv[1:])"
        )
        launch = Launch(command=["python3", "-c", script, *links], environment={"PATH": "/usr/bin:/bin"}, folder="/")
        process = await runtime.start(launch, Isolation(pod="p", hostname="p", mounts=[], files={}), [1, 2])
        assert (process.problem, (await process.exit).code) == ("", 0)
    finally:
        await runtime.close()
