"""docker-compose.yml, as far as it can be shown without a Docker engine: what its containers are given works.

With the program `docker compose` its own reader looks at the file too.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from devcluster import binaries
from devcluster.child import Child
from devcluster.cluster import ADMIN as CLUSTER_ADMIN
from devcluster.controlplane import ControlPlane
from muster.borrowed import K3S
from muster.doctor import servers
from muster.doctor.servers import TRIED_KUBERNETES
from muster.stack import SERVICES
from shared.eventlog.account import COPIES, SUBSCRIBER, USERS
from shared.eventlog.inspection import fsync_trouble, server_of
from shared.eventlog.jetstream import JetStreamEventLog
from shared.eventlog.server import _program, configuration
from shared.eventlog.setup import set_up
from shared.eventlog.tls import Login, Tls
from shared.ports import free_port
from shared.process.settings import Settings
from tests.kit.commands import run
from tests.kit.controlplane import require_control_plane

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
FOLDER = ROOT / "deploy" / "compose"
CREDENTIALS = Path("/credentials")


def test_docker_compose_itself_takes_the_file():
    if shutil.which("docker-compose") is None:
        pytest.skip("not installed: docker-compose, which reads the file without an engine")
    command = ["docker-compose", "-f", str(FILE), "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_understands_its_environment(name: str, monkeypatch: pytest.MonkeyPatch):
    given = _service(name)["environment"]
    for variable in [*os.environ]:
        if variable.startswith(("NATS_", "MUSTER_", "KUBECONFIG")):
            monkeypatch.delenv(variable)
    for variable, value in given.items():
        monkeypatch.setenv(variable, str(value))
    settings = Settings()
    assert _known(given), "every variable is one of a setting"
    assert settings.nats_user == name
    assert settings.nats_password_file == CREDENTIALS / "password"
    assert settings.nats_url.startswith("tls://")
    assert settings.nats_tls == Tls(ca=CREDENTIALS / "ca.crt")
    assert settings.kubeconfig == CREDENTIALS / "kubeconfig.yaml"
    assert _service(name)["entrypoint"] == [f"muster-{name}"]
    # Its own, and no other's.
    assert _service(name)["volumes"] == [f"{name}:{CREDENTIALS}:ro"]


def test_the_administrators_kubeconfig_is_for_the_set_up_alone():
    holders = {
        name: [mount for mount in service.get("volumes", ()) if mount.split(":")[0] in ("kube", "admin")]
        for name, service in _compose()["services"].items()
    }
    makers = {"passwords", "certificate", "nats", "k3s", "kubeconfigs"}
    assert {name for name, mounts in holders.items() if mounts} == {*makers, "setup"}
    # Only the password is there when NATS begins, and NATS alone reads it.
    assert holders["nats"] == ["admin:/credentials/admin:ro"]


def test_no_lasting_container_uses_the_network_of_another():
    """A container whose network goes with the restart of another never gets it back by itself."""
    assert [name for name in ("nats", "k3s", *SERVICES) if "network_mode" in _service(name)] == []
    server = _service("kubeconfigs")["entrypoint"][-1]
    assert server == "https://k3s:6443"
    assert "--tls-san=k3s" in _service("k3s")["command"]


def test_its_log_is_the_server_that_the_chart_brings_along():
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "muster" / "values.yaml").read_text())["nats"]["image"]
    assert _service("nats")["image"] == f"{chart['repository']}:{chart['tag']}"


def test_its_kubernetes_is_that_of_the_demo_on_docker():
    assert {_service(name)["image"] for name in ("k3s", "kubeconfigs")} == {K3S}
    # No older than the one before that of the tests.
    major, minor = TRIED_KUBERNETES[0]
    assert servers.numbers(K3S.partition(":")[2]) in ((major, minor), (major, minor - 1))


def test_what_is_mounted_from_here_is_here():
    mounts = [mount for service in _compose()["services"].values() for mount in service.get("volumes", ())]
    sources = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_nothing_is_published_beyond_the_loopback():
    ports = [port for service in _compose()["services"].values() for port in service.get("ports", ())]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_every_server_that_we_bring_along_keeps_what_it_acknowledged_and_takes_as_much():
    """Written in three paths, for three kinds of readers; the users come from one table in all of them."""
    chart = (ROOT / "deploy" / "helm" / "muster" / "templates" / "nats-config.yaml").read_text()
    own = configuration(Path("store"), port=4222, users={})
    assert own["jetstream"]["sync_interval"] == "always"
    for text in ((FOLDER / "nats.conf").read_text(), chart):
        said = dict(re.findall(r"^\s*(max_payload|sync_interval): *(\S+)", text, re.MULTILINE))
        assert said == {"max_payload": f"{own['max_payload'] // 1024**2}MB", "sync_interval": "always"}
        assert "nats-users.conf" in text or "include users.conf" in text


@pytest.mark.nats
async def test_its_log_lets_each_user_in_and_keeps_what_it_acknowledged(tmp_path: Path):
    """The very files, but for the paths."""
    port, monitor = free_port(), free_port()
    tls = tmp_path / "tls"
    tls.mkdir()
    paths = {"0.0.0.0:4222": f"127.0.0.1:{port}", "0.0.0.0:8222": f"127.0.0.1:{monitor}", "/data": str(tmp_path)}
    paths["/etc/nats/tls"] = str(tls)
    paths["0.0.0.0:7422"] = f"127.0.0.1:{free_port()}"
    text = (FOLDER / "nats.conf").read_text()
    for old, new in paths.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "nats.conf").write_text(text)
    credentials = tmp_path / "credentials"
    everybody = (*USERS, SUBSCRIBER)
    for user in everybody:
        (credentials / user).mkdir(parents=True)
    for _ in range(2):
        done = await run("/bin/sh", str(FOLDER / "passwords.sh"), str(credentials))
        assert done.code == 0, done.complaint
        given = {user: (credentials / user / "password").read_text() for user in everybody}
        assert len({*given.values()}) == len(everybody)
        assert all(re.fullmatch("[0-9a-f]{32}", password) for password in given.values())
    made = [await _certified(credentials, tls) for _ in range(2)]
    assert made[0] == made[1], "what is there stays"
    assert {f"tls:{place}" for place in ("/tls", "/etc/nats/tls:ro")} == {*_certificates()}
    for holder, mode, holding in (
        ("passwords", "", everybody),
        ("certificate", "", everybody),
        ("nats", ":ro", USERS),
        ("copies", ":ro", (COPIES, SUBSCRIBER)),
    ):
        assert _mounts(holder, mode) == {f"{user}:/credentials/{user}" for user in holding}
    shutil.rmtree(credentials / SUBSCRIBER)
    users = ROOT / "deploy" / "helm" / "muster" / "files" / "nats-users.conf"
    assert f"./{users.relative_to(ROOT)}:/etc/nats/users.conf:ro" in _service("nats")["volumes"]
    shutil.copy(users, tmp_path / "users.conf")
    (script,) = _service("nats")["command"]
    # Compose makes one dollar of two.
    script = script.replace("$$", "$").replace("/credentials/*", f"{credentials}/*").replace("/data", str(tmp_path))
    script = script.replace("nats-server --config /etc/nats/nats.conf", f"{_program()} --config {tmp_path}/nats.conf")
    server = Child("NATS", ["sh", "-c", script], tmp_path / "server.log", {"PATH": os.environ["PATH"]})
    server.start()
    try:
        url = f"tls://localhost:{port}"
        trusted = Tls(ca=credentials / "admin" / "ca.crt")
        await set_up(url, user="admin", password=given["admin"], tls=trusted)
        for user in sorted({*USERS} - {COPIES}):
            login: Login = {"user": user, "password": given[user], "tls": Tls(ca=credentials / user / "ca.crt")}
            log = await JetStreamEventLog.connect(url, name="test", **login)
            try:
                assert await log.identity()
            finally:
                await log.close()
        assert not fsync_trouble(await server_of(f"http://127.0.0.1:{monitor}"))
    finally:
        await server.stop()


@pytest.mark.real
async def test_each_service_gets_a_kubeconfig_with_its_own_rights_only(tmp_path: Path):
    require_control_plane()
    tools, credentials = tmp_path / "tools", tmp_path / "credentials"
    for folder in (tools, *(credentials / name for name in ("admin", *SERVICES))):
        folder.mkdir(parents=True)
    (tools / "kubectl").symlink_to(binaries.kubectl())
    async with ControlPlane(tmp_path / "plane", nodes=0) as plane:
        path = {"PATH": f"{tools}:{os.environ['PATH']}"}
        server = f"https://localhost:{urlsplit(plane.url).port}"
        words = [str(plane.kubeconfig(CLUSTER_ADMIN)), str(credentials), str(ROOT / "deploy/rbac/cluster"), server]
        for _ in range(2):
            # Once more with what the first time left, as `docker compose up` does.
            done = await run("/bin/sh", str(FOLDER / "kubeconfigs.sh"), *words, environment=path)
            assert done.code == 0, done.complaint
        for name in SERVICES:
            file = credentials / name / "kubeconfig.yaml"
            assert stat.S_IMODE(file.stat().st_mode) == 0o644
            assert yaml.safe_load(file.read_text())["clusters"][0]["cluster"]["server"] == server
            said = await run(str(tools / "kubectl"), "--kubeconfig", str(file), "auth", "whoami", "-o", "yaml")
            assert yaml.safe_load(said.out)["status"]["userInfo"]["username"] == f"system:serviceaccount:muster:{name}"


async def test_a_certificate_that_was_half_made_is_made_again(tmp_path: Path):
    credentials, tls = tmp_path / "credentials", tmp_path / "tls"
    tls.mkdir()
    for user in USERS:
        (credentials / user).mkdir(parents=True)
    before = await _certified(credentials, tls)
    first, *_, last = sorted(USERS)
    (credentials / first / "ca.crt").unlink()
    # In the place of a kill: what cannot be written ends the run.
    old = (credentials / last / "ca.crt").read_bytes()
    (credentials / last / "ca.crt").unlink()
    (credentials / last / "ca.crt").mkdir()
    ended = await run(sys.executable, str(FOLDER / "certificate.py"), str(credentials), str(tls))
    assert ended.code
    (credentials / last / "ca.crt").rmdir()
    (credentials / last / "ca.crt").write_bytes(old)
    after = await _certified(credentials, tls)
    assert not {*before.values()} & {*after.values()}, "all of it is new"


async def _certified(credentials: Path, tls: Path) -> dict[str, bytes]:
    """What `certificate.py` made, by file."""
    words = [str(FOLDER / "certificate.py"), str(credentials), str(tls)]
    done = await run(sys.executable, *words)
    assert done.code == 0, done.complaint
    key = tls / "tls.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    files = [key, tls / "tls.crt", *(credentials / user / "ca.crt" for user in USERS)]
    return {str(file): file.read_bytes() for file in files}


def _certificates() -> list[str]:
    """Where the volume with the server's key is."""
    services = _compose()["services"].values()
    return [mount for service in services for mount in service.get("volumes", ()) if mount.startswith("tls:")]


def _compose() -> dict[str, Any]:
    """The file, with the defaults in place of its variables."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", FILE.read_text())
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def _mounts(name: str, ending: str) -> set[str]:
    """The volumes of credentials, each with where it is."""
    found = [mount.removesuffix(ending) for mount in _service(name)["volumes"] if mount.endswith(ending)]
    return {mount for mount in found if mount.partition(":")[2].startswith(f"{CREDENTIALS}/")}


def _service(name: str) -> dict[str, Any]:
    service: dict[str, Any] = _compose()["services"][name]
    return service


def _known(environment: dict[str, str]) -> bool:
    """Settings ignore what they do not know, as an environment holds much; in this file it would be a slip."""
    names = {f"MUSTER_{field.upper()}" for field in Settings.model_fields}
    for field in Settings.model_fields.values():
        names |= {str(choice) for choice in getattr(field.validation_alias, "choices", ())}
    return environment.keys() <= names
