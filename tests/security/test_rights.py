"""The comparer itself, on recordings made by hand; and the manifests, as files."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster import permissions
from muster.crds import manifests
from shared.cluster.kinds import DEFINITIONS, NODES
from shared.cluster.scope import OPTED_IN
from shared.frameworks.trainer_schemas import CLUSTER_RUNTIMES
from shared.installation.permissions import PERMISSIONS, Need, Powers, necessary, needs
from shared.job.events.event import Author
from shared.job.steps import Effect
from tests.deploy import chart_files
from tests.docs import permissions_page
from tests.kit.recordings import NOTHING, allowed
from tests.kit.swarm import SWARMJOB, WITH_SWARMS
from tests.security.rights import calls, compare, granted, of_kinds, used

ROOT = Path(__file__).parents[2]
GET = Need("status", "get", "", "pods")
FINALIZERS = Need("scheduler", "update", "kai.alibabacloud.com", "trainingjobs/finalizers")
JOBS, SWARMS = ("kai.alibabacloud.com", "trainingjobs"), ("test.muster.dev", "swarmjobs")


def documents(variant: str) -> list[dict[str, Any]]:
    """What the files of a variant hold."""
    return objects(ROOT / "deploy" / "rbac" / variant)


def objects(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("*.yaml"))]
    return [document for text in texts for document in yaml.safe_load_all(text)]


def line(need: Need, *, code: int = 200, message: str = "", decision: str = "allow", role: str = "") -> str:
    """What the API server writes about one call."""
    resource, _, subresource = need.resource.partition("/")
    role = role or permissions.role(need.service)
    entry: dict[str, Any] = {
        "user": {"username": f"system:serviceaccount:muster:{need.service}"},
        "verb": need.verb,
        "requestURI": "/somewhere",
        "objectRef": {"apiGroup": need.group, "resource": resource, "subresource": subresource},
        "responseStatus": {"code": code, "message": message},
        "annotations": {"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": ""},
    }
    if decision == "allow":
        reason = f'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "{role}" to ServiceAccount "x/muster"'
        entry["annotations"]["authorization.k8s.io/reason"] = reason
    return json.dumps(entry)


def test_what_is_granted_and_used_is_least():
    found = compare(calls([line(GET), line(GET)]), [GET])
    assert (found.refused, found.elsewhere, found.missing, found.in_vain) == ((), (), frozenset(), frozenset())


def test_a_part_is_held_to_what_it_did_and_who_takes_over_to_all_that_it_may(tmp_path: Path):
    part = tmp_path / "audit.jsonl"
    part.write_text(line(Need("scheduler", "create", "", "pods")))
    assert allowed(part) == NOTHING
    part.write_text(line(Need("scheduler", "create", "", "nodes")))
    assert allowed(part).missing == {Need("scheduler", "create", "", "nodes")}
    part.write_text(line(Need("scheduler", "patch", "", "pods")))
    assert allowed(part).in_vain == {Need("scheduler", "patch", "", "services")}


@pytest.mark.parametrize("need", granted(documents("cluster")), ids=" ".join)
def test_every_right_is_in_vain_until_it_is_used_and_missing_until_it_is_granted(need: Need):
    assert compare(calls([]), [need]).in_vain == {need}
    assert compare(calls([line(need)]), [need]).in_vain == set()
    assert need in compare(calls([line(need)]), []).missing


def test_what_is_refused_is_told():
    found = compare(calls([line(GET, code=403, message="no", decision="forbid")]), [])
    assert found.missing == {GET}
    assert "403 no" in found.refused[0]


def test_a_server_that_does_not_know_its_roles_yet_tells_nothing_about_them():
    starting = [line(GET, code=403, message="no", decision="forbid"), line(GET)]
    assert compare(calls(starting), [GET]).refused == ()


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        pytest.param("cannot set an ownerRef on a resource you can't delete", True, id="admission asks for a right"),
        pytest.param("namespace team-a because it is being terminated", False, id="the namespace goes away"),
        pytest.param("exceeded quota: few", False, id="the quota is used up"),
    ],
)
def test_a_403_of_admission_counts_when_a_role_would_change_it(message: str, refused: bool):
    assert bool(compare(calls([line(GET, code=403, message=message)]), [GET]).refused) is refused


def test_another_role_that_allows_it_is_told():
    assert compare(calls([line(GET, role="cluster-admin")]), [GET]).elsewhere


def test_a_call_that_a_busy_server_turned_away_tells_nothing():
    turned_away = {**json.loads(line(GET, code=429)), "annotations": {}}
    assert list(calls([json.dumps(turned_away)])) == []
    # One that was served without a role's leave is told of all the same.
    served = {**json.loads(line(GET)), "annotations": {}}
    assert compare(calls([json.dumps(served)]), [GET]).elsewhere


def test_what_everybody_may_do_needs_no_rule():
    asking = Need("status", "create", "authorization.k8s.io", "selfsubjectaccessreviews")
    assert list(calls([line(asking, role="system:basic-user")])) == []


def test_other_users_do_not_count():
    assert list(calls([line(GET)], namespace="elsewhere")) == []


def test_subresources_are_rights_of_their_own():
    status = Need("status", "patch", "kai.alibabacloud.com", "trainingjobs/status")
    assert [call.need for call in calls([line(status)])] == [status]


def test_who_sets_an_owner_needs_what_admission_asks():
    creation, template = Need("scheduler", "create", "", "pods"), Need("scheduler", "get", *JOBS)
    made = [line(template), line(creation)]
    assert compare(calls(made), [template, creation]).missing == {FINALIZERS}
    assert compare(calls(made), [template, creation, FINALIZERS]).in_vain == set()


def test_an_owner_is_of_a_kind_that_was_used():
    creation, template = Need("scheduler", "create", "", "pods"), Need("scheduler", "get", *SWARMS)
    recording = [*calls([line(template), line(creation)])]
    assert used(recording, WITH_SWARMS) == [SWARMJOB]
    found = compare(recording, [template, creation], WITH_SWARMS)
    assert {(need.group, need.resource) for need in found.missing} == {(SWARMS[0], "swarmjobs/finalizers")}


def test_only_what_has_hosts_files_is_an_owner_to_the_scaler():
    creation = Need("scaler", "create", "", "configmaps")
    templates = [Need("scheduler", "get", *place) for place in (JOBS, SWARMS)]
    found = compare(calls([*map(line, templates), line(creation)]), [*templates, creation], WITH_SWARMS)
    assert found.missing == {FINALIZERS._replace(service="scaler")}


class TestKindByKind:
    @pytest.mark.parametrize("service", permissions.SERVICE_ACCOUNTS)
    def test_a_kind_adds_what_is_about_its_own_jobs_and_nothing_else(self, service: Author):
        more = set(needs(service, kinds=WITH_SWARMS)) - set(needs(service))
        assert more == of_kinds(more, [SWARMJOB])
        assert of_kinds(needs(service, kinds=WITH_SWARMS), [SWARMJOB]) == more
        # It has no hosts files: the scaler makes nothing that such a job owns.
        assert bool(more) == (service != "scaler")

    @pytest.mark.parametrize("service", permissions.SERVICE_ACCOUNTS)
    def test_without_training_jobs_nothing_is_needed_of_requests(self, service: Author):
        found = necessary(service, [SWARMJOB])
        # A kind of any framework may have an autoscaler.
        assert {need.group for need in found} <= {"", SWARMS[0], "autoscaling"}

    def test_what_is_printed_has_the_kinds_of_other_packages_too(self):
        text = permissions.render(kinds=WITH_SWARMS)["status.yaml"]
        assert "swarmjobs/status" in text
        assert "swarmjobs" not in permissions.render()["status.yaml"]


@pytest.mark.parametrize(("variant", "namespace"), [("cluster", ""), ("namespace", chart_files.JOBS)])
def test_the_folders_hold_what_the_source_says(variant: str, namespace: str):
    folder = ROOT / "deploy" / "rbac" / variant
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert written == permissions.render(namespace), "run `make rbac` and review the diff"


def test_the_chart_has_the_rules_of_the_table():
    assert (ROOT / chart_files.CHART).read_text() == chart_files.of_chart(), "run `make rbac` and review the diff"


def test_the_kustomize_base_has_the_rules_of_the_table():
    # `tests/deploy/test_chart.py` compares the whole base with the chart, and skips where helm is missing.
    base = objects(ROOT / "deploy" / "kustomize" / "base")
    written = {found["metadata"]["name"]: single(found["rules"]) for found in base if found["kind"].endswith("Role")}
    powers = Powers(namespaces=OPTED_IN)
    wanted = {f"muster-{each}": permissions.rules(each, powers=powers) for each in permissions.SERVICE_ACCOUNTS}
    wanted["muster-setup"] = chart_files.setup_rules()
    anchor = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["muster-anchor"]}
    wanted["muster-anchor"] = [anchor | {"verbs": ["get", "patch"]}]
    assert written == {name: single(rules) for name, rules in wanted.items()}, "run `make chart` and review the diff"


def single(rules: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    """The rights of rules, one by one."""
    return {
        (group, resource, verb, *rule.get("resourceNames", ()))
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_page_holds_what_the_source_says():
    written = (ROOT / "docs" / "permissions.md").read_text()
    assert written == permissions_page.page(), "run `make pages` and review the diff"


def test_both_variants_grant_the_same_accounts_what_their_scope_has():
    cluster, namespace = granted(documents("cluster")), granted(documents("namespace"))
    for scope, given in (("", cluster), (chart_files.JOBS, namespace)):
        assert set(given) == {need for service in permissions.SERVICE_ACCOUNTS for need in needs(service, scope)}
    of_no_namespace = (NODES.plural, DEFINITIONS.plural, CLUSTER_RUNTIMES.plural)
    assert [need for need in cluster if need.resource not in of_no_namespace] == namespace

    def bound(variant: str) -> list[tuple[str, str]]:
        bindings = [found for found in documents(variant) if found["kind"].endswith("RoleBinding")]
        return [(found["roleRef"]["name"], found["subjects"][0]["name"]) for found in bindings]

    accounts = sorted(permissions.SERVICE_ACCOUNTS)
    assert bound("cluster") == bound("namespace") == [(f"muster:{name}", name) for name in accounts]


@pytest.mark.parametrize("service", permissions.SERVICE_ACCOUNTS)
def test_a_service_begins_without_what_it_can_do_without(service: Author):
    group, runtimes = CLUSTER_RUNTIMES.group, CLUSTER_RUNTIMES.plural
    spared = {
        "watcher": [
            *(Need(service, verb, "", "nodes") for verb in ("list", "watch")),
            *(Need(service, verb, group, runtimes) for verb in ("list", "watch")),
        ],
        "scheduler": [Need(service, "get", group, runtimes)],
        "scaler": [Need(service, verb, "", "pods/exec") for verb in ("get", "create")],
    }
    definitions = Need(service, "get", DEFINITIONS.group, DEFINITIONS.plural)
    asked = [Need("watcher", "get", "", "namespaces"), Need("watcher", "list", "", "events")]
    asked = asked if service == "watcher" else []
    assert {*needs(service)}.difference(necessary(service)) == {*spared.get(service, []), *asked, definitions}
    of_the_cluster = spared.get(service, []) if service != "scaler" else []
    assert [need for need in needs(service) if need not in needs(service, "team-a")] == [*of_the_cluster, definitions]


def test_a_set_up_may_make_definitions_and_change_ours_and_nothing_else():
    makes, changes = chart_files.setup_rules()
    definitions = {"apiGroups": [DEFINITIONS.group], "resources": [DEFINITIONS.plural]}
    assert makes == {**definitions, "verbs": ["create"]}
    names = sorted(each["metadata"]["name"] for each in manifests())
    assert changes == {**definitions, "resourceNames": names, "verbs": ["get", "patch"]}


def test_no_right_is_a_wildcard_or_given_twice():
    every = granted(documents("cluster"))
    assert not [need for need in every if "*" in need]
    assert len(every) == len(set(every))


def test_nothing_of_the_namespace_variant_reaches_beyond_it():
    found = documents("namespace")
    assert {document["kind"] for document in found} == {"ServiceAccount", "Role", "RoleBinding"}
    account, role, binding = permissions.manifests("watcher", "team-a", home="away")
    places = [document["metadata"]["namespace"] for document in (account, role, binding)]
    assert places == ["away", "team-a", "team-a"]
    assert [subject["namespace"] for subject in binding["subjects"]] == ["away"]


@pytest.mark.parametrize("service", ["scheduler", "scaler", "status"])
def test_every_effect_names_the_rights_it_needs(service: str):
    module = vars(import_module(f"services.{service}.core.effects"))
    types = [found for found in module.values() if isinstance(found, type) and issubclass(found, Effect)]
    effects = {found.__name__ for found in types if not found.__subclasses__()}
    named = " ".join(permission.call for permission in PERMISSIONS if permission.service == service)
    assert effects
    assert [effect for effect in effects if f"`{effect}`" not in named] == []


@pytest.mark.parametrize("service", permissions.SERVICE_ACCOUNTS)
def test_without_keys_no_right_on_secrets_is_needed_or_given(service: Author):
    less = (
        {Need("scheduler", verb, "", "secrets") for verb in ("create", "delete")} if service == "scheduler" else set()
    )
    assert {*needs(service)} - {*needs(service, powers=Powers(keys=False))} == less
    assert {*necessary(service)} - {*necessary(service, powers=Powers(keys=False))} == less
    assert "secrets" not in "".join(permissions.render(powers=Powers(keys=False), with_policies=False).values())


def test_with_a_selector_the_watcher_does_not_begin_without_the_right_to_watch_namespaces():
    selecting = {Need("watcher", verb, "", "namespaces") for verb in ("list", "watch")}
    for service in permissions.SERVICE_ACCOUNTS:
        more = {*necessary(service, powers=Powers(namespaces=OPTED_IN))} - {*necessary(service)}
        assert more == (selecting if service == "watcher" else set())


class TestTakingOver:
    """What is only needed while another operator's jobs are taken over is granted and asked for only then."""

    MORE = frozenset(Need("scheduler", "patch", "", kind) for kind in ("pods", "services"))

    @pytest.mark.parametrize("service", permissions.SERVICE_ACCOUNTS)
    def test_it_is_asked_for_and_granted_together(self, service: Author):
        more = self.MORE if service == "scheduler" else set()
        assert {*needs(service, powers=Powers(taking_over=True))} - {*needs(service)} == more
        assert {*necessary(service, powers=Powers(taking_over=True))} - {*necessary(service)} == more

    def test_the_folders_do_not_grant_it(self):
        assert not self.MORE & {*granted(documents("cluster"))}
        texts = permissions.render(powers=Powers(taking_over=True))
        printed = [document for text in texts.values() for document in yaml.safe_load_all(text)]
        assert {*granted(printed)} >= self.MORE
