"""What this release cannot do is refused, not ignored."""

import msgspec
import pytest

from shared.job.unsupported import unsupported
from tests.kit.builders import a_spec


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        pytest.param({"suspend": True}, "spec.suspend", id="a pause"),
        pytest.param({"active_deadline_seconds": 60}, "spec.activeDeadlineSeconds", id="a deadline"),
        pytest.param({"ttl_seconds_after_finished": 0}, "spec.ttlSecondsAfterFinished", id="an expiry at once"),
    ],
)
def test_a_wish_that_would_not_be_fulfilled_is_a_problem(wish: dict[str, int], field: str):
    assert [problem.field for problem in unsupported(msgspec.structs.replace(a_spec(), **wish))] == [field]


def test_an_ordinary_spec_has_none():
    assert unsupported(a_spec()) == ()
