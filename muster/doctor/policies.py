"""Findings about admission policies: whether each service account has one, as this release makes it.  Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster import policies
from muster.doctor import servers
from muster.doctor.findings import Finding, names, ok, unknown, warn
from muster.doctor.rights import Account
from shared.frameworks.framework import Framework
from shared.installation.permissions import Powers

CHECK = "policies.accounts"
OLDEST = (1, 30)
"""The first Kubernetes that serves admission policies."""
EMBEDDED = "+muster"
"""The end of the embedded API server's version."""
WITHOUT = "may write every object that its role allows"
REMEDY = "`muster rbac --policies | kubectl apply -f -`, or admissionPolicies.enabled in the chart, makes them"

Document = Mapping[str, Any]
Pair = tuple[Document | None, Document | None]
"""A policy and its binding; None for a missing one."""


def name(account: Account) -> str:
    return policies.name(policies.together(account.name, account.services), account.namespace)


def not_served(server: str) -> Finding:
    """`server` is the version that the API server says."""
    known = servers.numbers(server)
    if server.endswith(EMBEDDED):
        remedy = "nothing: the embedded cluster is for development and has none; `make demo CLUSTER=real` has"
    elif known is None or known < OLDEST:
        remedy = f"upgrade the cluster to Kubernetes {servers.text(OLDEST)} or newer"
    else:
        remedy = "let the API server serve admissionregistration.k8s.io/v1, as it does by default"
    return warn(CHECK, f"the API server serves no ValidatingAdmissionPolicy, so each service account {WITHOUT}", remedy)


def forbidden(why: str) -> Finding:
    return unknown(CHECK, why, "ask a person who may get validatingadmissionpolicies and their bindings")


def findings(accounts: Sequence[Account], kinds: Iterable[Framework], found: Mapping[str, Pair]) -> list[Finding]:
    """`found` has policies with their bindings by name; `kinds` are all that this release serves."""
    kinds = [*kinds]
    sharing: dict[str, list[Account]] = {}
    for account in accounts:
        sharing.setdefault(name(account), []).append(account)
    lacking, changed = [], []
    for policy_name, those in sharing.items():
        policy, binding = found[policy_name]
        if policy is None or binding is None:
            lacking += [account.user for account in those]
        elif parts := _differences(those, kinds, policy, binding):
            changed.append(
                warn(
                    "policies.release",
                    f"the admission policy {policy_name} is not that of this release: {', '.join(parts)}",
                    f"{REMEDY} anew",
                )
            )
    if lacking:
        told = f"no admission policy in force for {names(lacking)}: such an account {WITHOUT}"
        return [warn(CHECK, told, REMEDY), *changed]
    return changed or [ok(CHECK, f"an admission policy judges what {names([each.user for each in accounts])} write")]


def _differences(
    accounts: Sequence[Account], kinds: Iterable[Framework], policy: Document, binding: Document
) -> list[str]:
    one = accounts[0]
    made, bound = policies.manifests(
        policies.together(one.name, one.services),
        one.namespace,
        scope=one.scope,
        kinds=kinds,
        powers=Powers(
            any(account.powers.taking_over for account in accounts),
            commands=all(account.powers.commands for account in accounts),
            keys=all(account.powers.keys for account in accounts),
            kueue=any(account.powers.kueue for account in accounts),
            gangs=any(account.powers.gangs for account in accounts),
            namespaces=next((account.powers.namespaces for account in accounts if account.powers.namespaces), ()),
        ),
    )
    wanted, there = _readable(made["spec"]), _readable(policy.get("spec") or {})
    differ = [part for part in (*wanted, *there) if wanted.get(part) != there.get(part)]
    if there["closed"] >= wanted["closed"]:
        # A person may close more namespaces.
        differ = [part for part in differ if part != "closed"]
    return [*dict.fromkeys(differ), *(["binding"] if binding.get("spec") != bound["spec"] else [])]


def _readable(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of a policy by name, each variable as one."""
    variables = {each.get("name", ""): each.get("expression", "") for each in spec.get("variables") or ()}
    variables["closed"] = _closed(variables.get("closed", ""))
    return {**{part: value for part, value in spec.items() if part != "variables"}, **variables}


def _closed(expression: str) -> frozenset[str]:
    try:
        found = json.loads(expression)
    except ValueError:
        return frozenset()
    return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()
