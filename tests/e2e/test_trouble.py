"""Whatever is missing or wrong: one line says what and what to do, nothing is ready, and all is well once it is mended.

Each test runs a real service process against real servers of its own, breaks one thing and mends it.
"""

import copy
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

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
from tests.kit.commands import run
from tests.kit.controlplane import require_control_plane
from tests.kit.nats import a_server, connected, until
from tests.kit.place import Place, a_place, administrator, complains_once_and_recovers, edit
from tests.kit.service import PATIENCE_SECONDS, Service, a_service

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with a_place(tmp_path_factory.mktemp("place")) as found:
        yield found


async def test_nats_cannot_be_reached(place: Place, tmp_path: Path):
    nats = NatsServer(tmp_path / "nats")
    environment = place.environment("watcher", NATS_URL=nats.url, NATS_PASSWORD=nats.users["watcher"])
    try:
        async with a_service("watcher", tmp_path, environment) as service:

            async def start() -> None:
                await nats.start()
                await set_up(nats.url, password=nats.users[ADMIN])

            # Between the start of the server and the end of the set-up a try may meet what is half done.
            await service.says("not ready", nats.url, "start NATS there", "NATS_URL")
            assert (await service.probed("readyz"))[0] == 503
            await start()
            await service.becomes(200)
            assert 1 <= len(service.lines("not ready")) <= 2
    finally:
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


async def test_nats_does_not_know_the_password(place: Place, tmp_path: Path):
    nats = NatsServer(tmp_path / "nats")
    right = nats.users["status"]
    async with nats:
        await set_up(nats.url, password=nats.users[ADMIN])
        nats.users["status"] = "another"
        await nats.restart()
        async with a_service(
            "status", tmp_path, place.environment("status", NATS_URL=nats.url, NATS_PASSWORD=right)
        ) as service:
            await service.says("not ready", "does not know this user and password", "NATS_PASSWORD")
            assert right not in service.child.log.read_text()
            nats.users["status"] = right
            await nats.restart()
            await service.becomes(200)


async def test_nats_has_no_jetstream(place: Place, tmp_path: Path):
    port = free_port()
    plain = Child("NATS", [_program(), "-a", "127.0.0.1", "-p", str(port)], tmp_path / "plain.log", {})
    plain.start()
    nats = NatsServer(tmp_path / "nats", port=port)
    environment = place.environment("scheduler", NATS_URL=nats.url, NATS_PASSWORD=nats.users["scheduler"])
    try:
        async with a_service("scheduler", tmp_path, environment) as service:
            await service.says("not ready", "has no JetStream", "enable it")
            await plain.stop()
            await nats.start()
            await set_up(nats.url, password=nats.users[ADMIN])
            await service.becomes(200)
    finally:
        await plain.stop()
        nats.stop()


async def test_a_service_waits_for_a_log_that_is_not_set_up(place: Place, tmp_path: Path):
    async with NatsServer(tmp_path / "nats") as nats:
        environment = place.environment("scaler", NATS_URL=nats.url, NATS_PASSWORD=nats.users["scaler"])
        async with a_service("scaler", tmp_path, environment) as service:
            await complains_once_and_recovers(
                service, "muster setup", mend=lambda: set_up(nats.url, password=nats.users[ADMIN])
            )


@pytest.mark.parametrize(
    ("stream", "setting", "value"),
    [
        pytest.param("JOBS", "max_age", 3_600_000_000_000, id="events are forgotten after an hour"),
        pytest.param("JOBS", "discard", "old", id="old events make room for new ones"),
        pytest.param("KV_LEASES", "max_msgs_per_subject", 5, id="leases that do not expire as they should"),
    ],
)
async def test_a_stream_has_the_wrong_settings(place: Place, tmp_path: Path, stream: str, setting: str, value: object):
    async with a_server(tmp_path / "nats") as nats:
        right = await edit(nats, stream, {setting: value})
        environment = place.environment("watcher", NATS_URL=nats.url, NATS_PASSWORD=nats.users["watcher"])
        async with a_service("watcher", tmp_path, environment) as service:
            await complains_once_and_recovers(
                service,
                f"{stream}: {setting} is {value!r}",
                "nats stream edit",
                mend=lambda: edit(nats, stream, {setting: right[setting]}),
            )


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


