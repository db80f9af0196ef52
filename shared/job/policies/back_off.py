"""The waits of a job: before pods and attempts that failed begin again, and before refused effects are tried again.

Pure.  Both double with each failure, five minutes at most; only their first waits differ.
"""

from shared.backoff import doubled

FIRST_START_SECONDS = 10
"""The kubelet's first wait for containers that crash; pods and attempts that failed begin again after it."""

FIRST_EFFECT_SECONDS = 1
"""The wait after the first refusal of an effect."""

LONGEST_SECONDS = 300
"""The kubelet's longest wait for containers that crash."""


def before_start(failures: int) -> int:
    """Seconds before the next pod or attempt after so many failures: 0, then 10, 20, ... 300."""
    return doubled(FIRST_START_SECONDS, failures, LONGEST_SECONDS)


def before_effect(refusals: int) -> int:
    """Seconds before the next try after so many refusals in a row: 1, 2, 4, ... 300."""
    return doubled(FIRST_EFFECT_SECONDS, refusals, LONGEST_SECONDS)
