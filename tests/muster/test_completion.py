"""A shell completes the names of the jobs that are there."""

import sys

import pytest

from muster import crds
from tests.kit.commands import run
from tests.muster.conftest import MakeSite

PROGRAM = "from muster.commands import application; application()(prog_name='muster')"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("muster why ", ["trainingjob/resnet"], id="nothing typed"),
        pytest.param("muster get res", ["resnet"], id="the beginning of a name"),
        pytest.param("muster scale trainingjob/", ["trainingjob/resnet"], id="the kind"),
        pytest.param("muster logs -n team-b ", [], id="another namespace"),
        pytest.param("muster history vgg", [], id="a name that no job has"),
    ],
)
async def test_job_names_are_completed(a_site: MakeSite, line: str, words: list[str]):
    async with a_site(crds.manifests()) as site:
        environment = {
            "KUBECONFIG": str(site.kubeconfig),
            "_MUSTER_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        found = await run(sys.executable, "-c", PROGRAM, environment=environment)
        assert (found.out.split(), found.complaint) == (words, "")


async def test_without_a_cluster_nothing_is_completed_and_nothing_is_said():
    environment = {"_MUSTER_COMPLETE": "complete_bash", "COMP_WORDS": "muster why ", "COMP_CWORD": "2"}
    found = await run(sys.executable, "-c", PROGRAM, environment=environment | {"KUBECONFIG": "/none"})
    assert (found.out.strip(), found.complaint) == ("", "")