def _kubeconfig(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(place.cluster.kubeconfig(CLUSTER_ADMIN).read_text())
    return found


def _other_token(config: dict[str, Any]) -> None:
    config["users"][0]["user"]["token"] = "nobodys"


def _other_authority(config: dict[str, Any]) -> None:
    # Without one, those of the operating system are trusted, and none of them signed this.
    del config["clusters"][0]["cluster"]["certificate-authority-data"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(None, ["there is no kubeconfig at"], id="there is none"),
        pytest.param(_other_token, ["401", "credentials"], id="another token"),
        pytest.param(_other_authority, ["certificate"], id="its certificate is not trusted"),
    ],
)
async def test_the_kubeconfig_is_wrong(place: Place, tmp_path: Path, change: Any, words: list[str]):
    path = tmp_path / "kubeconfig"
    if change is not None:
        config = copy.deepcopy(_kubeconfig(place))
        change(config)
        path.write_text(yaml.safe_dump(config))
    async with a_service("scaler", tmp_path, place.environment("scaler", KUBECONFIG=path)) as service:
        await complains_once_and_recovers(
            service, *words, mend=lambda: path.write_text(yaml.safe_dump(_kubeconfig(place))) and None
        )


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


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        pytest.param("watcher", "list/watch pods", id="watcher"),
        pytest.param("scheduler", "create/get/delete pods", id="scheduler"),
        pytest.param("scaler", "get/create/patch/delete configmaps", id="scaler"),
        pytest.param("status", "patch trainingjobs/status", id="status"),
    ],
)
async def test_permissions_are_missing_and_then_granted(real_place: Place, tmp_path: Path, name: Author, missing: str):
    await _take_away(real_place, name)
    environment = real_place.environment(name, KUBECONFIG=real_place.cluster.kubeconfig(name))
    async with a_service(name, tmp_path, environment) as service:
        await complains_once_and_recovers(
            service, missing, "muster rbac | kubectl apply -f -", mend=lambda: _grant(real_place, name)
        )


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
        await _until_said(service, "not ready", "muster rbac")
        await _grant(real_place, "watcher")
        await service.becomes(200)
        assert len(service.lines("started")) == 1


async def _until_said(service: Service, event: str, word: str) -> None:
    async def said() -> bool:
        return any(word in line["why"] for line in service.lines(event))

    await until(said, within=PATIENCE_SECONDS)


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


@pytest.mark.parametrize(
    ("words", "changed", "says"),
    [
        pytest.param(["get"], {"NATS_URL": "nats://127.0.0.1:1"}, "NATS_URL", id="get, no NATS"),
        pytest.param(["get"], {"NATS_URL": "nowhere://x"}, "nowhere", id="get, an address that is none"),
        pytest.param(["get"], {"NATS_PASSWORD": "wrong"}, "NATS_PASSWORD", id="get, a wrong password"),
        pytest.param(["history", "digits"], {"NATS_PASSWORD": "wrong"}, "NATS_PASSWORD", id="history"),
        pytest.param(["setup"], {"NATS_PASSWORD": "wrong"}, "NATS_PASSWORD", id="setup, a wrong password"),
        pytest.param(["scale", "digits", "--to", "3"], {"KUBECONFIG": "/none"}, "no kubeconfig at /none", id="scale"),
        pytest.param(["run"], {"NATS_URL": "nats://127.0.0.1:1"}, "NATS_URL", id="run, no NATS"),
        pytest.param(["run"], {"KUBECONFIG": "/none"}, "no kubeconfig at /none", id="run, no kubeconfig"),
        pytest.param(["run"], {"MUSTER_LOG_LEVEL": "loud"}, "MUSTER_LOG_LEVEL", id="run, a setting that is none"),
    ],
)
async def test_a_command_says_it_in_one_line(place: Place, words: list[str], changed: dict[str, str], says: str):
    environment = place.environment(ADMIN, **changed)
    code, out, complaint = await run(sys.executable, "-m", "muster", *words, environment=environment)
    assert code == 1
    assert out == ""
    (line,) = complaint.splitlines()
    assert line.startswith("muster: ")
    assert says in line


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
