"""Whatever is missing or wrong: one line says what and what to do, nothing is ready, and all is well once it is mended.

Each test runs a real service process against real servers of its own, breaks one thing and mends it.
"""

import asyncio
import copy
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from devcluster.child import Child
from devcluster.cluster import ADMIN as CLUSTER_ADMIN
from devcluster.controlplane import ControlPlane
from muster import permissions
from muster.stack import APPLIED
from shared.cluster.kube import KubeCluster
from shared.errors import Refused
from shared.eventlog import Entry, api
from shared.eventlog.account import ADMIN, AUTHORS
from shared.eventlog.server import NatsServer, _program
from shared.eventlog.setup import set_up
from shared.eventlog.streams import LOG_CONFIG, StreamInfo
from shared.job.events.event import Author
from shared.ports import free_port
from tests.kit.commands import Ended, run
from tests.kit.controlplane import require_control_plane
from tests.kit.nats import a_server, connected
from tests.kit.place import Place, a_place, administrator, complains_once_and_recovers, edit
from tests.kit.service import a_service

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with a_place(tmp_path_factory.mktemp("place")) as found:
        yield found


async def test_what_is_wrong_on_the_way_to_the_log_is_said_until_it_is_set_up(place: Place, tmp_path: Path):
    port = free_port()
    plain = Child("NATS", [_program(), "-a", "127.0.0.1", "-p", str(port)], tmp_path / "plain.log", {})
    nats = NatsServer(tmp_path / "nats", port=port)
    right, nats.users["status"] = nats.users["status"], "another"
    environment = place.environment("status", NATS_URL=nats.url, NATS_PASSWORD=right)
    try:
        async with a_service("status", tmp_path, environment) as service:
            await service.says("not ready", nats.url, "start NATS there", "NATS_URL")
            assert (await service.probed("readyz"))[0] == 503
            plain.start()
            await service.complains("has no JetStream", "enable it")
            await plain.stop()
            await nats.start()
            await service.complains("does not know this user and password", "NATS_PASSWORD")
            assert right not in service.child.log.read_text()
            nats.users["status"] = right
            await nats.restart()
            await service.complains("muster setup")
            assert (await service.probed("healthz"))[0] == 200, "a restart would not help"
            await set_up(nats.url, password=nats.users[ADMIN])
            await service.becomes(200)
            assert len(service.lines("started")) == 1
            whys = [line["why"] for line in service.lines("not ready")]
            assert len([why for why in whys if "muster setup" in why]) == 1
    finally:
        await plain.stop()
        nats.stop()


async def test_all_services_in_one_process_wait_for_nats_when_asked_to(place: Place, tmp_path: Path):
    nats = NatsServer(tmp_path / "nats")
    environment = place.environment(ADMIN, NATS_URL=nats.url, NATS_PASSWORD=nats.users[ADMIN])
    try:
        async with a_service("operator", tmp_path, environment, "muster", "run", "--wait") as service:
            await service.says("not ready", nats.url, "start NATS there", times=len(AUTHORS))
            assert (await service.probed("readyz"))[0] == 503
            await nats.start()
            await set_up(nats.url, password=nats.users[ADMIN])
            await service.becomes(200)
    finally:
        nats.stop()


async def test_streams_have_the_wrong_settings(place: Place, tmp_path: Path):
    wrong: dict[str, dict[str, object]] = {
        # Events are forgotten after an hour, old ones make room for new ones, and leases do not expire as they should.
        "JOBS": {"max_age": 3_600_000_000_000, "discard": "old"},
        "KV_LEASES": {"max_msgs_per_subject": 5},
    }
    async with a_server(tmp_path / "nats") as nats:
        before = {stream: await edit(nats, stream, changed) for stream, changed in wrong.items()}

        async def fix() -> None:
            for stream, changed in wrong.items():
                await edit(nats, stream, {setting: before[stream][setting] for setting in changed})

        said = [f"{stream}: {name} is {wrong[stream][name]!r}" for stream in wrong for name in wrong[stream]]
        environment = place.environment("watcher", NATS_URL=nats.url, NATS_PASSWORD=nats.users["watcher"])
        async with a_service("watcher", tmp_path, environment) as service:
            await complains_once_and_recovers(service, *said, "nats stream edit", mend=fix)


async def test_a_newer_release_began_the_log(place: Place, tmp_path: Path):
    async with NatsServer(tmp_path / "nats") as nats:
        async with administrator(nats) as admin:
            await api.call(admin, "STREAM.CREATE.JOBS", LOG_CONFIG, StreamInfo)
            genesis = b'{"type":"LogCreated","layout":2}'
            await api.publish(admin, "facts.none.none.none.setup.LogCreated", genesis, {"Nats-Msg-Id": "log-2"})
        environment = place.environment("status", NATS_URL=nats.url, NATS_PASSWORD=nats.users["status"])
        async with a_service("status", tmp_path, environment) as service:
            await service.says("not ready", "a newer release made it", "upgrade this service")
            assert (await service.probed("readyz"))[0] == 503


