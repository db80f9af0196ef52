"""What the node refuses, survives or cannot do, and that it says so."""

from tests.devcluster.node.kit import FOREVER


async def test_a_pod_that_needs_the_hosts_network_is_rejected(space):
    await space.run("p", hostNetwork=True)
    pod = await space.over("p")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "NotOffered")


async def test_a_pod_whose_container_has_a_restart_policy_is_rejected(space):
    await space.run("p", container={"restartPolicy": "Never"})
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
