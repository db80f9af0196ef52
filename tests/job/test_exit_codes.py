"""Which exits `restartPolicy: ExitCode` retries.

What follows for workers is in `tests/scheduler/test_replacing.py`, for launchers in `tests/status/test_attempts.py`.
"""

from shared.job.policies import retries
from shared.job.spec import Handling
from tests.kit.builders import a_spec

A_KIND = a_spec(2)


def test_an_exit_by_itself_is_final_one_by_a_signal_is_retried_and_so_is_an_unknown_one():
    for code in (None, *range(1, 256)):
        by_itself = code is not None and code < 128
        assert (retries.retryable(code), retries.is_final(A_KIND, code, "Error")) == (not by_itself, by_itself), code


def test_a_kind_for_which_out_of_memory_is_final_retries_every_other_signal():
    kind = a_spec(2, handling=Handling(out_of_memory_is_final=True))
    assert retries.is_final(kind, 137, "OOMKilled")
    assert not retries.is_final(kind, 137, "Error")
