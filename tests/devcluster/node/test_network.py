"""The network of the pods: addresses and names between them, and readiness probes."""

import asyncio

from devcluster.cluster import GATEWAY, HOST, free_port
from tests.devcluster.node.kit import FOREVER, condition, is_ready

SERVER = "python -u -m http.server 9009"


async def a_job(space, name="job", **spec):
    spec = {"clusterIP": "None", "selector": {"job": name}, "publishNotReadyAddresses": True, **spec}
    await space.create("services", name, {"spec": spec})


def of_job(space, name, job="job"):
    """The part of a spec that gives a worker its name."""
    searches = {"searches": [f"{job}.{space.name}.svc.cluster.local"]}
    return {"labels": {"job": job}, "hostname": name, "subdomain": job, "dnsConfig": searches}


async def test_workers_reach_each_other_on_the_same_port_by_plain_names(space):
    await a_job(space)
    for name in ("w-0", "w-1"):
        await space.run(name, f"hostname > /run/name; cd /run; exec {SERVER}", **of_job(space, name))
    await asyncio.gather(*(space.ready(name) for name in ("w-0", "w-1")))
    get = "import sys, urllib.request as u; print(u.urlopen(f'http://{sys.argv[1]}:9009/name').read().decode(), end='')"
    retry = f'until python -c "{get}" $1 2>/dev/null; do sleep 0.05; done'
    for here, there in (("w-0", "w-1"), ("w-1", "w-0"), ("w-0", "w-0")):
        done = await space.exec(here, "sh", "-c", retry, "sh", there)
        assert done.out == f"{there}\n"


async def test_a_pod_reaches_one_port_of_this_machine(cluster, space):
    def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        writer.close()

    await space.run("w")
    await space.ready("w")
    get = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(4).decode())"
    other = free_port()
    async with (
        await asyncio.start_server(greet, HOST, cluster.outlet),
        await asyncio.start_server(greet, HOST, other),
    ):
        assert (await space.exec("w", "python", "-c", get, GATEWAY, str(cluster.outlet))).out == "here\n"
        for host, port in ((GATEWAY, other), (HOST, other), (HOST, cluster.outlet)):
            refused = await space.exec("w", "python", "-c", get, host, str(port))
            assert "ConnectionRefusedError" in refused.err, (host, port)


async def test_every_form_of_a_name(space):
    await a_job(space)
    await space.run("w", **of_job(space, "w-0"))
    address = (await space.ready("w"))["status"]["podIP"]
    full = f"w-0.job.{space.name}.svc.cluster.local"
    for name in (
        "w-0",
        "w-0.job",
        f"w-0.job.{space.name}",
        f"w-0.job.{space.name}.svc",
        full,
        f"{full}.",
        "job",
        f"job.{space.name}",
    ):
        done = await space.exec("w", "getent", "ahostsv4", name)
        assert done.out.split()[0] == address, name
    assert (await space.exec("w", "hostname", "-f")).out == f"{full}\n"
    assert (await space.exec("w", "hostname")).out == "w-0\n"


