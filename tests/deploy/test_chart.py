"""What the chart renders: golden files, laws that hold for all of them, and what it refuses."""

import json
import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate
from typer.testing import CliRunner

from muster import permissions, policies
from muster.commands import application
from muster.permissions import HISTORY_ROLE, VIEW, history_rights
from muster.policies import spec_of_audit
from shared.cluster.scope import OPTED_IN
from shared.frameworks.kinds import BUILT_IN
from shared.frameworks.queueing import GROUP
from shared.installation.permissions import Powers
from tests.deploy import chart_files
from tests.deploy.charts import FOLDER, SETS, golden, linted, otherwise, rendered, require, rewriting
from tests.deploy.rendering import BASE, CHART, HISTORY, Document, NotRendered, base, documents, history, render

ROOT = Path(__file__).parents[2]
NAMES = re.compile("(^n|N)ame(space)?$")
"""Of keys that hold a name."""

OF_CHART = Powers(namespaces=OPTED_IN)


@pytest.fixture(autouse=True)
def helm() -> None:
    require()


@pytest.mark.parametrize("name", SETS)
def test_it_renders_what_was_reviewed(name: str) -> None:
    text = rendered(name) if name == "default" else otherwise(name)
    if rewriting():
        golden(name).write_text(text)
    assert text == golden(name).read_text(), "run `make chart` and review the diff"


def test_the_kustomize_base_is_the_chart() -> None:
    for folder, files in ((BASE, base()), (HISTORY, history())):
        written = {path.name: path.read_text() for path in folder.glob("*.yaml")}
        assert written == files, "run `make chart` and review the diff"


@pytest.mark.parametrize("name", SETS)
def test_lint_has_nothing_to_say(name: str) -> None:
    ended = linted("--values", str(FOLDER / "values" / f"{name}.yaml"))
    assert not ended.returncode, ended.stdout + ended.stderr


def test_a_role_of_the_chart_is_that_of_the_table() -> None:
    roles = {found["metadata"]["name"]: found["rules"] for found in of_kind("ClusterRole", "default")}
    for service in permissions.SERVICE_ACCOUNTS:
        assert rights(roles[f"muster-{service}"]) == rights(permissions.rules(service, powers=OF_CHART))


def test_the_history_service_is_there_when_it_is_asked_for() -> None:
    assert not of_kind("APIService", "default")
    assert not [each for each in of_kind("Deployment", "default") if "history" in each["metadata"]["name"]]
    [api], [secret] = of_kind("APIService", "everything"), of_kind("Secret", "everything", "training-history-tls")
    assert api["spec"]["caBundle"] == secret["data"]["ca.crt"]
    [service] = of_kind("Service", "everything", api["spec"]["service"]["name"])
    [deployment] = of_kind("Deployment", "everything", "training-history")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    [role] = of_kind("ClusterRole", "everything", "training-history")
    [view] = of_kind("ClusterRole", "everything", "training-view")
    table = {each["metadata"]["name"]: each for each in history_rights("muster") if each["kind"] == "ClusterRole"}
    assert (role["rules"], view["rules"]) == (
        table[HISTORY_ROLE]["rules"],
        table[VIEW]["rules"],
    )
    assert table[VIEW]["metadata"]["labels"].items() <= view["metadata"]["labels"].items()


