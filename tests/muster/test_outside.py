"""`muster why` and `muster get` of a job that does not begin where it is."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from muster import asking
from muster import get as getting
from muster.commands.arguments import named
from muster.get import Options
from muster.stack import Stack
from shared.errors import Refused
from shared.frameworks.pytorchjob import PYTORCHJOB
from shared.process.settings import Settings
from tests.muster.conftest import NAME, Site


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