async def test_names_are_there_before_anybody_is_ready(space):
    await a_job(space)
    probe = {"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}}
    await space.run("w-0", container=probe, **of_job(space, "w-0"))
    await space.run("w-1", "until getent hosts w-0; do sleep 0.02; done", **of_job(space, "w-1"))
    pod = await space.over("w-1")
    assert "w-0.job" in await space.logs("w-1")
    assert pod["status"]["phase"] == "Succeeded"
    assert not is_ready((await space.api.get(space.path("pods", "w-0"))).body)


async def test_a_service_without_unready_pods_names_only_the_ready(space):
    await a_job(space, publishNotReadyAddresses=False)
    probe = {"readinessProbe": {"exec": {"command": ["test", "-e", "/run/ready"]}, "periodSeconds": 1}}
    await space.run("w-0", container=probe, **of_job(space, "w-0"))
    await space.logged("w-0", "up")
    assert (await space.exec("w-0", "getent", "ahostsv4", "job")).code == 2
    await space.exec("w-0", "touch", "/run/ready")
    await space.ready("w-0")
    assert (await space.exec("w-0", "getent", "ahostsv4", "job")).code == 0


async def test_a_pod_that_is_gone_has_left_its_name_to_the_next(space):
    await a_job(space)
    await space.run("asks", **of_job(space, "asks"))
    await space.run("w-0", "trap '' TERM; echo up; sleep 1000", **of_job(space, "w-0"))
    await space.logged("w-0", "up")
    await space.api.delete(space.path("pods", "w-0"), {"gracePeriodSeconds": 0})
    await space.run("w-0", **of_job(space, "w-0"))
    address = (await space.ready("w-0"))["status"]["podIP"]
    await space.ready("asks")
    assert {line.split()[0] for line in (await space.exec("asks", "getent", "ahostsv4", "w-0")).out.splitlines()} == {
        address
    }


async def test_unknown_names_are_refused_quickly(space):
    """A resolver without an answer waits for five seconds."""
    await space.run("p")
    await space.ready("p")
    for name in ("nobody", "example.com", f"nobody.job.{space.name}.svc.cluster.local"):
        script = f"try: socket.getaddrinfo({name!r}, 1)\nexcept OSError as e: print(e.errno, time.time() - begun < 4)"
        script = f"import socket, time; begun = time.time()\n{script}"
        assert (await space.exec("p", "python", "-c", script)).out == "-2 True\n"


async def test_another_namespace_is_named_in_full(space):
    await a_job(space)
    await space.run("w", **of_job(space, "w-0"))
    await space.ready("w")
    await space.api.create("/api/v1/namespaces", {"metadata": {"name": f"{space.name}-b"}})
    spec = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "c",
                "image": "i",
                "command": ["sh", "-c", f"getent hosts job.{space.name}; getent hosts job || echo none"],
            }
        ],
    }
    other = f"/api/v1/namespaces/{space.name}-b/pods"
    await space.api.create(other, {"metadata": {"name": "p"}, "spec": spec})
    await space.api.until(f"{other}/p", lambda answer: answer.body["status"]["phase"] == "Succeeded")
    log = (await space.api.get(f"{other}/p/log")).body.decode()
    assert f"job.{space.name}.svc.cluster.local" in log
    assert log.endswith("none\n")
    await space.api.delete(f"{other}/p")


async def test_the_pods_network_leads_nowhere_else(space):
    script = (
        "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 5)\nexcept OSError as e: print(e.strerror)"
    )
    assert await space.output("p", container={"command": ["python", "-c", script]}) == "Network is unreachable\n"


async def test_a_probe_decides_what_is_ready(space):
    probes = {
        "named-port": {"tcpSocket": {"port": "web"}},
        "http": {"httpGet": {"port": 9009, "path": "/ok"}},
        "exec": {"exec": {"command": ["sh", "-c", "test -e /run/ok"]}},
    }
    command = f"while [ ! -e /run/go ]; do sleep 0.02; done; touch /run/ok; cd /run; exec {SERVER}"

    async def becomes_ready(name, probe):
        container = {
            "readinessProbe": {**probe, "periodSeconds": 1, "timeoutSeconds": 5},
            "ports": [{"name": "web", "containerPort": 9009}],
        }
        await space.run(name, command, container=container)
        pod = await space.pod(name, lambda pod: pod["status"]["phase"] == "Running")
        assert condition(pod, "Ready")["message"] == "containers with unready status: [main]"
        await space.exec(name, "touch", "/run/go")
        await space.ready(name)

    await asyncio.gather(*(becomes_ready(name, probe) for name, probe in probes.items()))


async def test_a_pod_that_stops_answering_is_not_ready_any_more(space):
    probe = {"exec": {"command": ["test", "-e", "/run/ok"]}, "periodSeconds": 1, "failureThreshold": 1}
    await space.run("p", "touch /run/ok; " + FOREVER, container={"readinessProbe": probe})
    await space.ready("p")
    await space.exec("p", "rm", "/run/ok")
    await space.pod("p", lambda pod: not is_ready(pod))
