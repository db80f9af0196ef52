"""Which namespace a command means without -n: kubectl's; and a job that does not begin where it is."""

import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import binaries
from muster import asking, crds
from muster import get as getting
from muster.commands.arguments import named
from muster.get import Options
from muster.stack import Stack
from shared.cluster import access
from shared.cluster.access import current_namespace, find_cluster
from shared.cluster.kube import KubeCluster
from shared.errors import Refused
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.process.settings import Settings
from tests.kit.commands import run
from tests.muster.conftest import NAME, MakeSite, Say, Site


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "MUSTER_KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def a_kubeconfig(path: Path, current: str | None, **namespaces: str | None) -> Path:
    """With a context for each namespace, at a server of the file's own name."""
    contexts = [
        {"name": name, "context": {"cluster": path.name, "user": "me"} | ({"namespace": named} if named else {})}
        for name, named in namespaces.items()
    ]
    config: dict[str, Any] = {
        "clusters": [{"name": path.name, "cluster": {"server": f"http://{path.name}.invalid"}}],
        "users": [{"name": "me", "user": {"token": "a-token"}}],
        "contexts": contexts,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config | ({"current-context": current} if current is not None else {})))
    return path


@pytest.mark.parametrize(
    ("current", "namespace"),
    [
        pytest.param("work", "team-a", id="that of the current context"),
        pytest.param("plain", "default", id="a context without one"),
        pytest.param("elsewhere", "default", id="a context that is not there"),
        pytest.param(None, "default", id="no current context"),
    ],
)
def test_it_is_that_of_the_current_context(tmp_path: Path, current: str | None, namespace: str):
    assert current_namespace(a_kubeconfig(tmp_path / "config", current, work="team-a", plain=None)) == namespace


async def test_of_several_files_the_first_one_that_names_a_context_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = [
        a_kubeconfig(tmp_path / "none", None, work="team-a"),
        a_kubeconfig(tmp_path / "first", "work", work="team-b", rest="team-c"),
        a_kubeconfig(tmp_path / "last", "rest", rest="team-d"),
    ]
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, files)))
    assert current_namespace(None) == "team-a"
    assert current_namespace(Path(os.environ["KUBECONFIG"])) == "team-a"
    assert (await find_cluster(Path(os.environ["KUBECONFIG"]))).url == "http://none.invalid"
    try:
        kubectl = str(binaries.kubectl())
    except binaries.MissingProgram:
        return
    view = await run(kubectl, "config", "view", "--minify", "-o", "jsonpath={..namespace} {..server}")
    assert view.out == "team-a http://none.invalid"


def test_the_home_directory_has_one_too(tmp_path: Path):
    assert current_namespace(None) == "default"
    a_kubeconfig(tmp_path / "home" / ".kube" / "config", "work", work="team-a")
    assert current_namespace(None) == "team-a"
    assert current_namespace(Path()) == "team-a", "an empty variable names no file"


def test_in_a_pod_it_is_that_of_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setattr(access, "POD_NAMESPACE", tmp_path / "namespace")
    assert current_namespace(None) == "default"
    (tmp_path / "namespace").write_text("team-p\n")
    assert current_namespace(None) == "team-p"
    named = a_kubeconfig(tmp_path / "config", "work", work="team-a")
    assert current_namespace(named) == "team-a"


@pytest.mark.parametrize("text", ["{", "\0"])
def test_a_file_of_another_shape_is_refused_by_its_name(tmp_path: Path, text: str):
    (tmp_path / "config").write_text(text)
    with pytest.raises(Refused, match="config cannot be used"):
        current_namespace(tmp_path / "config")


@pytest.mark.parametrize("text", ["root:x:0:0", "[1]", "contexts: 5", "current-context: a\ncontexts: [a]"])
async def test_a_file_that_is_no_kubeconfig_is_one_line_without_pythons_words(tmp_path: Path, text: str):
    config = tmp_path / "config"
    config.write_text(text)
    said = f"the kubeconfig {config} cannot be used: it does not have the clusters, users and contexts of one"
    with pytest.raises(Refused) as refusal:
        current_namespace(config)
    assert str(refusal.value) == said
    with pytest.raises(Refused) as refusal:
        await KubeCluster.connect(config)
    assert str(refusal.value) == said


