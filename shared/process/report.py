"""The JSON with which a service answers probes; readers tolerate that of another release."""

import msgspec


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one service in one process; another release may leave out any field."""

    service: str = ""
    version: str = ""
    """Its release."""
    ready: bool = False
    """False while the service waits for the log or the cluster, still folds the log, or cannot read or append."""
    owner: bool = False
    position: int = 0
    jobs: int = 0
    held: dict[str, str] = {}
    """The jobs that the service does not act on, and why; without names, how many for which reason."""
    trouble: str = ""
    warnings: tuple[str, ...] = ()


class Reports(msgspec.Struct, frozen=True, kw_only=True):
    """The reports of all services in one process."""

    ready: bool = False
    services: tuple[Report, ...] = ()


def read(body: bytes) -> tuple[Report, ...]:
    """The reports in an answer, one or several.  Raises one of `MALFORMED`."""
    return msgspec.json.decode(body, type=Reports).services or (msgspec.json.decode(body, type=Report),)
