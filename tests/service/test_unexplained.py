"""A decision whose cause cannot be told is recorded all the same, and stops no job."""

import pytest

from shared.job.events.status import JobRunning
from tests.kit.virtual_time import in_virtual_time
from tests.kit.world import World


def test_a_decision_without_a_cause_is_recorded(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> int:
        raise AssertionError("no cause")

    monkeypatch.setattr("shared.runtime.appends.because", fails)

    @in_virtual_time
    async def story() -> None:
        async with World() as world:
            await world.trains(workers=1)
            world.exit_codes["resnet-launcher"] = 0
            await world.phase("Succeeded")
            assert world.count(JobRunning.__struct_config__.tag) == 1

    story()
