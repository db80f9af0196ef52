"""Volumes and environment: what containers see of ConfigMaps, Secrets and themselves, and how quickly it follows."""

import base64
import time

from tests.devcluster.node.kit import FOREVER, TERMINATES, state

WATCHING = (
    TERMINATES
    + 'last=; while :; do now=$(cat /c/hosts); [ "$now" = "$last" ] || echo "$now"; last=$now; sleep 0.01; done'
)


def mounted(volume, *mounts):
    """The part of a spec that mounts one volume."""
    return {
        "volumes": [{"name": "v", **volume}],
        "container": {"volumeMounts": [{"name": "v", **mount} for mount in mounts]},
    }


async def test_a_config_map_is_a_folder_whose_files_are_links(space):
    await space.config("c", one="1", two="2")
    spec = mounted({"configMap": {"name": "c"}}, {"mountPath": "/etc/edl"})
    script = (
        "cat /etc/edl/one /etc/edl/two; readlink /etc/edl/one; stat -Lc %a /etc/edl/one; touch /etc/edl/x || echo no"
    )
    out = await space.output("p", f"exec 2>/dev/null; {script}", **spec)
    assert out == "12..data/one\n644\nno\n"


async def test_items_have_paths_and_modes(space):
    await space.config("c", hosts="a b", script="#!/bin/sh\necho ran")
    items = [
        {"key": "hosts", "path": "deep/er/hosts"},
        {"key": "hosts", "path": "again"},
        {"key": "script", "path": "discover_hosts.sh", "mode": 0o755},
    ]
    volume = {"configMap": {"name": "c", "items": items, "defaultMode": 0o400}}
    script = "cat /c/deep/er/hosts /c/again; echo; stat -Lc %a /c/again; /c/discover_hosts.sh; ls -A /c | grep -v ^[.]"
    out = await space.output("p", script, **mounted(volume, {"mountPath": "/c"}))
    assert out == "a ba b\n400\nran\nagain\ndeep\ndiscover_hosts.sh\n"


async def test_one_config_map_in_several_places(space):
    await space.config("c", hosts="h")
    volumes = [
        {"name": name, "configMap": {"name": "c", "items": [{"key": "hosts", "path": path}]}}
        for name, path in (("edl", "hostfile"), ("job", "hostfile"), ("mpi", "deepspeed-hostfile"))
    ]
    places = [("edl", "/etc/edl"), ("job", "/job"), ("mpi", "/etc/mpi"), ("job", "/also/job")]
    mounts = [{"name": name, "mountPath": path} for name, path in places]
    script = "cat /etc/edl/hostfile /job/hostfile /etc/mpi/deepspeed-hostfile /also/job/hostfile"
    assert await space.output("p", script, volumes=volumes, container={"volumeMounts": mounts}) == "hhhh"


async def test_a_secret_keeps_its_mode_where_only_root_may_look(space):
    data = {"id_rsa": base64.b64encode(b"\0key").decode()}
    await space.create("secrets", "s", {"data": data})
    volume = {"secret": {"secretName": "s", "defaultMode": 0o600}}
    script = "stat -Lc %a /root/.ssh/id_rsa; od -An -c /root/.ssh/id_rsa | tr -d ' '"
    assert await space.output("p", script, **mounted(volume, {"mountPath": "/root/.ssh"})) == "600\n\\0key\n"


async def test_a_change_arrives_at_once_when_the_pod_is_touched(space):
    await space.config("c", hosts="1")
    volume = {"configMap": {"name": "c"}}
    await space.run("p", WATCHING, **mounted(volume, {"mountPath": "/c"}))
    await space.logged("p", "1\n")
    for version in ("2", "3", "4"):
        begun = time.monotonic()
        await space.merge("configmaps", "c", {"data": {"hosts": version}})
        await space.touch("p", version)
        await space.logged("p", f"{version}\n")
        assert time.monotonic() - begun < 1
    # Never partial and never empty in between.
    assert await space.logs("p") == "1\n2\n3\n4\n"


async def test_a_change_arrives_soon_without_a_write_to_the_pod(space):
    await space.config("c", hosts="1", old="x")
    await space.run("p", WATCHING, **mounted({"configMap": {"name": "c"}}, {"mountPath": "/c"}))
    await space.logged("p", "1\n")
    await space.merge("configmaps", "c", {"data": {"hosts": "2", "old": None, "new": "y"}})
    await space.logged("p", "2\n")
    assert (await space.exec("p", "ls", "/c")).out == "hosts\nnew\n"


