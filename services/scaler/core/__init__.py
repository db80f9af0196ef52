"""The scaler's rules: who is in the hosts files, and how a scale request is accepted, carried out and ended.  Pure."""

import math
from datetime import timedelta
from typing import Self

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    drain_seconds: int = 10
    """Seconds that leaving workers get after the hosts files changed, at most half of the request's timeout.

    Slow frameworks need more of them to finish with a worker.
    """
    commands: bool = True
    """False: no command runs in a launcher, so that requests with scripts are rejected and drains take their time."""

    @classmethod
    def of(cls, drain: timedelta, *, commands: bool) -> Self:
        return cls(drain_seconds=math.ceil(drain.total_seconds()), commands=commands)
