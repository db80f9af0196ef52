"""Findings, how they are come by, and their output: lines for people, one document for programs."""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from muster.permissions import HOME
from shared.cluster.access import pod_namespace
from shared.errors import Refused, Trouble

Status = Literal["ok", "warn", "fail", "unknown"]

SCHEMA = "muster.dev/doctor/v1"
"""The schema of the document; raised if a field is removed or changes its meaning."""

GROUPS = ("versions", "packages", "definitions", "rights", "policies", "log", "services", "jobs", "clock")
"""Checks are named `<group>.<what>`; findings are shown in this order."""

WORDS: dict[Status, str] = {"ok": "ok", "warn": "warn", "fail": "FAIL", "unknown": "?"}
_WIDTH = max(map(len, WORDS.values()))
_INDENT = " " * (2 + _WIDTH + 2)

MOST_NAMES = 10
"""The most names in one line; of more it gives the number."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: str
    status: Status
    message: str
    remedy: str = ""
    """What to do; empty if nothing is wrong."""


def ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", message)


def warn(check: str, message: str, remedy: str = "") -> Finding:
    return Finding(check, "warn", message, remedy)


def fail(check: str, message: str, remedy: str = "") -> Finding:
    return Finding(check, "fail", message, remedy)


def unknown(check: str, message: str, remedy: str = "") -> Finding:
    return Finding(check, "unknown", message, remedy)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The findings by group, within a group in the order found."""
    return sorted(findings, key=lambda finding: GROUPS.index(_group(finding)))


def is_well(findings: Iterable[Finding]) -> bool:
    """True if no check fails; unknown results and warnings are no failures."""
    return all(finding.status != "fail" for finding in findings)


def text(findings: Sequence[Finding]) -> str:
    """The text for people: a heading for each group, a line for each finding, its remedy below, and a summary."""
    lines: list[str] = []
    group = ""
    for finding in findings:
        if _group(finding) != group:
            group = _group(finding)
            lines.append(group)
        lines.append(f"  {WORDS[finding.status]:<{_WIDTH}}  {_one_line(finding.message)}")
        if finding.remedy:
            lines.append(f"{_INDENT}{_one_line(finding.remedy)}")
    return "\n".join([*lines, _summary(findings)])


def document(findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "ok": is_well(findings),
        "summary": _counts(findings),
        "findings": [msgspec.structs.asdict(finding) for finding in findings],
    }


def names(these: Sequence[str]) -> str:
    """The names, separated by commas, at most `MOST_NAMES`."""
    more = len(these) - MOST_NAMES
    return ", ".join(these[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _summary(findings: Iterable[Finding]) -> str:
    counts = _counts(findings)
    wrong = [f"{count} {WORDS[status]}" for status, count in counts.items() if count and status != "ok"]
    return f"{counts['ok']} ok" + (f", {', '.join(wrong)}" if wrong else ", nothing is wrong")


def _counts(findings: Iterable[Finding]) -> dict[Status, int]:
    counts: dict[Status, int] = dict.fromkeys(WORDS, 0)
    for finding in findings:
        counts[finding.status] += 1
    return counts


def _group(finding: Finding) -> str:
    return finding.check.partition(".")[0]


def _one_line(words: str) -> str:
    return " ".join(words.split())


class Choices(NamedTuple):
    """The options of the command."""

    home: str
    """The namespace of the installation."""
    release: str = ""
    """The name of the Helm release, if the namespace has several."""
    timeout: float = 10.0
    """Seconds that each server has for each part."""


def home() -> str:
    """The default of the installation's namespace."""
    return pod_namespace() or HOME


async def part(check: str, whose: str, work: Awaitable[list[Finding]], seconds: float) -> list[Finding]:
    """The findings of `work`, or one line that says why there are none; `whose` names the server that is asked."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        words = f"{whose} has not answered within {seconds:g} s"
        return [fail(check, words, "look at that server, or give it more time with --timeout")]
    except Trouble as trouble:
        return [troubled(check, trouble)]


def troubled(check: str, trouble: Trouble) -> Finding:
    """The finding about a check that failed: unknown if a right is missing, otherwise a failure."""
    if isinstance(trouble, Refused) and trouble.reason == "Forbidden":
        return unknown(check, str(trouble), "ask a person who may look, or for the right to look")
    return fail(check, str(trouble))