def test_the_audit_service_has_a_token_a_certificate_and_no_right_in_the_cluster() -> None:
    made = documents(render("--set", "audit.enabled=true,audit.clusterIP=10.96.0.77"))
    ours = {each["kind"]: each for each in made if each["metadata"]["name"] == "muster-audit"}
    assert sorted(ours) == ["Deployment", "Service", "ServiceAccount"]
    assert ours["Service"]["spec"]["clusterIP"] == "10.96.0.77"
    pod = ours["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    [container] = pod["containers"]
    assert container["command"] == ["muster-audit"]
    assert {each["name"] for each in pod["volumes"]} >= {"audit-tls", "audit-token", "nats-users"}
    [token] = [each for each in made if each["metadata"]["name"] == "muster-audit-token"]
    assert len(b64decode(token["data"]["token"])) == 40
    policy, _ = (each for each in made if each["metadata"]["name"] == "muster-audit.muster.muster.dev")
    assert policy["spec"] == spec_of_audit(BUILT_IN)
    assert not [each for each in documents(render()) if each["metadata"]["name"].startswith("muster-audit")]


def test_the_page_has_a_certificate_no_credentials_and_who_reaches_it_is_named() -> None:
    made = documents(render("--set", "history.enabled=true,page.enabled=true"))
    ours = {each["kind"]: each for each in made if each["metadata"]["name"] == "muster-page"}
    assert sorted(ours) == ["ConfigMap", "Deployment", "NetworkPolicy", "Service", "ServiceAccount"]
    pod = ours["Deployment"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert {each["name"] for each in pod["volumes"]} == {"cluster", "page-tls", "tmp"}
    [container] = pod["containers"]
    assert container["command"] == ["muster-page"]
    assert not [each for each in container["env"] if "NATS" in each["name"]]
    config = yaml.safe_load(ours["ConfigMap"]["data"]["kubeconfig"])
    assert "users" not in config
    assert "user" not in config["contexts"][0]["context"]
    [health] = ours["NetworkPolicy"]["spec"]["ingress"]
    assert health["ports"] == [{"port": "health"}]
    [theirs] = of_kind("NetworkPolicy", "everything", "training-page")
    _, https = theirs["spec"]["ingress"]
    assert https == {"ports": [{"port": "https"}], "from": [{"podSelector": {"matchLabels": {"app": "login"}}}]}
    with pytest.raises(NotRendered, match=r"needs history\.enabled"):
        render("--set", "page.enabled=true")


def test_the_certificate_of_the_history_service_is_that_of_its_service() -> None:
    rendered_ = documents(render("--set", "history.enabled=true"))
    [secret] = [each for each in rendered_ if each["metadata"]["name"] == "muster-history-tls"]
    [api] = [each for each in rendered_ if each["kind"] == "APIService"]
    assert api["spec"]["caBundle"] == secret["data"]["ca.crt"]
    served = load_pem_x509_certificate(b64decode(secret["data"]["tls.crt"]))
    names = served.extensions.get_extension_for_class(SubjectAlternativeName).value
    assert names.get_values_for_type(DNSName) == ["muster-history.muster.svc"]
    served.verify_directly_issued_by(load_pem_x509_certificate(b64decode(secret["data"]["ca.crt"])))


def test_an_issuer_makes_the_certificate_of_the_history_service() -> None:
    made = documents(render("--set", "history.enabled=true,history.tls.issuerRef.name=internal"))
    [certificate] = [each for each in made if each["kind"] == "Certificate"]
    assert not [each for each in made if each["kind"] == "Secret" and "history-tls" in each["metadata"]["name"]]
    assert certificate["spec"]["dnsNames"] == ["muster-history.muster.svc"]
    [api] = [each for each in made if each["kind"] == "APIService"]
    assert "caBundle" not in api["spec"]
    named = f"muster/{certificate['spec']['secretName']}"
    assert api["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": named}
    [pod] = [
        each["spec"]["template"]["spec"]
        for each in made
        if each["metadata"]["name"] == "muster-history" and each["kind"] == "Deployment"
    ]
    assert certificate["spec"]["secretName"] in {
        volume.get("secret", {}).get("secretName") for volume in pod["volumes"]
    }


def test_without_commands_no_account_may_run_any() -> None:
    [role] = of_kind("ClusterRole", "everything", "training-scaler")
    assert rights(role["rules"]) == rights(permissions.rules("scaler", powers=Powers(commands=False)))
    assert not [right for right in rights(role["rules"]) if right[1] == "pods/exec"]
    [policy] = of_kind(policies.POLICY, "everything", "training.muster.muster.dev")
    assert {"name": "exec", "expression": "false"} in policy["spec"]["variables"]


def test_without_ssh_no_account_may_write_a_secret() -> None:
    [role] = of_kind("ClusterRole", "everything", "training-scheduler")
    assert rights(role["rules"]) == rights(
        permissions.rules("scheduler", powers=Powers(taking_over=True, keys=False, kueue=True))
    )
    assert not [right for right in rights(role["rules"]) if right[1] == "secrets"]
    [policy] = of_kind(policies.POLICY, "everything", "training.muster.muster.dev")
    assert {"name": "ssh", "expression": "false"} in policy["spec"]["variables"]


def test_the_rights_on_workloads_come_with_their_value_alone() -> None:
    for name, kueue in (("everything", True), ("default", False)):
        roles = [role for role in of_kind("ClusterRole", name) if role["metadata"]["name"].endswith("-scheduler")]
        found = [right for role in roles for right in rights(role["rules"]) if right[0] == GROUP]
        assert bool(found) == kueue
        policy = next(each for each in of_kind(policies.POLICY, name) if "requesters" not in each["metadata"]["name"])
        assert {"name": "kueue", "expression": str(kueue).lower()} in policy["spec"]["variables"]


@pytest.mark.parametrize("name", [*SETS, "the Kustomize base"])
@pytest.mark.parametrize("namespace", ["", chart_files.JOBS, "team-b"])
def test_what_the_command_prints_changes_nothing_that_the_chart_makes(name: str, namespace: str) -> None:
    texts = [rendered(name)] if name in SETS else [path.read_text() for path in BASE.glob("*.yaml")]
    made = {_identity(found): found for text in texts for found in documents(text) if "metadata" in found}
    printed = [found for text in permissions.render(namespace).values() for found in documents(text)]
    assert [found for found in printed if made.get(_identity(found), found) != found] == []


def _identity(found: dict[str, Any]) -> tuple[str, str, str]:
    metadata = found["metadata"]
    return found["kind"], metadata.get("namespace", ""), metadata["name"]


def test_a_policy_of_the_chart_is_that_of_the_table() -> None:
    made = {found["metadata"]["name"]: found["spec"] for found in of_kind(policies.POLICY, "default")}
    bindings = {found["metadata"]["name"]: found["spec"] for found in of_kind(policies.BINDING, "default")}
    wanted = policies.manifests(policies.accounts("muster-"), "muster", powers=OF_CHART)
    assert made == {found["metadata"]["name"]: found["spec"] for found in wanted if found["kind"] == policies.POLICY}
    assert bindings == {
        found["metadata"]["name"]: found["spec"] for found in wanted if found["kind"] != policies.POLICY
    }
    [one] = of_kind(policies.POLICY, "all-in-one")
    assert (
        one["spec"]
        == policies.manifests({"muster": permissions.SERVICE_ACCOUNTS}, "muster", powers=OF_CHART)[0]["spec"]
    )


def test_the_policy_for_requesters_is_that_of_the_table() -> None:
    text = render("--set", "requesters.enabled=true")
    made = [found for found in documents(text) if found["metadata"]["name"] == "muster-requesters.muster.muster.dev"]
    assert [found["spec"] for found in made] == [
        wanted["spec"] | ({"policyName": made[0]["metadata"]["name"]} if "policyName" in wanted["spec"] else {})
        for wanted in policies.of_requesters("muster")
    ]
    [policy] = of_kind(policies.POLICY, "everything", "training-requesters.muster.muster.dev")
    assert policy["spec"]["matchConstraints"]["resourceRules"][-1]["resources"] == ["gadgets"]


def test_a_policy_knows_the_values_of_the_chart() -> None:
    given: dict[str, str] = {}
    for policy in of_kind(policies.POLICY, "everything", "training.muster.muster.dev"):
        given |= {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    assert given["take_over"] == "true"
    assert "istio-system" in given["closed"]
    assert '"example.com/Gadget":["muster.dev/role","muster.dev/index"]' in given["kinds"]
    assert '"example.com/gadgets"' in given["jobs"]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        pytest.param("", 1, id="the whole cluster"),
        pytest.param("--kube-version 1.29", 0, id="a server that serves none"),
        pytest.param("--api-versions v1/Pod", 0, id="a server that says it serves none"),
        pytest.param("--set rbac.create=false", 0, id="an administrator makes what belongs to the cluster"),
        pytest.param("--set scope.namespace=team-a", 1, id="one namespace with a role of the cluster for the set-up"),
        pytest.param("--set scope.namespace=team-a,setup.crds=false", 0, id="one namespace without rights beyond it"),
        pytest.param("--set scope.namespace=team-a,setup.crds=false,admissionPolicies.enabled=true", 1, id="as asked"),
        pytest.param("--set admissionPolicies.enabled=false", 0, id="turned off"),
    ],
)
def test_policies_are_made_where_they_are_served_and_allowed(options: str, count: int) -> None:
    kinds = [found["kind"] for found in documents(render(*options.split()))]
    assert (kinds.count(policies.POLICY), kinds.count(policies.BINDING)) == (count, count)


def test_policies_on_a_server_without_them_are_refused() -> None:
    for option in ("admissionPolicies.enabled", "requesters.enabled"):
        with pytest.raises(NotRendered, match=rf"{option} is true and Kubernetes v1\.29 serves no .*: upgrade"):
            render("--kube-version", "1.29", "--set", f"{option}=true")


def test_an_installation_for_its_own_namespace_may_write_there() -> None:
    [policy, *_] = [
        found
        for found in documents(render("--is-upgrade", "--set", "scope.namespace=muster"))
        if found["kind"] == policies.POLICY
    ]
    given = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
    assert (given["closed"], given["labels"]) == ("[]", "[]")


def test_one_process_has_the_rights_of_all_four() -> None:
    [role] = of_kind("ClusterRole", "all-in-one", "muster")
    wanted = {
        right
        for service in permissions.SERVICE_ACCOUNTS
        for right in rights(permissions.rules(service, powers=OF_CHART))
    }
    assert rights(role["rules"]) == wanted


def test_no_other_account_has_the_rights_of_the_set_up() -> None:
    options = "mode=all-in-one,rbac.extraRules.setup[0].resourceNames={gadgets.example.com}"
    roles = [found for found in documents(render("--set", options)) if found["kind"] == "ClusterRole"]
    who = [role["metadata"]["name"] for role in roles if "gadgets.example.com" in str(role)]
    assert who == ["muster-setup"]


def test_taking_over_adds_the_rights_for_it() -> None:
    [role] = of_kind("Role", "one-namespace", "muster")
    assert role["metadata"]["namespace"] == "team-a"
    wanted = {
        right
        for service in permissions.SERVICE_ACCOUNTS
        for right in rights(permissions.rules(service, "team-a", powers=Powers(taking_over=True)))
    }
    assert rights(role["rules"]) == wanted


def test_an_installation_for_one_namespace_has_nothing_for_the_cluster() -> None:
    kinds = {document["kind"] for document in documents(rendered("one-namespace"))}
    assert not {kind for kind in kinds if kind.startswith("Cluster")}


def test_an_alert_of_a_service_that_is_gone_names_the_namespace_of_the_release() -> None:
    text = render("--set", "metrics.prometheusRule.enabled=true", namespace="team-a")
    [rules] = [found for found in documents(text) if found["kind"] == "PrometheusRule"]
    gone = [rule["expr"] for rule in rules["spec"]["groups"][0]["rules"] if "absent(" in rule["expr"]]
    assert gone
    assert not any('namespace="muster"' in expression for expression in gone)
    for series in ('muster_owner{namespace="team-a", service="watcher"}', 'muster_archive_failing{namespace="team-a"}'):
        assert f"absent({series})" in "".join(gone)


def test_each_alert_leads_to_its_section_of_the_runbook() -> None:
    runbook = "https://docs.example/muster/runbook"
    for more, page in (((), "docs/runbook.md"), (("--set", f"metrics.prometheusRule.runbook={runbook}"), runbook)):
        text = render("--set", "metrics.prometheusRule.enabled=true", *more)
        [rules] = [found for found in documents(text) if found["kind"] == "PrometheusRule"]
        for rule in rules["spec"]["groups"][0]["rules"]:
            assert rule["annotations"]["runbook_url"] == f"{page}#{rule['alert'].lower()}"


@pytest.mark.parametrize(("more", "faults"), [("", 0), ("max by (namespace (muster_ready)", 1)])
def test_prometheus_loads_every_alert_and_takes_every_question_of_the_dashboard(
    tmp_path: Path, more: str, faults: int
) -> None:
    text = render("--set", "metrics.prometheusRule.enabled=true", "--set", "metrics.dashboard.enabled=true")
    [groups] = [found["spec"]["groups"] for found in documents(text) if found["kind"] == "PrometheusRule"]
    [board] = [found["data"]["muster.json"] for found in documents(text) if "muster.json" in found.get("data", {})]
    asked = [target["expr"] for panel in json.loads(board)["panels"] for target in panel["targets"]]
    assert len(asked) > len(groups[0]["rules"]) > 0
    panels = [{"record": "panel", "expr": each} for each in filter(None, (*asked, more))]
    # A recording rule may not say the same twice.
    panels = [rule | {"labels": {"number": str(number)}} for number, rule in enumerate(panels)]
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": [*groups, {"name": "dashboard", "rules": panels}]}))
    ended = subprocess.run([require("rules"), rules], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.count("could not parse expression")) == (faults, faults), ended.stdout


def test_the_dashboard_comes_as_it_is_kept_and_grafana_finds_it() -> None:
    text = render("--set", "metrics.dashboard.enabled=true")
    [found] = [one for one in documents(text) if one["metadata"]["name"] == "muster-dashboard"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["muster.json"])["title"] == "Muster"
    assert "muster-dashboard" not in render()


@pytest.mark.parametrize("name", SETS)
def test_every_pod_has_the_least_it_can_do_with(name: str) -> None:
    for owner in documents(rendered(name)):
        if "template" not in owner.get("spec", {}):
            continue
        pod = owner["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == (1000700000 if name == "everything" else 65532)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        # Only who speaks with the API server has a token.
        speaks = owner["kind"] == "Deployment" and not owner["metadata"]["name"].endswith(("-archiver", "-page"))
        asks = speaks or (owner["kind"] == "Job" and name != "one-namespace")
        assert pod["automountServiceAccountToken"] is asks
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["command"]
            assert {*container["resources"]} == {"requests", "limits"} or name == "everything"


def test_what_looks_like_a_number_is_a_name() -> None:
    names = ("scope.namespace", "fullnameOverride", "priorityClassName", "nats.auth.existingSecret", "nats.tls.secret")
    options = ",".join(f"{name}=1000" for name in (*names, "nats.persistence.storageClass"))
    for mode in ("services", "all-in-one"):
        more = f"mode={mode},networkPolicy.enabled=true,replicas=2,nats.replicas=3,nats.tls.enabled=true"
        for document in documents(render("--set-string", options, "--set", more, release="123", namespace="456")):
            assert not [*numbers(document)], document["kind"]


def numbers(value: Any, inside: str = "") -> Iterator[str]:
    """Where a name ought to be."""
    if isinstance(value, dict):
        for key, below in value.items():
            named = inside in ("labels", "matchLabels") or NAMES.search(str(key))
            if named and not isinstance(below, str | dict):
                yield f"{inside}.{key}: {below}"
            yield from numbers(below, str(key))
    elif isinstance(value, list):
        for below in value:
            yield from numbers(below, inside)


def test_the_notes_apply_one_file_as_the_page_does() -> None:
    (path,) = re.findall(r"apply -f (\S+)", (CHART / "templates/NOTES.txt").read_text())
    assert (ROOT / path).is_file()


@pytest.mark.parametrize(
    ("options", "kinds", "trusted"),
    [
        pytest.param("", {"Secret"}, "muster-nats-tls", id="by default one of our own"),
        pytest.param("nats.tls.issuerRef.name=internal", {"Certificate"}, "muster-nats-tls", id="by cert-manager"),
        pytest.param("nats.tls.secret=mine", set(), "mine", id="given"),
        pytest.param("nats.tls.enabled=false", set(), None, id="none"),
        pytest.param(
            "nats.enabled=false,nats.url=tls://x,nats.auth.existingSecret=p", set(), None, id="as the system trusts"
        ),
    ],
)
def test_every_client_trusts_the_authority_of_the_certificate(
    options: str, kinds: set[str], trusted: str | None
) -> None:
    made = documents(render("--set", options))
    ours = {one["kind"] for one in made if one["metadata"]["name"] in ("muster-nats-tls", "muster-nats-ca")}
    assert ours == kinds
    clients = [one for one in made if one["kind"] in ("Deployment", "Job")]
    assert len(clients) == 6
    for client in clients:
        pod = client["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        given = {each["name"]: each.get("value") for each in container["env"]}
        volumes = [each["secret"] for each in pod["volumes"] if each["name"] == "nats-ca"]
        assert ("NATS_CA" in given) is (trusted is not None)
        assert [each["secretName"] for each in volumes] == ([trusted] if trusted else [])
        assert all([item["key"] for item in each["items"]] == ["ca.crt"] for each in volumes)
        assert given["NATS_URL"].startswith("nats://" if options == "nats.tls.enabled=false" else "tls://")


def test_the_monitor_of_nats_is_for_the_services_alone() -> None:
    for options in ("", "networkPolicy.enabled=true"):
        policy = next(
            one
            for one in documents(render("--set", options))
            if (one["kind"], one["metadata"]["name"]) == ("NetworkPolicy", "muster-nats")
        )
        rules = [rule for rule in policy["spec"]["ingress"] if {"port": "monitor"} in rule["ports"]]
        (peers,) = [rule["from"] for rule in rules]
        (selector,) = [peer["podSelector"]["matchLabels"] for peer in peers]
        assert selector == {"app.kubernetes.io/name": "muster", "app.kubernetes.io/instance": "muster"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        pytest.param("", [{"kubernetes.io/metadata.name": "monitoring"}], id="Prometheus by default"),
        pytest.param("networkPolicy.enabled=true", [{"kubernetes.io/metadata.name": "monitoring"}], id="with egress"),
        pytest.param("networkPolicy.healthFrom=null", [], id="no pod"),
        pytest.param(
            "networkPolicy.healthFrom[0].namespaceSelector.matchLabels.team=ops", [{"team": "ops"}], id="others"
        ),
    ],
)
def test_health_is_for_those_whom_a_value_names(options: str, named: list[dict[str, str]]) -> None:
    policy = next(
        one
        for one in documents(render("--set", options))
        if (one["kind"], one["metadata"]["name"]) == ("NetworkPolicy", "muster")
    )
    rules = [rule for rule in policy["spec"]["ingress"] or () if {"port": "health"} in rule["ports"]]
    assert all(rule["from"] for rule in rules), "without peers a rule is for everybody"
    assert [peer["namespaceSelector"]["matchLabels"] for rule in rules for peer in rule["from"]] == named
    assert ("Egress" in policy["spec"]["policyTypes"]) is ("enabled" in options)


def test_nats_may_run_elsewhere() -> None:
    options = "nodeSelector.pool=control,priorityClassName=high,nats.nodeSelector.disk=fast"
    for owner in documents(render("--set", options)):
        if "template" in owner.get("spec", {}):
            pod = owner["spec"]["template"]["spec"]
            assert pod["nodeSelector"] == ({"disk": "fast"} if owner["kind"] == "StatefulSet" else {"pool": "control"})
            assert pod["priorityClassName"] == "high"


def test_an_annotation_of_the_user_takes_the_place_of_ours() -> None:
    own = {"kubectl.kubernetes.io/default-container": "proxy", "prometheus.io/port": "9090", "checksum/config": "mine"}
    options = ",".join(f"podAnnotations.{key.replace('.', chr(92) + '.')}={value}" for key, value in own.items())
    text = render("--set-string", options)
    for owner in documents(text):
        if owner["kind"] in ("Deployment", "StatefulSet"):
            assert own.items() <= owner["spec"]["template"]["metadata"]["annotations"].items()
    assert not re.search(r"^( +)([^\s{]\S*): .*\n(?:\1\S.*\n)*\1\2: ", text, re.MULTILINE), "a key twice"


def test_a_cluster_may_choose_users_and_groups_itself() -> None:
    unset = ",".join(f"podSecurityContext.{key}=null" for key in ("runAsUser", "runAsGroup", "fsGroup"))
    for owner in documents(render("--set", unset)):
        if "template" in owner.get("spec", {}):
            context = owner["spec"]["template"]["spec"]["securityContext"]
            assert context.pop("fsGroupChangePolicy", "OnRootMismatch") == "OnRootMismatch"
            assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize("name", SETS)
def test_no_pod_waits_for_a_node_that_it_may_not_use(name: str) -> None:
    """A node with a foreign taint would be the emptiest, and a predecessor's node a full one: an upgrade would wait."""
    for owner in documents(rendered(name)):
        spread = owner.get("spec", {}).get("template", {}).get("spec", {}).get("topologySpreadConstraints", [])
        assert owner["kind"] != "Deployment" or spread
        for constraint in spread:
            assert constraint["nodeTaintsPolicy"] == "Honor"
            assert owner["kind"] == "StatefulSet" or constraint["matchLabelKeys"] == ["pod-template-hash"]


@pytest.mark.parametrize("name", SETS)
def test_a_service_mounts_its_own_password_alone(name: str) -> None:
    for deployment in of_kind("Deployment", name):
        component = deployment["metadata"]["labels"]["app.kubernetes.io/component"]
        volumes = {found["name"]: found for found in deployment["spec"]["template"]["spec"]["volumes"]}
        if component == "page":
            assert "nats-users" not in volumes
            continue
        volume = volumes["nats-users"]
        keys = [item["key"] for source in volume["projected"]["sources"] for item in source["secret"]["items"]]
        assert keys == (list(permissions.SERVICE_ACCOUNTS) if component == "all" else [component])


def test_a_single_pod_has_no_disruption_budget() -> None:
    assert not of_kind("PodDisruptionBudget", "default")
    named = {budget["metadata"]["name"] for budget in of_kind("PodDisruptionBudget", "everything")}
    assert {"training-watcher", "training-scheduler", "training-status"} <= named
    assert "training-scaler" not in named


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("image.tag=v1", "image.tag=v2", id="the image"),
        pytest.param("kinds={a.b}", "kinds={a.c}", id="what it claims"),
        pytest.param("nats.replicas=1", "nats.replicas=3", id="the copies of the log"),
    ],
)
def test_the_set_up_job_is_another_one_when_its_work_is(first: str, second: str) -> None:
    one, other = (job_name(render("--set", option)) for option in (first, second))
    assert one != other
    assert one == job_name(render("--set", first)), "an upgrade without a change makes no other Job"