async def test_an_event_of_a_newer_release_holds_its_job_and_no_other(place: Place, tmp_path: Path):
    async with a_server(tmp_path / "nats") as nats:
        async with connected(nats, "status") as log:
            event = Entry(
                subject="jobs.team-a.resnet.uid-1.status.JobTeleported",
                event_id="e-1",
                time="2026-01-01T00:00:00.000Z",
                body=b'{"type":"JobTeleported"}',
                basis=f"0:{'0' * 64}",
            )
            await log.append(event, expect=0)
        environment = place.environment("scheduler", NATS_URL=nats.url, NATS_PASSWORD=nats.users["scheduler"])
        async with a_service("scheduler", tmp_path, environment) as service:
            line = await service.says("job held", "JobTeleported", "upgrade this service")
            assert line["job"] == "team-a/resnet"
            known = await service.becomes(200)
            assert known["held"] == {"UnknownEvent": "1 job"}


# What leads to the cluster is wrong from the start, and is mended in its file.


async def test_the_kubeconfig_is_wrong(place: Place, tmp_path: Path):
    path = tmp_path / "kubeconfig"
    right = yaml.safe_load(place.cluster.kubeconfig(CLUSTER_ADMIN).read_text())
    another_token, no_authority = copy.deepcopy(right), copy.deepcopy(right)
    another_token["users"][0]["user"]["token"] = "nobodys"
    # Without one, those of the operating system are trusted, and none of them signed this.
    del no_authority["clusters"][0]["cluster"]["certificate-authority-data"]
    async with a_service("scaler", tmp_path, place.environment("scaler", KUBECONFIG=path)) as service:
        await service.says("not ready", "there is no kubeconfig at")
        path.write_text(yaml.safe_dump(no_authority))
        await service.complains("certificate")
        path.write_text(yaml.safe_dump(another_token))
        await service.complains("401", "credentials")
        assert (await service.probed("healthz"))[0] == 200, "a restart would not help"
        assert (await service.probed("readyz"))[0] == 503
        path.write_text(yaml.safe_dump(right))
        await service.becomes(200)
        assert len(service.lines("not ready")) == 3
        assert len(service.lines("started")) == 1


async def test_the_definitions_are_missing(place: Place, tmp_path: Path):
    await place.uninstall()
    async with a_service("watcher", tmp_path, place.environment("watcher")) as service:
        await complains_once_and_recovers(
            service, "trainingjobs.kai.alibabacloud.com", "muster crds | kubectl apply -f -", mend=place.install
        )


# All was well, and then it was not.


async def test_the_api_server_goes_and_comes_back(place: Place, tmp_path: Path):
    async with a_service("watcher", tmp_path, place.environment("watcher")) as service:
        await service.becomes(200)
        place.cluster.apiserver.kill()
        try:
            await service.says("not ready", "is the API server up")
            await service.becomes(503)
        finally:
            await place.cluster.apiserver.run()
        await service.says("ready again")
        await service.becomes(200)


async def test_nats_goes_and_comes_back(place: Place, tmp_path: Path):
    async with a_server(tmp_path / "nats") as nats:
        environment = place.environment("scheduler", NATS_URL=nats.url, NATS_PASSWORD=nats.users["scheduler"])
        async with a_service("scheduler", tmp_path, environment) as service:
            await service.becomes(200)
            nats.kill()
            await service.becomes(503)
            await service.says("not ready", "no connection")
            await nats.start()
            await service.says("ready again")
            await service.becomes(200)
            whys = [line["why"] for line in service.lines("not ready")]
            # Between the first answers of the server and the next word of the lease another one may be due.
            assert len(whys) == len({*whys}), "the same is not said twice"


# Of a real API server: what RBAC forbids, and watches that end with their definition.


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def real_place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    require_control_plane()
    folder = tmp_path_factory.mktemp("real")
    # Of its own: others would miss the definitions and roles that are taken away here.
    async with ControlPlane(folder / "cluster", AUTHORS, nodes=0) as plane, a_server(folder / "nats") as nats:
        kube = await KubeCluster.connect(plane.kubeconfig(CLUSTER_ADMIN))
        found = Place(plane, kube, nats)
        await found.install()
        yield found
        await kube.close()


async def _grant(place: Place, service: Author) -> None:
    """What `muster rbac` prints for one service."""
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": permissions.HOME}}
    for manifest in [home, *permissions.manifests(service)]:
        metadata = manifest["metadata"]
        with suppress(Refused):
            await place.kube.create(APPLIED[manifest["kind"]], metadata.get("namespace", ""), manifest)


async def _take_away(place: Place, service: Author) -> None:
    binding = APPLIED["ClusterRoleBinding"]
    found = await place.kube.get(binding, "", permissions.role(service))
    if found is not None:
        await place.kube.delete(binding, "", found.metadata.name, uid=found.metadata.uid)


MISSING: dict[Author, str] = {
    "watcher": "list/watch pods",
    "scheduler": "create/get/delete pods",
    "scaler": "get/create/patch/delete configmaps",
    "status": "patch trainingjobs/status",
}


