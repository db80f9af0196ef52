"""Makes a failing plan smaller while it still fails, and prints it as a test."""

from collections.abc import Callable

import msgspec

from tests.simulation.network import Rates
from tests.simulation.plan import Plan
from tests.simulation.platform import Workload

MOST_TRIES = 300

replace = msgspec.structs.replace


def shrunk(plan: Plan, fails: Callable[[Plan], bool], tries: int = MOST_TRIES) -> Plan:
    """A plan with as few steps and as good a network as still `fails`; found with at most so many runs."""
    left = tries

    def still(smaller: Plan) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and fails(smaller)

    for quiet in (
        replace(plan, to_cluster=Rates(), to_log=Rates()),
        replace(plan, to_cluster=Rates()),
        replace(plan, to_log=Rates()),
        replace(plan, workload=Workload(hang=100, fail=0, unready=0)),
    ):
        if quiet != plan and still(quiet):
            plan = quiet
            break
    size = len(plan.steps) // 2
    while size and left > 0:
        at = 0
        while at < len(plan.steps):
            smaller = replace(plan, steps=plan.steps[:at] + plan.steps[at + size :])
            if still(smaller):
                plan = smaller
            else:
                at += size
        size //= 2
    return plan


def as_test(plan: Plan, faults: tuple[str, ...]) -> str:
    """The source of a test that fails as this plan does."""
    said = "\n".join(f"    # {fault}" for fault in faults[:3])
    steps = "\n".join(f"            {_source(step)}," for step in plan.steps)
    named = "\n".join(
        f"        {name}={_source(value)},"
        for name in ("to_cluster", "to_log", "workload")
        if (value := getattr(plan, name)) != type(value)()
    )
    if plan.strikes:
        strikes = ", ".join(map(_source, plan.strikes))
        named = f"        strikes=({strikes},),\n{named}"
    for name in ("room", "reports", "seal_after", "archive"):
        if (value := getattr(plan, name)) not in (0, None):
            named = f"        {name}={value},\n{named}"
    return (
        f"def test_seed_{plan.seed}():\n{said}\n    plan = Plan(\n        seed={plan.seed},\n        steps=(\n{steps}\n"
        f"        ),\n{named}\n    )\n    assert not simulate(plan).faults\n"
    )


def _source(value: msgspec.Struct) -> str:
    """A struct as it would be written, without fields that have their defaults."""
    fields = [
        f"{field.name}={found!r}"
        for field in msgspec.structs.fields(value)
        if (found := getattr(value, field.name)) != field.default
        and not (field.default is msgspec.NODEFAULT and found == {})
    ]
    return f"{type(value).__name__}({', '.join(fields)})"
