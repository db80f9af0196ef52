"""Calls against a server that plays faults, and how the cluster is found."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from shared.cluster.access import find_cluster
from shared.cluster.calls import Timeouts
from shared.cluster.kinds import PODS
from shared.cluster.kube import KubeCluster
from shared.errors import Conflict, Refused, Transient
from tests.kit.apiserver import Answer, ScriptedApiServer, a_pod, html, never, ok, status, write_kubeconfig


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def tokens(server: ScriptedApiServer) -> list[str]:
    return [asked.headers.get("Authorization", "") for asked in server.asked]


class TestCalls:
    async def test_an_object_goes_with_its_kind_and_comes_as_a_struct(
        self, cluster: KubeCluster, server: ScriptedApiServer
    ) -> None:
        server.answers.append(ok(a_pod("p", 5)))
        pod = await cluster.create(PODS, "team-a", {"metadata": {"name": "p"}})
        assert (pod.metadata.version, pod.status.phase) == (5, "Running")
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/team-a/pods")
        assert asked.body == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}

    async def test_a_creation_may_have_a_deadline_that_the_server_keeps(
        self, cluster: KubeCluster, server: ScriptedApiServer
    ) -> None:
        server.answers.append(ok(a_pod("p", 5)))
        await cluster.create(PODS, "team-a", {"metadata": {"name": "p"}}, within=15)
        (asked,) = server.asked
        assert asked.query["timeout"] == "15s"

    async def test_a_patch_is_a_merge_patch(self, cluster: KubeCluster, server: ScriptedApiServer) -> None:
        server.answers.append(ok(a_pod("p", 5)))
        await cluster.patch(PODS, "team-a", "p", {"status": {"phase": None}}, subresource="status")
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("PATCH", "/api/v1/namespaces/team-a/pods/p/status")
        assert asked.headers["Content-Type"] == "application/merge-patch+json"

    async def test_a_delete_names_the_uid(self, cluster: KubeCluster, server: ScriptedApiServer) -> None:
        server.answers.append(ok(a_pod("p", 5)))
        await cluster.delete(PODS, "team-a", "p", uid="uid-p")
        (asked,) = server.asked
        assert asked.body["preconditions"] == {"uid": "uid-p"}
        assert asked.body["propagationPolicy"] == "Background"

    @pytest.mark.parametrize(
        "answer", [pytest.param(status(409, "Conflict"), id="another uid"), status(404, "NotFound", name="p")]
    )
    async def test_deleting_what_is_gone_is_success(
        self, cluster: KubeCluster, server: ScriptedApiServer, answer: Any
    ) -> None:
        server.answers.append(answer)
        await cluster.delete(PODS, "team-a", "p", uid="uid-p")

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(html(404), id="a proxy knows nothing"),
            pytest.param(
                status(404, "NotFound", "the server could not find the requested resource"), id="no such kind"
            ),
        ],
    )
    async def test_absence_counts_only_when_it_names_the_object(
        self, cluster: KubeCluster, server: ScriptedApiServer, answer: Any
    ) -> None:
        server.answers += [answer, answer]
        with pytest.raises(Refused, match="get Pod team-a/p"):
            await cluster.get(PODS, "team-a", "p")
        with pytest.raises(Refused):
            await cluster.delete(PODS, "team-a", "p", uid="uid-p")

    async def test_errors_come_out_as_trouble(self, cluster: KubeCluster, server: ScriptedApiServer) -> None:
        server.answers += [status(409, "Conflict"), status(429, "TooManyRequests", retry_after="4"), html(502)]
        with pytest.raises(Conflict):
            await cluster.patch(PODS, "team-a", "p", {})
        with pytest.raises(Transient) as caught:
            await cluster.create(PODS, "team-a", {"metadata": {"name": "p"}})
        assert caught.value.retry_after == 4
        with pytest.raises(Transient, match="502"):
            await cluster.get(PODS, "team-a", "p")

    async def test_what_the_server_asks_for_again_soon_is_sent_again(
        self, cluster: KubeCluster, server: ScriptedApiServer
    ) -> None:
        turned_away = status(429, "TooManyRequests", retry_after="1")
        server.answers += [turned_away, turned_away, status(409, "Conflict")]
        began = time.monotonic()
        with pytest.raises(Conflict):
            await cluster.patch(PODS, "team-a", "p", {})
        assert len(server.asked) == 3
        assert time.monotonic() - began >= 2
        server.answers += [turned_away] * 4
        with pytest.raises(Transient) as caught:
            await cluster.patch(PODS, "team-a", "p", {})
        assert caught.value.retry_after == 1
        assert not server.answers

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(status(429, "TooManyRequests"), id="no word when to come again"),
            pytest.param(status(503, "ServiceUnavailable", retry_after="1"), id="it may have been done"),
        ],
    )
    async def test_what_the_server_does_not_ask_for_again_is_sent_once(
        self, cluster: KubeCluster, server: ScriptedApiServer, answer: Answer
    ) -> None:
        server.answers += [answer]
        with pytest.raises(Transient):
            await cluster.patch(PODS, "team-a", "p", {})
        assert len(server.asked) == 1

    async def test_a_try_that_may_no_longer_change_anything_is_not_sent(
        self, cluster: KubeCluster, server: ScriptedApiServer
    ) -> None:
        """The lease was lost while the request waited."""
        server.answers.append(status(429, "TooManyRequests", retry_after="1"))
        cluster.change_only_while(lambda: not server.asked)
        with pytest.raises(Transient):
            await cluster.patch(PODS, "team-a", "p", {})
        assert len(server.asked) == 1

    async def test_no_answer_in_time_is_transient(self, server: ScriptedApiServer, tmp_path: Path) -> None:
        cluster = await KubeCluster.connect(server.kubeconfig(tmp_path), timeouts=Timeouts(total=0.05))
        server.answers.append(never())
        with pytest.raises(Transient, match="timed out"):
            await cluster.get(PODS, "team-a", "p")
        await cluster.close()

    @pytest.mark.parametrize(
        ("ready", "reason"),
        [
            pytest.param(ok({}), "Timeout", id="that is ready"),
            pytest.param(status(500, "InternalError"), "", id="whose store is away"),
            pytest.param(never(), "", id="that answers nothing else either"),
        ],
    )
    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(never(), id="no answer"),
            pytest.param(status(504, "Timeout"), id="its own"),
            pytest.param(html(504), id="a proxy's"),
        ],
    )
    async def test_a_creation_that_takes_too_long_is_about_its_object_at_a_server(
        self, server: ScriptedApiServer, tmp_path: Path, answer: Answer, ready: Answer, reason: str
    ) -> None:
        timeouts = Timeouts(connect=0.3, total=0.3)
        cluster = await KubeCluster.connect(server.kubeconfig(tmp_path), timeouts=timeouts)
        server.answers += [answer, ready]
        with pytest.raises(Transient, match="create Pod team-a/p") as caught:
            await cluster.create(PODS, "team-a", {"metadata": {"name": "p"}})
        assert caught.value.reason == reason
        assert [asked.path for asked in server.asked][1:] == ["/readyz"]
        await cluster.close()

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param(status(429, "TooManyRequests"), id="turned away"),
            pytest.param(html(502), id="an error of the server"),
            pytest.param(never(), id="no answer in time"),
        ],
    )
    async def test_what_was_too_much_for_the_server_halves_the_bound(
        self, server: ScriptedApiServer, tmp_path: Path, answer: Answer
    ) -> None:
        cluster = await KubeCluster.connect(server.kubeconfig(tmp_path), timeouts=Timeouts(total=0.5))
        before = cluster.limiter.interactive.limit
        server.answers += [status(409, "Conflict"), answer]
        for error, limit in ((Conflict, before), (Transient, before // 2)):
            with pytest.raises(error):
                await cluster.patch(PODS, "team-a", "p", {})
            assert cluster.limiter.interactive.limit == limit
        await cluster.close()

    async def test_an_address_without_a_server_is_transient(self, server: ScriptedApiServer, tmp_path: Path) -> None:
        kubeconfig = write_kubeconfig(tmp_path / "nobody", "http://127.0.0.1:1", {"token": "t"})
        cluster = await KubeCluster.connect(kubeconfig)
        with pytest.raises(Transient):
            await cluster.get(PODS, "team-a", "p")
        await cluster.close()

    async def test_the_next_call_works_after_any_of_these(
        self, cluster: KubeCluster, server: ScriptedApiServer
    ) -> None:
        for _ in range(100):
            server.answers.append(html(500))
            with pytest.raises(Transient):
                await cluster.get(PODS, "team-a", "p")
        server.answers.append(ok(a_pod("p", 5)))
        assert await asyncio.wait_for(cluster.get(PODS, "team-a", "p"), 5)


class TestCredentials:
    async def test_a_token_that_is_not_accepted_is_read_again(self, server: ScriptedApiServer, tmp_path: Path) -> None:
        kubeconfig = server.kubeconfig(tmp_path)
        cluster = await KubeCluster.connect(kubeconfig)
        server.kubeconfig(tmp_path, {"token": "second"})
        server.answers += [status(401, "Unauthorized"), ok(a_pod("p", 5))]
        assert await cluster.get(PODS, "team-a", "p")
        assert tokens(server) == ["Bearer first", "Bearer second"]
        await cluster.close()

    async def test_a_token_that_stays_wrong_is_transient(self, cluster: KubeCluster, server: ScriptedApiServer) -> None:
        server.answers += [status(401, "Unauthorized")] * 2
        with pytest.raises(Transient, match="401"):
            await cluster.get(PODS, "team-a", "p")
        assert len(server.asked) == 2

    async def test_a_pods_token_is_read_again_when_it_is_not_accepted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token, authority = tmp_path / "token", tmp_path / "ca.crt"
        token.write_text("first")
        authority.write_text("anything")
        monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr("kubernetes.aio.config.incluster_config.SERVICE_CERT_FILENAME", str(authority))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        access = await find_cluster(None)
        assert access.url == "https://[fd00::1]:443"
        assert await access.headers() == {"authorization": "bearer first"}
        token.write_text("second")
        await access.renew()
        assert await access.headers() == {"authorization": "bearer second"}
        token.unlink()
        with pytest.raises(Transient, match="service account"):
            await access.renew()

    async def test_a_plugin_that_fails_is_said_in_one_line(self, server: ScriptedApiServer, tmp_path: Path) -> None:
        command = {"command": "false", "apiVersion": "client.authentication.k8s.io/v1"}
        with pytest.raises(Transient, match="plugin"):
            await KubeCluster.connect(server.kubeconfig(tmp_path, {"exec": command}))


class TestFinding:
    async def test_nothing_anywhere_is_said_in_one_line(self) -> None:
        with pytest.raises(Refused) as refusal:
            await KubeCluster.connect()
        assert refusal.value.reason == "NoCluster"
        assert "\n" not in str(refusal.value)

    async def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="nowhere") as refusal:
            await KubeCluster.connect(tmp_path / "nowhere")
        assert refusal.value.reason == "NoCluster"

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("", id="empty"),
            pytest.param("a: [", id="no YAML"),
            pytest.param("[1, 2]", id="a list"),
            pytest.param("current-context: here", id="nothing but a context"),
        ],
    )
    async def test_a_file_of_another_shape_is_refused(self, tmp_path: Path, text: str) -> None:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(text)
        with pytest.raises(Refused) as refusal:
            await KubeCluster.connect(kubeconfig)
        assert refusal.value.reason == "BadKubeconfig"
        assert "\n" not in str(refusal.value)

    async def test_a_certificate_that_is_none_is_refused_and_leaves_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "temporary").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
        kubeconfig = write_kubeconfig(
            tmp_path / "kubeconfig", "https://127.0.0.1:1", {}, **{"certificate-authority-data": "bm9uZQ=="}
        )
        with pytest.raises(Refused) as refusal:
            await KubeCluster.connect(kubeconfig)
        assert refusal.value.reason == "BadKubeconfig"
        assert list((tmp_path / "temporary").iterdir()) == []

    async def test_the_order_is_kubectls(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def a_config(name: str) -> Path:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            return write_kubeconfig(tmp_path / name, f"http://{Path(name).parts[0]}", {})

        given, named, home = a_config("given"), a_config("named"), a_config("home/.kube/config")
        assert home.is_file()
        assert (await find_cluster(None)).url == "http://home"
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{named}")
        assert (await find_cluster(None)).url == "http://named"
        assert (await find_cluster(given)).url == "http://given"

    async def test_a_pod_without_a_service_account_has_no_cluster(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
        with pytest.raises(Refused, match="service account") as refusal:
            await KubeCluster.connect()
        assert refusal.value.reason == "NoCluster"