@pytest.mark.real
async def test_permissions_are_missing_and_then_granted(real_place: Place, tmp_path: Path):
    async def complains(name: Author) -> None:
        await _take_away(real_place, name)
        environment = real_place.environment(name, KUBECONFIG=real_place.cluster.kubeconfig(name))
        async with a_service(name, tmp_path, environment) as service:
            await complains_once_and_recovers(
                service,
                MISSING[name],
                "muster rbac | kubectl apply -f -",
                mend=lambda: _grant(real_place, name),
                # Each right is asked about by itself, some of them perhaps before they are granted.
                at_once=False,
            )

    await asyncio.gather(*map(complains, MISSING))


@pytest.mark.real
async def test_a_permission_is_taken_away_and_given_back(real_place: Place, tmp_path: Path):
    await _grant(real_place, "watcher")
    environment = real_place.environment("watcher", KUBECONFIG=real_place.cluster.kubeconfig("watcher"))
    async with a_service("watcher", tmp_path, environment) as service:
        await service.becomes(200)
        await _take_away(real_place, "watcher")
        # Watches that are open stay so, on any API server: what is refused is the next one.
        await real_place.cluster.apiserver.restart()
        await service.becomes(503)
        await service.complains("muster rbac")
        await _grant(real_place, "watcher")
        await service.becomes(200)
        assert len(service.lines("started")) == 1


@pytest.mark.real
async def test_the_definitions_go_and_come_back(real_place: Place, tmp_path: Path):
    async with a_service("watcher", tmp_path, real_place.environment("watcher")) as service:
        await service.becomes(200)
        await real_place.uninstall()
        await service.says("not ready", "does not serve", "muster crds")
        await service.becomes(503)
        await real_place.install()
        await service.says("ready again")
        await service.becomes(200)
        assert len(service.lines("started")) == 1, "it goes on, and does not begin anew"


# People at a terminal hear one line, and scripts an exit code.


COMMANDS = (
    ("get", {"NATS_URL": "nats://127.0.0.1:1"}, "NATS_URL"),
    ("get", {"NATS_URL": "nowhere://x"}, "nowhere"),
    ("get", {"NATS_PASSWORD": "wrong"}, "NATS_PASSWORD"),
    ("history digits", {"NATS_PASSWORD": "wrong"}, "NATS_PASSWORD"),
    ("setup", {"NATS_PASSWORD": "wrong"}, "NATS_PASSWORD"),
    ("scale digits --to 3", {"KUBECONFIG": "/none"}, "no kubeconfig at /none"),
    ("run", {"NATS_URL": "nats://127.0.0.1:1"}, "NATS_URL"),
    ("run", {"KUBECONFIG": "/none"}, "no kubeconfig at /none"),
    ("run", {"MUSTER_LOG_LEVEL": "loud"}, "MUSTER_LOG_LEVEL"),
)


async def test_a_command_says_it_in_one_line(place: Place):
    async def told(command: str, changed: dict[str, str]) -> Ended:
        environment = place.environment(ADMIN, **changed)
        return await run(sys.executable, "-m", "muster", *command.split(), environment=environment)

    ends = await asyncio.gather(*(told(command, changed) for command, changed, _ in COMMANDS))
    for (command, _, says), (code, out, complaint) in zip(COMMANDS, ends, strict=True):
        assert (code, out, complaint.count("\n")) == (1, "", 1), command
        assert complaint.startswith("muster: "), command
        assert says in complaint, command


SILENT_NAME_SERVER = """
import fcntl, socket, struct, subprocess, sys
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
name_server = socket.socket(type=socket.SOCK_DGRAM)
fcntl.ioctl(name_server, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS: up
name_server.bind(("127.0.0.1", 53))
sys.exit(subprocess.run([sys.executable, "-m", "muster", "get"]).returncode)
"""
"""In a network of its own, as in a cluster whose DNS is down."""


async def test_a_name_that_is_not_looked_up_in_time_is_said_in_one_line(place: Place, tmp_path: Path):
    resolver = tmp_path / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:2 attempts:2\n")
    apart = ("unshare", "--user", "--map-root-user", "--mount", "--net")
    if (await run(*apart, "true")).code:
        pytest.skip("this machine does not permit namespaces")
    environment = place.environment(ADMIN, NATS_URL="nats://muster-nats:4222")
    code, out, complaint = await run(
        *apart, sys.executable, "-c", SILENT_NAME_SERVER, str(resolver), environment=environment
    )
    assert (code, out) == (1, "")
    (line,) = complaint.splitlines()
    assert "muster-nats" in line


async def test_a_service_says_a_bad_setting_in_one_line(place: Place):
    environment = place.environment("status", MUSTER_HEALTH_PORT="many")
    ended = await run(sys.executable, "-m", "services.status", environment=environment)
    assert ended.code == 1
    (line,) = ended.complaint.splitlines()
    assert line.startswith("status: MUSTER_HEALTH_PORT: ")
