"""Which exits `restartPolicy: ExitCode` retries.

What follows for workers is in `tests/scheduler/test_replacing.py`, for launchers in `tests/status/test_attempts.py`.
"""

import pytest

from shared.job.policies import retries
from shared.job.spec import Handling
from tests.kit.builders import a_spec

A_KIND = a_spec(2)


@pytest.mark.parametrize("code", range(1, 128))
def test_an_exit_by_itself_is_final(code: int):
    assert not retries.retryable(code)
    assert retries.is_final(A_KIND, code, "Error")


@pytest.mark.parametrize("code", [*range(128, 256), None])
def test_an_exit_by_a_signal_is_retried_and_so_is_an_unknown_one(code: int | None):
    assert retries.retryable(code)
    assert not retries.is_final(A_KIND, code, "Error")


def test_a_kind_for_which_out_of_memory_is_final_retries_every_other_signal():
    kind = a_spec(2, handling=Handling(out_of_memory_is_final=True))
    assert retries.is_final(kind, 137, "OOMKilled")
    assert not retries.is_final(kind, 137, "Error")
