"""`muster setup` on an API server and a log of the test's own: what it makes, leaves alone and refuses."""

import asyncio
import copy
import functools
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import typer

from muster import setup
from muster.commands.installing import SetupOptions
from muster.crds import manifests
from muster.definitions import is_served
from muster.setup import set_up
from shared.cluster import scope
from shared.cluster.kinds import DEFINITIONS
from shared.cluster.objects import Custom, Metadata
from shared.errors import Refused
from shared.eventlog import api
from shared.eventlog.account import ADMIN
from shared.eventlog.server import NatsServer
from shared.frameworks.kinds import Kinds
from shared.frameworks.tfjob import TFJOB
from shared.frameworks.training_job import TRAININGJOB
from shared.process.settings import Settings
from shared.release import MARK, this_release
from tests.kit import et_operator
from tests.kit.apiserver import ScriptedApiServer, ok
from tests.kit.nats import connected
from tests.kit.virtual_time import until
from tests.muster.conftest import MakeSite, Said, Site

pytestmark = pytest.mark.nats

OURS = sorted(manifests(Kinds([TRAININGJOB])), key=lambda each: each["metadata"]["name"])
NAMES = [each["metadata"]["name"] for each in OURS]
KIND = TRAININGJOB.name
options_of = functools.partial(SetupOptions, timeout=20)


def settings(site: Site, nats: NatsServer, **more: Any) -> Settings:
    known: dict[str, Any] = {
        "kubeconfig": site.kubeconfig,
        "kinds": (KIND,),
        "nats_url": nats.url,
        "nats_user": ADMIN,
        "nats_password": nats.users[ADMIN],
    }
    return Settings(_env_file=None, **(known | more))


async def definition(site: Site, name: str = "trainingjobs.kai.alibabacloud.com") -> Any:
    found = await site.cluster.get(DEFINITIONS, "", name)
    assert found is not None
    return found


