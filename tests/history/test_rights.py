"""The rights that `muster rbac --history` prints: those of the service, and those of its readers."""

import yaml
from typer.testing import CliRunner

from muster import permissions
from muster.commands import application
from shared.history_api import GROUP, PARTS, PLURAL


def printed(*words: str) -> list[dict[str, object]]:
    ended = CliRunner().invoke(application(), ["rbac", *words])
    assert ended.exit_code == 0, ended.output
    return [document for document in yaml.safe_load_all(ended.output) if document]


def test_the_rights_are_printed_when_they_are_asked_for():
    assert not any("history" in str(document["metadata"]) for document in printed())
    assert [each for each in printed("--history") if each not in printed()] == permissions.history_rights("muster")


def test_the_service_may_ask_for_rights_and_nothing_else():
    assert permissions.HISTORY_RULES == [
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
    ]


def test_who_may_view_a_namespace_may_read_every_part_of_a_history_and_change_none():
    allowed = {
        (group, resource, verb)
        for rule in permissions.VIEW_RULES
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    parts = {(GROUP, f"{PLURAL}/{part}", "get") for part in PARTS}
    assert allowed == {*((GROUP, PLURAL, verb) for verb in ("get", "list", "watch")), *parts}
    [people] = permissions.PEOPLE_RULES
    assert people == {"apiGroups": [GROUP], "resources": [f"{PLURAL}/people"], "verbs": ["get"]}


def test_one_namespace_has_no_such_rights():
    refused = CliRunner().invoke(application(), ["rbac", "--history", "-n", "team-a"])
    assert refused.exit_code == 2
    assert "whole cluster" in refused.output
