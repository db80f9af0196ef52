"""Findings about servers: versions, clocks and certificates.  Pure.

No decision of Muster reads a clock, so a difference harms no job; people see it when they compare times.  An expired
certificate ends no open connection, but refuses every new one: it is not noticed before a restart.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from muster.doctor.findings import Finding, names, ok, unknown, warn
from muster.doctor.findings import fail as wrong
from shared.eventlog.tls import Life

OLDEST_KUBERNETES = (1, 29)
"""The first version with stable CEL rules, which the definitions use; their field paths came with 1.28."""
TRIED_KUBERNETES = ((1, 36), (1, 37))
"""The version of the tests, and the newest one that they ran on; `docs/compatibility.md` says which tests."""

OLDEST_NATS = (2, 11)
"""The first version with a time to live for each message, which every lease needs."""

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")

Version = tuple[int, int]


def numbers(words: str) -> Version | None:
    """Major and minor version; None if the words begin with none."""
    found = _NUMBERS.match(words)
    return (int(found[1]), int(found[2])) if found else None


def kubernetes(server: str) -> Finding:
    """The finding about the version in `/version`."""
    check, known = "versions.kubernetes", numbers(server)
    if known is None:
        return unknown(check, f"Kubernetes: {server!r} is no version that can be read")
    if known < OLDEST_KUBERNETES:
        return wrong(
            check,
            f"Kubernetes {server} is older than {text(OLDEST_KUBERNETES)}, and may not hold to the rules of the "
            "definitions",
            f"upgrade the cluster to Kubernetes {text(OLDEST_KUBERNETES)} or newer",
        )
    if known in TRIED_KUBERNETES:
        return ok(check, f"Kubernetes {server}")
    on = " and ".join(map(text, TRIED_KUBERNETES))
    tried = f"this release needs {text(OLDEST_KUBERNETES)} or newer and was tried on {on}"
    words = f"Kubernetes {server}; {tried}"
    return (
        warn(check, words, "look for a newer release of Muster") if known > TRIED_KUBERNETES[-1] else ok(check, words)
    )


def nats(server: str) -> Finding:
    """The finding about the version in the server's INFO."""
    check, known = "versions.nats", numbers(server)
    if known is None:
        return unknown(check, f"NATS: {server!r} is no version that can be read")
    if known < OLDEST_NATS:
        return wrong(
            check,
            f"NATS server {server} is older than {text(OLDEST_NATS)}, and cannot let a single message run out, "
            "which every lease needs",
            f"upgrade the NATS server to {text(OLDEST_NATS)} or newer",
        )
    return ok(check, f"NATS server {server}")


def services(versions: Iterable[tuple[str, str]], own: str) -> list[Finding]:
    """The findings about the versions of pods, by name; `own` is this command's.  An unknown version is empty."""
    check = "versions.services"
    by_version: dict[str, list[str]] = {}
    for pod, each in versions:
        by_version.setdefault(each, []).append(pod)
    silent = by_version.pop("", [])
    if not by_version:
        return [unknown(check, f"services: {names(silent)} do not say which version they are")] if silent else []
    told = "; ".join(f"{each}: {names(pods)}" for each, pods in sorted(by_version.items()))
    if len(by_version) > 1:
        remedy = "finish the roll-out; an older service holds every job that has an event of a newer one"
        return [warn(check, f"services run in several versions ({told})", remedy)]
    if own not in by_version:
        return [warn(check, f"services run {told}, and this command is {own}", "use the command of that version")]
    return [ok(check, f"services run {own}, as this command")]


def text(version: Version) -> str:
    """`1.30`."""
    return ".".join(map(str, version))


MOST = timedelta(seconds=5)
"""The largest difference without a warning."""


class Reading(msgspec.Struct, frozen=True):
    """The time of a server's clock, between two times of this machine's."""

    server: datetime
    asked: datetime
    answered: datetime
    whole_seconds: bool = False
    """True if the server's time has no fractions of a second, as an HTTP date."""


def difference(check: str, whose: str, reading: Reading) -> Finding:
    """The difference of the clocks, within the uncertainty of the request's duration."""
    half = (reading.answered - reading.asked) / 2
    rest = timedelta(seconds=0.5) if reading.whole_seconds else timedelta()
    apart, unsure = reading.server + rest - (reading.asked + half), half + rest
    told = f"± {_seconds(unsure)} s"
    if abs(apart) - unsure <= MOST:
        return ok(check, f"the clock here and that of {whose} agree within {_seconds(abs(apart) + unsure)} s")
    direction = "ahead of" if apart > timedelta() else "behind"
    return warn(
        check,
        f"the clock of {whose} is {_seconds(abs(apart))} s ({told}) {direction} the one here",
        "have both keep time (chrony, systemd-timesyncd); no decision depends on it, but times that people read do",
    )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.1f}"


SOON = timedelta(days=14)
LAST_PART = 4
"""A certificate is reported in the last quarter of its validity: an automatic renewal comes earlier."""


def lasting(whose: str, life: Life, now: datetime) -> Finding:
    """The finding about a certificate's remaining time."""
    left = life.ends - now
    words = f"{whose} is good until {life.ends:%Y-%m-%d %H:%M} UTC"
    if left > min(SOON, (life.ends - life.begins) / LAST_PART):
        return ok("log.certificates", words)
    remedy = "renew it; servers and services read the files again by themselves"
    return warn("log.certificates", f"{words}, {left / timedelta(days=1):.1f} days", remedy)
