"""A shell completes the names of the jobs that are there."""

import asyncio
import sys

import pytest
from typer import Context
from typer.core import TyperCommand

from muster import crds
from muster.commands import arguments
from muster.commands.arguments import job_names
from tests.kit.commands import run
from tests.muster.conftest import MakeSite

PROGRAM = """
from muster.commands import application, arguments
arguments.PATIENCE_SECONDS = 60
application()(prog_name='muster')
"""


async def test_job_names_are_completed(a_site: MakeSite, monkeypatch: pytest.MonkeyPatch):
    async with a_site(crds.manifests()) as site:
        monkeypatch.setenv("KUBECONFIG", str(site.kubeconfig))
        monkeypatch.setattr(arguments, "PATIENCE_SECONDS", 60.0)

        async def found(incomplete: str, namespace: str = "") -> list[str]:
            context = Context(TyperCommand("why"))
            context.params["namespace"] = namespace
            return await asyncio.to_thread(job_names, context, incomplete)

        assert await found("") == ["trainingjob/resnet"]
        assert await found("res") == ["resnet"]
        assert await found("trainingjob/") == ["trainingjob/resnet"]
        assert await found("", "team-b") == []
        assert await found("vgg") == []
        environment = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster get res", "COMP_CWORD": "2"}
        asked = await run(
            sys.executable, "-c", PROGRAM, environment={**environment, "KUBECONFIG": str(site.kubeconfig)}
        )
        assert (asked.out.split(), asked.complaint) == (["resnet"], "")


async def test_without_a_cluster_nothing_is_completed_and_nothing_is_said():
    environment = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster why ", "COMP_CWORD": "2"}
    found = await run(sys.executable, "-c", PROGRAM, environment=environment | {"KUBECONFIG": "/none"})
    assert (found.out.strip(), found.complaint) == ("", "")