async def test_a_sub_path_is_a_file_that_stays_as_it_was(space):
    await space.config("c", hosts="1")
    mounts = [{"mountPath": "/etc/one", "subPath": "hosts"}, {"mountPath": "/c"}]
    await space.run("p", WATCHING, **mounted({"configMap": {"name": "c"}}, *mounts))
    await space.logged("p", "1\n")
    await space.merge("configmaps", "c", {"data": {"hosts": "2"}})
    await space.touch("p", "2")
    await space.logged("p", "2\n")
    assert (await space.exec("p", "cat", "/etc/one")).out == "1"


async def test_a_config_map_that_comes_later_is_waited_for(space):
    await space.run("p", "cat /c/hosts", **mounted({"configMap": {"name": "c"}}, {"mountPath": "/c"}))
    pod = await space.pod("p", state)
    assert state(pod)["waiting"]["reason"] == "ContainerCreating"
    events = f"{space.path('events')}?fieldSelector=involvedObject.name=p"
    await space.api.until(events, lambda answer: [one["reason"] for one in answer.body["items"]] == ["FailedMount"])
    await space.config("c", hosts="now")
    await space.over("p")
    assert await space.logs("p") == "now"


async def test_an_optional_config_map_may_be_missing(space):
    volume = {"configMap": {"name": "none", "optional": True}}
    assert await space.output("p", "ls /c | wc -l", **mounted(volume, {"mountPath": "/c"})) == "0\n"


async def test_a_projected_volume_gathers_several_sources(space):
    await space.config("c", a="A")
    await space.create("secrets", "s", {"data": {"b": base64.b64encode(b"B").decode()}})
    item = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    sources = [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}, {"downwardAPI": {"items": [item]}}]
    spec = mounted({"projected": {"sources": sources}}, {"mountPath": "/all"})
    assert await space.output("p", "cat /all/a /all/b /all/labels", labels={"x": "y"}, **spec) == 'ABx="y"'


async def test_an_empty_dir_is_private_and_its_sub_paths_are_made(space):
    spec = mounted({"emptyDir": {}}, {"mountPath": "/d"}, {"mountPath": "/sub", "subPath": "in/side"})
    assert await space.output("p", "echo x > /sub/f; cat /d/in/side/f; stat -c %a /d", **spec) == "x\n777\n"


async def test_a_host_path_is_the_host(space, tmp_path):
    (tmp_path / "f").write_text("host")
    spec = mounted({"hostPath": {"path": str(tmp_path)}}, {"mountPath": "/h"})
    assert await space.output("p", "cat /h/f; echo pod > /h/g", **spec) == "host"
    assert (tmp_path / "g").read_text() == "pod\n"


async def test_the_environment_comes_from_everywhere(space):
    await space.config("c", KEY="from-map", SHARED="map")
    await space.create("secrets", "s", {"data": {"PASS": base64.b64encode(b"word").decode()}})

    def variable(name, value=None, **source):
        return {"name": name, "value": value} if value is not None else {"name": name, "valueFrom": source}

    env = [
        variable("NAME", fieldRef={"fieldPath": "metadata.name"}),
        variable("IP", fieldRef={"fieldPath": "status.podIP"}),
        variable("NODE", fieldRef={"fieldPath": "spec.nodeName"}),
        variable("ROLE", fieldRef={"fieldPath": "metadata.labels['role']"}),
        variable("K", configMapKeyRef={"name": "c", "key": "KEY"}),
        variable("P", secretKeyRef={"name": "s", "key": "PASS"}),
        variable("NONE", configMapKeyRef={"name": "c", "key": "NONE", "optional": True}),
        variable("BOTH", "$(NAME)-$(K)-$$(K)-$(UNKNOWN)"),
        variable("RAW", "a b; touch x"),
    ]
    container = {
        "env": env,
        "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "PRE_"}],
        "command": [
            "sh",
            "-c",
            "echo $0 $1; echo $NODE $ROLE $P ${NONE-unset} $PRE_SHARED; echo $BOTH; echo $RAW; echo $IP",
        ],
        "args": ["$(NAME)", "$(NOT_THERE)"],
    }
    out = await space.output("p", labels={"role": "worker"}, container=container)
    pod = (await space.api.get(space.path("pods", "p"))).body
    assert out.splitlines() == [
        "p $(NOT_THERE)",
        "node-0 worker word unset map",
        "p-from-map-$(K)-$(UNKNOWN)",
        "a b; touch x",
        pod["status"]["podIP"],
    ]


async def test_a_variable_that_cannot_be_found_holds_the_container(space):
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "x"}}}]
    await space.run("p", "echo $X; " + FOREVER, container={"env": env})
    pod = await space.pod("p", lambda pod: state(pod)["waiting"]["reason"] == "CreateContainerConfigError")
    assert state(pod)["waiting"]["message"] == 'configmap "c" not found'
    await space.config("c", x="there")
    await space.logged("p", "there")