@pytest.mark.parametrize("name", SETS)
def test_the_set_up_job_gives_only_options_that_there_are(name: str) -> None:
    for job in of_kind("Job", name):
        [container] = job["spec"]["template"]["spec"]["containers"]
        program, *words = container["command"]
        assert program == "muster"
        ended = CliRunner().invoke(application(), [*words, "--help"])
        assert not ended.exit_code, ended.output


def test_the_set_up_job_stays_when_only_others_change() -> None:
    assert job_name(render()) == job_name(render("--set", "replicas=2,flowSchema.enabled=true"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param("replicas=3", "at '/replicas': value must be one of 1, 2", id="three replicas"),
        pytest.param("replicas=two", "at '/replicas': value must be one of 1, 2", id="a number as a word"),
        pytest.param("mode=split", "at '/mode': value must be one of 'services', 'all-in-one'", id="no such mode"),
        pytest.param("replcias=2", "additional properties 'replcias' not allowed", id="a typing mistake"),
        pytest.param(
            "services.watcher.replica=2", "additional properties 'replica' not allowed", id="one further down"
        ),
        pytest.param("scope.namespace=Team_A", "at '/scope/namespace': 'Team_A' does not match", id="not a namespace"),
        pytest.param("kinds={TFJob}", "at '/kinds/0': 'TFJob' does not match", id="a kind without its group"),
        pytest.param("drain=PT1M", "at '/drain': got string, want integer", id="seconds are a number"),
        pytest.param("takeOver=yes", "at '/takeOver': got string, want boolean", id="true is not yes"),
        pytest.param("log.level=loud", "at '/log/level': value must be one of 'debug'", id="no such level"),
        pytest.param("nats.replicas=2", "at '/nats/replicas': value must be one of 1, 3", id="two nodes of NATS"),
        pytest.param("nats.url=http://x", "at '/nats/url': 'http://x' does not match", id="not an address of NATS"),
        pytest.param("nats.persistence.size=big", "at '/nats/persistence/size': 'big' does not match", id="not a size"),
        pytest.param("resources.limits.memory=lots", "at '/resources/limits/memory'", id="not an amount"),
        pytest.param("networkPolicy.apiServer.ports={70000}", "maximum: got 70,000, want 65,535", id="not a port"),
        pytest.param("podSecurityContext.runAsUser=0", "minimum: got 0, want 1", id="root"),
        pytest.param("podSecurityContext.privileged=true", "additional properties 'privileged'", id="more rights"),
        pytest.param("image.tag=a b", "at '/image/tag': 'a b' does not match", id="not a tag"),
        pytest.param(
            "nats.enabled=false", "nats.enabled is false and nats.url is empty: name your own", id="NATS is nowhere"
        ),
        pytest.param("nats.url=nats://x:4222", "for your own NATS set nats.enabled=false", id="NATS is in two places"),
        pytest.param(
            "nats.enabled=false,nats.url=tls://x",
            "nats.auth.existingSecret is empty: name a Secret with the passwords",
            id="own NATS without passwords",
        ),
        pytest.param(
            "nats.enabled=false,nats.auth.existingSecret=p,nats.url=nats://x:4222\\,nats://u:p@y",
            "nats.url has a user or a password in it",
            id="a password for everybody to read",
        ),
        pytest.param(
            "nats.maxFileStore=11Gi", "nats.maxFileStore is 11Gi and nats.persistence.size is 10Gi", id="a small disk"
        ),
        pytest.param(
            "setup.maxBytes=9600000000",
            "setup.maxBytes is 9600000000 and the disk of NATS has room for 6386",
            id="a log without room for leases",
        ),
        pytest.param(
            "nats.enabled=false,nats.auth.existingSecret=p,nats.url=tls://x\\,nats://y",
            "write tls://, and name a Secret with the ca.crt of your servers in nats.tls.secret",
            id="own NATS without TLS",
        ),
        pytest.param(
            "nats.tls.secret=mine,nats.tls.issuerRef.name=internal",
            "nats.tls.secret and nats.tls.issuerRef are both set",
            id="two certificates",
        ),
        pytest.param(
            "nats.enabled=false,nats.auth.existingSecret=p,nats.url=tls://x,nats.tls.issuerRef.name=internal",
            "nats.tls.issuerRef is for the NATS that comes along",
            id="a certificate for nobody",
        ),
        pytest.param(
            "scope.namespace=muster",
            "scope.namespace is muster, which is also where this release would have its service accounts",
            id="accounts among tenants",
        ),
        pytest.param(
            "scope.namespace=team-a,history.enabled=true",
            "history.enabled is true and scope.namespace is team-a",
            id="an API of the cluster for one namespace",
        ),
        pytest.param(
            "scope.namespace=team-a,kueue=true",
            "kueue is true and scope.namespace is set: queues of Kueue need the whole cluster",
            id="queues of the cluster for one namespace",
        ),
        pytest.param(
            "mode=all-in-one,services.scaler.replicas=2",
            "services.scaler is set and mode is all-in-one: there is one process for all",
            id="a service apart in one process",
        ),
        pytest.param(
            "setup.crds=false,setup.release=true", "setup.release is for the definitions", id="a scope that is not ours"
        ),
        pytest.param(
            r"podLabels.app\.kubernetes\.io/name=x",
            "podLabels sets app.kubernetes.io/name, which the chart sets",
            id="a label twice",
        ),
        pytest.param(
            "extraEnv[0].name=NATS_URL,extraEnv[0].value=x", "extraEnv sets NATS_URL, which the chart sets", id="twice"
        ),
    ],
)
def test_bad_values_are_refused_in_words(options: str, words: str) -> None:
    with pytest.raises(NotRendered, match=re.escape(words)):
        render("--set", options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param("nats.persistence.size=1Pi", "max_file_store: 1013309916158361", id="a large volume"),
        pytest.param("nats.resources.limits.memory=2Gi", 'GOMEMLIMIT\n value: "1932735283"', id="what NATS may hold"),
        pytest.param("nats.maxFileStore=5Gi", "max_file_store: 5368709120", id="of a volume that was enlarged"),
        pytest.param(
            "setup.takeScope=true,setup.takeCrds=true", "- --take-scope\n            - --take-crds", id="take"
        ),
        pytest.param("setup.release=true", "- --release", id="before it is uninstalled"),
        pytest.param(f"image.tag=1.0@sha256:{'a' * 64}", f"image: muster:1.0@sha256:{'a' * 64}", id="a digest"),
        pytest.param(
            "history.enabled=true,networkPolicy.enabled=true",
            "- ports:\n        - port: https",
            id="its port is open",
        ),
        pytest.param(
            "history.enabled=true,nats.auth.existingSecret=p", "- key: history\n path: history", id="its own password"
        ),
        pytest.param("kinds={TFJob.kubeflow.org}", 'value: "TFJob.kubeflow.org"', id="a kind in capitals"),
        pytest.param("rbac.extraRules.status[0].resourceNames={one}", "resourceNames:\n  - one", id="a rule for one"),
        pytest.param(
            "networkPolicy.enabled=true,nats.enabled=false,nats.url=tls://x,nats.auth.existingSecret=p,"
            "nats.monitor=http://x:8333",
            "- port: 4222\n        - port: 8333",
            id="a way to the monitor",
        ),
    ],
)
def test_what_is_valid_is_rendered(options: str, words: str) -> None:
    assert re.sub(r" +", " ", words) in re.sub(r" +", " ", render("--set", options))


