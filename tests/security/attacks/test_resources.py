"""Attacks on memory, connections, queues and the log, a few seconds of the first of each kind.

`make under-attack` takes minutes, and all of them.  Real processes on a real log's server: what each may hold, and how
long others may wait, says `faults`.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.security.resources.attacks import PAGES, PODS, SUBSCRIBERS, TENANTS, VIEWERS, families
from tests.security.resources.rig import Figures, Rig, faults

SECONDS = 3.0
SLOWEST_SECONDS = 2.0
"""One for a question about the log and one for an append while subscribers attack: a busy machine takes longer."""

pytestmark = [pytest.mark.e2e, pytest.mark.nats, pytest.mark.asyncio(loop_scope="module")]


class Quiet(NamedTuple):
    rig: Rig
    figures: Figures
    """Those of an installation that nobody attacks."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def quiet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Quiet]:
    async with Rig(tmp_path_factory.mktemp("resources")) as rig:
        yield Quiet(rig, await rig.measure(SECONDS))


@pytest.mark.parametrize(
    "attacker",
    [
        pytest.param(attacker, marks=pytest.mark.attack(attacker, "memory, connections, queues, the time of others"))
        # Tenants last: their requests stay in the history that viewers ask about.
        for attacker in (PODS, SUBSCRIBERS, VIEWERS, PAGES, TENANTS)
    ],
)
async def test_an_attack_on_resources_takes_none_from_others(quiet: Quiet, attacker: str):
    rig, figures = quiet
    kinds = [name for name, family in families().items() if family.attacker == attacker]
    found = await rig.attacked([(name, 0) for name in kinds], SECONDS)
    await rig.recover(figures)
    assert attacker != SUBSCRIBERS or found.append < SLOWEST_SECONDS
    # Beside other tests a wait says more about those: `make under-attack` judges waits, where nothing else runs.
    assert faults(figures, found._replace(job=figures.job, question=figures.question)) == [], kinds
