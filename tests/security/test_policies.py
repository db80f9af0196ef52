"""The table of admission beside that of rights: each write that a role allows has a rule, and each rule a right."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from muster import permissions, policies
from muster.commands import application
from shared.frameworks.kinds import BUILT_IN
from shared.installation.admission import JOBS, RULES, closed_namespaces, refusal
from shared.installation.permissions import Powers, needs
from shared.job.events.event import Author

OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
ONLY_ASKED_ABOUT = ("DELETE kai.alibabacloud.com/scaleins", "DELETE kai.alibabacloud.com/scaleouts")
"""Rights that another admission plugin asks for; no service makes these calls."""


@pytest.mark.parametrize("service", permissions.SERVICE_ACCOUNTS)
def test_every_write_that_a_role_allows_has_a_rule_and_every_rule_a_right(service: Author) -> None:
    jobs = {(kind.resource.group, kind.resource.plural) for kind in BUILT_IN}
    allowed = set()
    for need in needs(service, powers=Powers(taking_over=True, kueue=True, gangs=True)):
        plural, _, subresource = need.resource.partition("/")
        if need.verb not in OPERATIONS or subresource == "finalizers":
            continue
        at = JOBS if (need.group, plural) in jobs else f"{need.group}/{plural}" if need.group else plural
        operation = "CONNECT" if subresource == "exec" else OPERATIONS[need.verb]
        allowed.add(f"{operation} {at}" + (f"/{subresource}" if subresource else ""))
    ruled = {call for rule in RULES if rule.service == service for call in rule.calls}
    assert ruled == allowed.difference(ONLY_ASKED_ABOUT)


def test_an_account_of_several_services_may_do_what_one_of_them_may() -> None:
    together = refusal(permissions.SERVICE_ACCOUNTS)
    assert {call for calls, _ in judged(together) for call in calls} == {call for rule in RULES for call in rule.calls}
    [update] = [told for calls, told in judged(refusal(("scheduler", "scaler"))) if calls == ["UPDATE pods"]]
    assert "variables.take_over" in update
    assert "muster.dev/hosts-version" in update


def judged(expression: str) -> list[tuple[list[str], str]]:
    """The calls of an expression of refusals, with what it says of them."""
    branches = expression.split("variables.call in ")[1:]
    return [(json.loads(calls), told) for calls, _, told in (branch.partition(" ? ") for branch in branches)]


@pytest.mark.parametrize(
    ("home", "scope", "closed"),
    [
        pytest.param("muster", "", True, id="the whole cluster"),
        pytest.param("muster", "team-a", True, id="another namespace"),
        pytest.param("team-a", "team-a", False, id="its own namespace alone"),
    ],
)
def test_the_namespace_of_an_installation_is_closed_unless_its_jobs_are_there(home: str, scope: str, closed: bool):
    assert (home in closed_namespaces(home, scope)) == closed


@pytest.mark.parametrize(
    ("words", "count"),
    [
        pytest.param([], 1, id="the whole cluster"),
        pytest.param(["--without-policies"], 0, id="left out"),
        pytest.param(["-n", "team-a"], 0, id="an administrator of a namespace"),
        pytest.param(["-n", "team-a", "--policies"], 1, id="as asked"),
        pytest.param(["--requesters"], 2, id="with the one for requesters"),
    ],
)
def test_the_command_prints_policies(words: list[str], count: int) -> None:
    printed = CliRunner().invoke(application(), ["rbac", *words]).output
    assert printed.count(f"kind: {policies.POLICY}\n") == printed.count(f"kind: {policies.BINDING}\n") == count


@pytest.mark.parametrize("words", [["-n", "Bad_NS"], ["--home", "a.b"], ["--home", ""], ["-n", "x" * 64]])
def test_the_command_prints_nothing_for_a_name_that_no_namespace_has(words: list[str]) -> None:
    refused = CliRunner().invoke(application(), ["rbac", *words])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "a namespace has 1 to 63 lower-case letters" in " ".join(refused.output.replace("│", " ").split())


def test_the_command_puts_no_account_among_the_pods_of_jobs() -> None:
    refused = CliRunner().invoke(application(), ["rbac", "-n", "team-a", "--home", "team-a"])
    assert refused.exit_code == 2
    assert "name a namespace without jobs: --home NAMESPACE" in " ".join(refused.output.replace("│", " ").split())
    printed = CliRunner().invoke(application(), ["rbac", "-n", "team-a", "--home", "away"]).output
    accounts = [found for found in yaml.safe_load_all(printed) if found["kind"] == "ServiceAccount"]
    assert {found["metadata"]["namespace"] for found in accounts} == {"away"}