def test_every_value_is_documented_and_in_the_schema() -> None:
    text = (CHART / "values.yaml").read_text()
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert {*yaml.safe_load(text)} | {"global"} == {*schema["properties"]}
    assert not [top for top, block in blocks(text) if "#" not in block]


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Top-level keys of values.yaml, each with its comments and what is below it."""
    for block in re.split(r"\n\n(?=\S)", text):
        if found := re.search(r"^([a-zA-Z]+):", block, re.MULTILINE):
            yield found[1], block


def of_kind(kind: str, name: str, named: str = "") -> list[Document]:
    return [
        found
        for found in documents(rendered(name))
        if found["kind"] == kind and named in ("", found["metadata"]["name"])
    ]


def job_name(text: str) -> str:
    [job] = [found for found in documents(text) if found["kind"] == "Job"]
    return str(job["metadata"]["name"])


def rights(rules: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_values_of_an_earlier_release_give_the_archiver_a_number_of_days() -> None:
    """`helm upgrade --reuse-values` takes no new default."""
    for days, shown in (("null", "90"), ("0", "0"), ("30", "30")):
        found = documents(render("--set", f"audit.days={days}"))
        [archiver] = [
            each
            for each in found
            if each["metadata"]["name"] == "muster-archiver" and "template" in each.get("spec", {})
        ]
        given = {
            each["name"]: each.get("value") for each in archiver["spec"]["template"]["spec"]["containers"][0]["env"]
        }
        assert given["MUSTER_AUDIT_DAYS"] == shown
