"""Every process is killed and some stand still, under load, on the real control plane: nothing is lost or doubled.

A short one of what `make ha` does for long; `SEED=n` chooses another order.
"""

import os
from pathlib import Path

import pytest

from tests.ha.run import run
from tests.ha.strikes import APISERVER, Strike, plan
from tests.kit.controlplane import require_control_plane

pytestmark = [pytest.mark.real, pytest.mark.e2e]

SEED = int(os.environ.get("SEED", "0"))
KILLS, PAUSES, STOPS = 11, 2, 1
"""Everybody is killed once: two replicas of four services, two servers of the log and who keeps the leases.

Who leads the log is asked to stop as well, and the API server stands still at the end."""


async def test_with_any_process_killed_or_stopped_nothing_is_lost_or_doubled(tmp_path: Path):
    require_control_plane("fakenodes")
    strikes = [*plan(SEED, KILLS, PAUSES, STOPS), Strike("pause", APISERVER, "only")]
    outcome = await run(tmp_path, strikes, seed=SEED)
    assert not outcome.faults, "\n".join(outcome.faults)
    # It was no dry run.
    assert len(outcome.struck) == len(strikes)
    assert len(outcome.told) > outcome.events // 2
    assert outcome.compared
    assert outcome.scaled
    assert len(outcome.late) == PAUSES
