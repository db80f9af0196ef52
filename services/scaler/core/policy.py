"""What an administrator may set about scaling, as the core receives it.  Pure."""

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    drain_seconds: int = 10
    """How long leaving workers get after the hosts files changed.

    Longer lets a slow framework let go of them; never more than half of the request's own timeout.
    """
