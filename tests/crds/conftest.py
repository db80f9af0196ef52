import asyncio
from collections.abc import AsyncIterator

import pytest

from devcluster.controlplane import ControlPlane
from muster.crds import render
from tests.crds.admission import KINDS
from tests.crds.judges import Embedded, Judge, real
from tests.crds.kubectl import install


@pytest.fixture(scope="session")
def installed(control_plane: ControlPlane) -> ControlPlane:
    """The real control plane with our definitions, and those of frameworks that it does not know."""
    more = render(KINDS)
    asyncio.run(install(control_plane, *(more[name] for name in more.keys() - render().keys())))
    return control_plane


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def judged_by(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The server behind the judge; the embedded one's validation needs none."""
    # Not an async fixture: the shared server is started by a loop of its own, before the test's.
    return None if request.param == "embedded" else request.getfixturevalue("installed")


@pytest.fixture
async def judge(judged_by: ControlPlane | None) -> AsyncIterator[Judge]:
    """Each judge in turn."""
    if judged_by is None:
        yield Embedded()
        return
    async with real(judged_by) as found:
        yield found
