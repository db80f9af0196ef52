"""What a service says of itself to whoever asks, as JSON; read tolerantly, for it may be another release's."""

import msgspec


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Of one service in one process; every field may be missing in that of another release."""

    service: str = ""
    version: str = ""
    """Its release."""
    ready: bool = False
    """False while it waits for what it needs, folds up to the log's end, or cannot read or append."""
    owner: bool = False
    position: int = 0
    jobs: int = 0
    held: dict[str, str] = {}
    """The jobs that it does not act on, and why."""
    trouble: str = ""
    warnings: tuple[str, ...] = ()


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """Of several services in one process."""

    ready: bool = False
    services: tuple[Report, ...] = ()


def read(body: bytes) -> tuple[Report, ...]:
    """One or several.  Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(body, type=Reports).services or (msgspec.json.decode(body, type=Report),)