async def test_a_command_takes_another_kubeconfig_and_another_context_as_kubectl_does(a_site: MakeSite):
    async with a_site(crds.manifests()) as site:
        config = yaml.safe_load(site.kubeconfig.read_text())
        context = config["contexts"][0]
        other = {"name": "other", "context": context["context"] | {"namespace": "team-b"}}
        nowhere = {"clusters": [{"name": "nowhere", "cluster": {"server": "https://none.invalid"}}]}
        config["clusters"] += nowhere["clusters"]
        config["contexts"] += [other, {"name": "away", "context": {"cluster": "nowhere"}}]
        config["current-context"] = "away"
        site.kubeconfig.write_text(yaml.safe_dump(config))
        words = [sys.executable, "-m", "muster", "suspend", "resnet", "--kubeconfig", str(site.kubeconfig)]
        there = await run(*words, "--context", "other")
        assert there.complaint == "muster: no job team-b/resnet; -n names another namespace\n"
        asked = await run(*words, "--context", "other", "-n", "default", "--no-wait")
        assert asked.out == "trainingjob/resnet asked to suspend\n"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        pytest.param(("--context", "none"), "there is no context 'none'", id="a context"),
        pytest.param(("--kubeconfig", "/none"), "there is no kubeconfig at /none", id="a file"),
    ],
)
def test_what_a_person_names_has_to_be_there_where_the_log_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Say, option: tuple[str, str], said: str
):
    monkeypatch.setenv("KUBECONFIG", str(a_kubeconfig(tmp_path / "config", "work")))
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    ended = say("get", *option)
    assert ended.code == 1
    assert said in ended.complaint
    assert ended.complaint.count("\n") == 1


async def test_why_names_the_labels_that_the_namespace_lacks(site: Site, monkeypatch: pytest.MonkeyPatch):
    async def unknown(*_: object, **__: object) -> None:
        raise Refused("the log knows no job default/resnet", reason="NotFound")

    monkeypatch.setattr(asking, "why_of", unknown)
    settings = Settings(kubeconfig=site.kubeconfig)
    for name, words in ((NAME, "lacks muster.dev/jobs=enabled"), ("another", "knows no job")):
        with pytest.raises(Refused, match=words):
            await asking.why(named(name), "", "default", settings, uid="", as_json=False)


async def test_get_names_the_labels_that_the_namespace_of_a_job_lacks(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def unknown(_: object, options: Options, *__: object) -> AsyncGenerator[str, None]:
        yield "no jobs"
        if options.asked is not None:
            raise Refused("the log knows no job default/resnet", reason="NotFound")

    monkeypatch.setattr(getting, "texts", unknown)
    settings = Settings(kubeconfig=site.kubeconfig)
    with pytest.raises(Refused, match="that no job begins there"):
        await getting.get(settings, Options("default", asked=named(NAME)))
    await getting.get(settings, Options("default"))
    assert "lacks muster.dev/jobs=enabled" in capsys.readouterr().err
    await site.status("Running")
    await getting.get(settings, Options("default"))
    assert not capsys.readouterr().err, "every job has begun"


async def test_of_a_stack_that_takes_jobs_from_every_namespace_no_label_is_missed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in {**Stack(tmp_path).reader(), "KUBECONFIG": str(site.kubeconfig)}.items():
        monkeypatch.setenv(name, value)
    assert not await asking.outside(Settings(), "default")
    assert not await asking.outside(Settings(), "default", named(NAME))


async def test_why_says_that_a_job_is_left_to_the_controller_that_it_names(site: Site):
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
    spec = {
        "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"},
        "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}},
    }
    await site.cluster.create(PYTORCHJOB.resource, "default", {"metadata": {"name": "torch"}, "spec": spec})
    await site.status("Running")
    settings = Settings(kubeconfig=site.kubeconfig)
    said = await asking.outside(settings, "default", named("torch"))
    assert said == "pytorchjob/torch names another controller in managedBy, and is left to it"
    assert not await asking.outside(settings, "default"), "no label would make it begin"