def fields(spec: dict[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return known


async def edit(site: Site, change: Callable[[dict[str, Any]], None], **notes: str) -> Any:
    """Change the definition of TrainingJobs behind the set-up's back."""
    spec = copy.deepcopy((await definition(site)).spec)
    change(fields(spec))
    patch = {"spec": spec, "metadata": {"annotations": notes}}
    return await site.cluster.patch(DEFINITIONS, "", "trainingjobs.kai.alibabacloud.com", patch)


def shown(said: Said) -> list[str]:
    """Its lines, without what no two runs share."""
    return [re.sub(r"log [0-9a-f-]{36}", "log ID", line) for line in said.out.splitlines()]


async def test_it_makes_everything_once_and_then_nothing(a_site: MakeSite, tmp_path: Path, said: Said):
    async with a_site(OURS) as site, NatsServer(tmp_path / "nats") as nats:
        missing = await site.cluster.get(DEFINITIONS, "", NAMES[0])
        assert missing is not None
        await site.cluster.delete(DEFINITIONS, "", NAMES[0], uid=missing.metadata.uid)
        await set_up(settings(site, nats), options_of())
        first = shown(said)
        assert first == [
            *(f"stream {name} created" for name in ("JOBS", "KV_LEASES", "KV_HEADS", "ARCHIVE")),
            "log ID is set up",
            f"definition {NAMES[0]} created",
            *(f"definition {name} unchanged" for name in NAMES[1:]),
            "scope the whole cluster claimed by the log ID",
        ]
        before = [await definition(site, name) for name in NAMES]
        assert {each.metadata.annotations[MARK] for each in before} == {this_release()}
        await set_up(settings(site, nats), options_of(check=True))
        await set_up(settings(site, nats), options_of())
        assert [await definition(site, name) for name in NAMES] == before
        assert not any("created" in line for line in shown(said)[len(first) :])


async def test_a_check_changes_nothing_and_says_what_would(a_site: MakeSite, tmp_path: Path, said: Said):
    async with a_site(OURS) as site, NatsServer(tmp_path / "nats") as nats:
        before = await edit(site, lambda fields: fields.pop("suspend"))
        with pytest.raises(typer.Exit) as ended:
            await set_up(settings(site, nats), options_of(check=True))
        assert ended.value.exit_code == 1
        assert await definition(site) == before
        assert "stream JOBS would be created" in shown(said)
        assert any("trainingjobs.kai.alibabacloud.com would be upgraded" in line for line in shown(said))


async def test_an_older_definition_is_upgraded_and_a_newer_one_left_alone(a_site: MakeSite, tmp_path: Path, said: Said):
    async with a_site(OURS) as site, NatsServer(tmp_path / "nats") as nats:
        await edit(site, lambda fields: fields.pop("suspend"), note="a person's")
        await set_up(settings(site, nats), options_of())
        assert "trainingjobs.kai.alibabacloud.com upgraded (it lacks .spec.suspend (v1alpha1))" in said.out
        upgraded = await definition(site)
        assert "suspend" in fields(upgraded.spec)
        assert upgraded.metadata.annotations["note"] == "a person's"
        newer = await edit(site, lambda fields: fields.update(priority={"type": "integer"}), **{MARK: "99.0"})
        await set_up(settings(site, nats), options_of())
        assert "release 99.0 made it" in said.err
        assert await definition(site) == newer


async def test_another_operators_definitions_are_left_alone_until_a_person_says_so(
    a_site: MakeSite, tmp_path: Path, said: Said
):
    async with a_site(et_operator.definitions()) as site, NatsServer(tmp_path / "nats") as nats:
        before = await definition(site)
        await set_up(settings(site, nats), options_of())
        assert said.err.count("another operator's") == 3
        assert "--take-crds" in said.err
        kept = await definition(site)
        assert kept.spec == before.spec
        # The scope is claimed in them all the same: Muster works on them too.
        assert kept.metadata.annotations.keys() == {scope.key("")}
        await set_up(settings(site, nats), options_of(take_crds=True))
        taken = await definition(site)
        assert "history" in taken.spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        assert taken.metadata.annotations[MARK] == this_release()


async def test_two_installations_are_kept_apart(a_site: MakeSite, tmp_path: Path, said: Said):
    async with a_site(OURS) as site, NatsServer(tmp_path / "one") as one, NatsServer(tmp_path / "two") as two:
        await set_up(settings(site, one, namespace="team-a"), options_of())
        await set_up(settings(site, two, namespace="team-b"), options_of())
        for nats in (one, two):
            with pytest.raises(Refused, match=r"the namespace team-. has the log .* at nats://") as refusal:
                await set_up(settings(site, nats), options_of())
            assert refusal.value.reason == "ScopeTaken"
        with pytest.raises(Refused, match=r"the namespace team-a has the log .*--release.*--take-scope"):
            await set_up(settings(site, two, namespace="team-a"), options_of())
        await set_up(settings(site, one, namespace="team-a"), options_of(release=True))
        assert said.out.splitlines()[-1] == "scope the namespace team-a given up"
        await set_up(settings(site, two, namespace="team-a"), options_of())
        # The first one's servers are gone; what they held is taken.
        await set_up(settings(site, one), options_of(take_scope=True))
        held = (await definition(site)).metadata.annotations
        assert [key for key in held if key.startswith(scope.PREFIX)] == [scope.key("")]


async def test_a_refused_installation_has_no_log_that_its_services_could_use(
    a_site: MakeSite, tmp_path: Path, said: Said
):
    async with a_site(OURS) as site, NatsServer(tmp_path / "one") as one, NatsServer(tmp_path / "two") as two:
        await set_up(settings(site, one), options_of())
        with pytest.raises(Refused, match="the whole cluster has the log"):
            await set_up(settings(site, two, namespace="team-a"), options_of())
        with pytest.raises(typer.Exit):
            await set_up(settings(site, two), options_of(log_only=True, check=True))
        assert "stream JOBS would be created" in said.out
        # Its own scope changed in place is told apart from another installation's.
        with pytest.raises(Refused, match=r"this log's own, of another scope: .*--release"):
            await set_up(settings(site, one, namespace="team-a"), options_of())


async def test_a_scope_can_be_given_up_when_its_log_is_gone(a_site: MakeSite, tmp_path: Path, said: Said):
    async with a_site(OURS) as site:
        nats = NatsServer(tmp_path / "nats")
        async with nats:
            await set_up(settings(site, nats), options_of())
        await set_up(settings(site, nats), options_of(release=True, take_scope=True))
        await set_up(settings(site, nats), options_of(release=True, take_scope=True))
        assert [line for line in said.out.splitlines() if "scope" in line][1:] == [
            "scope the whole cluster given up",
            "scope the whole cluster was not held",
        ]
        assert scope.key("") not in (await definition(site)).metadata.annotations


BOTH = (KIND, TFJOB.name)


async def test_nothing_stays_claimed_in_kinds_that_are_no_longer_chosen(a_site: MakeSite, tmp_path: Path, said: Said):
    async with a_site(OURS) as site, NatsServer(tmp_path / "one") as one, NatsServer(tmp_path / "two") as two:
        other = settings(site, two, kinds=(TFJOB.name,))
        # It is set up with fewer kinds, or given up.
        for options in (options_of(), options_of(release=True)):
            await set_up(settings(site, one, kinds=BOTH), options_of())
            with pytest.raises(Refused, match=r"tfjobs\.kubeflow\.org: the whole cluster has the log"):
                await set_up(other, options_of())
            await set_up(settings(site, one), options)
            await set_up(other, options_of())
            # It does not affect installations that set up, or give up, other kinds.
            await set_up(settings(site, one), options_of())
            await set_up(settings(site, one), options_of(release=True, take_scope=True))
            assert scope.key("") in (await definition(site, "tfjobs.kubeflow.org")).metadata.annotations
            await set_up(other, options_of(release=True))


async def test_it_waits_for_the_log_and_says_so(
    a_site: MakeSite, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(setup, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(setup, "BETWEEN_TRIES_SECONDS", 0.1)
    async with a_site(OURS) as site:
        with pytest.raises(typer.Exit) as ended:
            await set_up(settings(site, NatsServer(tmp_path / "nats")), SetupOptions(timeout=1))
        assert ended.value.exit_code == 3
        lines = said.err.splitlines()
        assert lines[0].startswith("waiting: connect to nats://")
        assert lines[-1].startswith("muster: waited 1 s: connect to nats://")
        assert len(lines) == 2


async def test_a_wrong_password_is_one_line_at_once(a_site: MakeSite, tmp_path: Path):
    async with a_site(OURS) as site, NatsServer(tmp_path / "nats") as nats:
        with pytest.raises(Refused, match="does not know this user and password"):
            await set_up(settings(site, nats, nats_password="another"), options_of())


async def test_a_missing_password_is_one_line(a_site: MakeSite, tmp_path: Path):
    async with a_site(OURS) as site, NatsServer(tmp_path / "nats") as nats:
        with pytest.raises(Refused, match=r"password file .*none cannot be read.*mount the Secret"):
            await set_up(settings(site, nats, nats_password_file=tmp_path / "none"), options_of())


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "BETWEEN_TRIES_SECONDS", 0.05)


async def _fixed(work: Coroutine[Any, Any, None], said: Said, trouble: str, fix: Callable[[], object]) -> None:
    """It says the `trouble` once while it waits, and goes on by itself once it is fixed.

    What it says may change meanwhile: it adds the identity of its own log once another set-up made that.
    """
    task = asyncio.create_task(work)
    await until(lambda: said.err.startswith("waiting: ") or task.done())
    await asyncio.sleep(0.2)
    assert not task.done()
    if asyncio.iscoroutine(fixing := fix()):
        await fixing
    async with asyncio.timeout(20):
        await task
    lines = [line for line in said.err.splitlines() if line.startswith("waiting: ")]
    assert all(trouble in line for line in lines)
    assert len(lines) == len(set(lines))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param(None, "cannot be read", id="is there"),
        pytest.param("guessed", "does not know this user and password", id="is right"),
    ],
)
async def test_told_to_wait_it_goes_on_once_the_password(
    a_site: MakeSite, tmp_path: Path, said: Said, quick: None, given: str | None, told: str
):
    async with a_site(OURS) as site, NatsServer(tmp_path / "nats") as nats:
        password = tmp_path / "password"
        if given:
            password.write_text(given)
        known = settings(site, nats, nats_password=None, nats_password_file=password)
        work = set_up(known, options_of(wait=True))
        await _fixed(work, said, told, lambda: password.write_text(nats.users[ADMIN]))
    assert shown(said)[-1] == "scope the whole cluster claimed by the log ID"


async def test_told_to_wait_it_goes_on_once_there_is_a_cluster(
    a_site: MakeSite, tmp_path: Path, said: Said, quick: None
):
    async with a_site(OURS) as site, NatsServer(tmp_path / "nats") as nats:
        kubeconfig = tmp_path / "later"
        work = set_up(settings(site, nats, kubeconfig=kubeconfig), options_of(wait=True))
        given = site.kubeconfig.read_text()
        await _fixed(work, said, "there is no kubeconfig at", lambda: kubeconfig.write_text(given))


@pytest.mark.parametrize(
    ("whose", "options"),
    [
        pytest.param("before", {"release": True}, id="it is given up"),
        pytest.param("now", {"take_scope": True}, id="another set-up takes it for the same log"),
    ],
)
async def test_told_to_wait_it_goes_on_once_the_scope_is_free(
    a_site: MakeSite, tmp_path: Path, said: Said, quick: None, whose: str, options: dict[str, bool]
):
    async with a_site(OURS) as site, NatsServer(tmp_path / "one") as before, NatsServer(tmp_path / "two") as now:
        known = {"before": settings(site, before), "now": settings(site, now)}
        await set_up(known["before"], options_of())
        work, freed = set_up(known["now"], options_of(wait=True)), set_up(known[whose], options_of(**options))
        await _fixed(work, said, "the whole cluster has the log", lambda: freed)


async def test_told_to_wait_it_ends_with_the_time_or_with_what_waiting_cannot_fix(
    a_site: MakeSite, tmp_path: Path, said: Said, quick: None
):
    async with a_site(OURS) as site, NatsServer(tmp_path / "nats") as nats:
        with pytest.raises(typer.Exit) as ended:
            await set_up(settings(site, nats, nats_password="another"), SetupOptions(timeout=1, wait=True))
        assert ended.value.exit_code == 3
        assert said.err.splitlines()[-1].startswith("muster: waited 1 s: ")
        await set_up(settings(site, nats), options_of())
        async with connected(nats, ADMIN) as log:
            await api.call(log.connection, "STREAM.PURGE.JOBS", {}, dict[str, Any])
        with pytest.raises(Refused, match="its beginning was lost"):
            await set_up(settings(site, nats), options_of(wait=True, log_only=True))


async def test_without_a_cluster_the_log_alone_is_set_up(tmp_path: Path, said: Said):
    async with NatsServer(tmp_path / "nats") as nats:
        known = Settings(_env_file=None, nats_url=nats.url, nats_user=ADMIN, nats_password=nats.users[ADMIN])
        await set_up(known, options_of(log_only=True))
        assert shown(said)[-1] == "log ID is set up"


async def test_a_missing_right_is_one_line(tmp_path: Path):
    async with ScriptedApiServer() as server:
        denied = {"kind": "SelfSubjectAccessReview", "status": {"allowed": False}}
        server.answers += [ok(denied)] * 3
        known = Settings(_env_file=None, kubeconfig=server.kubeconfig(tmp_path))
        with pytest.raises(Refused) as refusal:
            await set_up(known, options_of())
        assert refusal.value.reason == "Forbidden"
        told = "does not let us get/create/patch customresourcedefinitions in the whole cluster; "
        assert f"{told}grant it to the user of `muster setup`" in str(refusal.value)


async def test_an_api_server_that_is_down_is_waited_for(a_site: MakeSite, tmp_path: Path, said: Said):
    async with a_site(OURS) as site:
        pass
    known = Settings(_env_file=None, kubeconfig=site.kubeconfig)
    with pytest.raises(typer.Exit) as ended:
        await set_up(known, SetupOptions(timeout=1))
    assert ended.value.exit_code == 3
    assert said.err.startswith("waiting: ")
    assert "is the API server up" in said.err


@pytest.mark.parametrize(
    ("status", "served"),
    [
        pytest.param(None, False, id="no controller has looked at it yet"),
        pytest.param({"conditions": None}, False, id="no controller has judged it yet"),
        pytest.param({"conditions": [{"type": "Established", "status": "False"}]}, False, id="not yet"),
        pytest.param({"conditions": [{"type": "Established", "status": "True"}]}, True, id="it is served"),
    ],
)
def test_a_definition_is_served_once_it_is_established(status: Any, served: bool):
    assert is_served(Custom(metadata=Metadata(name="trainingjobs.kai.alibabacloud.com"), status=status)) is served
