"""The files made from `muster.permissions`: `deploy/rbac/`, and the rules, policies and NATS users of the chart.

`make rbac` writes them; `tests/security/` compares them with the calls of the services.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from muster import policies
from muster.crds import PlainYaml
from muster.permissions import (
    HISTORY_RULES,
    PEOPLE_RULES,
    SERVICE_ACCOUNTS,
    VIEW_RULES,
    Document,
    render,
    rules_of,
)
from shared.cluster.scope import OPTED_IN
from shared.eventlog.account import ACCOUNT, SUBSCRIBER, USERS, Copy, accounts, accounts_of_copies
from shared.frameworks.kinds import BUILT_IN
from shared.installation import admission
from shared.installation.permissions import Need, Powers, needs, set_up

JOBS = "team-a"
"""The one namespace of jobs in `deploy/rbac/namespace/`."""
CHART = "deploy/helm/muster/files/rules.yaml"
POLICIES = "deploy/helm/muster/files/policies.yaml"
CONF = "deploy/helm/muster/files/nats-users.conf"
COPIES_CONF = "deploy/helm/muster/files/nats-copies.conf"
NAMESPACE = "deploy/helm/muster/files/nats-namespace.json"
"""The paths from the root of the repository."""
HEADER = "# Written by `make rbac`; a change here would be overwritten.\n"


def setup_rules() -> list[Document]:
    """The rules of `muster setup`, always for the whole cluster, because definitions are cluster-scoped."""
    [(group, resource)] = {(right.group, right.resource) for right in set_up()}
    definitions = {"apiGroups": [group], "resources": [resource]}
    ours = [right for right in set_up() if right.name]
    return [
        {**definitions, "verbs": [right.verb for right in set_up() if not right.name]},
        {
            **definitions,
            "resourceNames": sorted({right.name for right in ours}),
            "verbs": sorted({right.verb for right in ours}),
        },
    ]


def of_chart() -> str:
    """The rules of the Helm chart's roles, by service and for `all` in one process.

    Those that are always needed, and those for taking over, for commands in launchers, for ssh keys, for Kueue, for
    gangs, for reports of progress and for selecting namespaces.
    """
    return HEADER + yaml.dump(
        {
            variant: {
                "always": _by_service(namespace) | ({} if namespace else {"history": HISTORY_RULES}),
                "takeOver": _by_service(namespace, _FEWEST._replace(taking_over=True)),
                "exec": _by_service(namespace, _FEWEST._replace(commands=True)),
                "ssh": _by_service(namespace, _FEWEST._replace(keys=True)),
                "gangs": _by_service(namespace, _FEWEST._replace(gangs=True)),
            }
            | ({} if namespace else {"kueue": _by_service(namespace, _FEWEST._replace(kueue=True))})
            | ({} if namespace else {"progress": _by_service(namespace, _FEWEST._replace(reports=True))})
            | ({} if namespace else {"selecting": _by_service(namespace, _FEWEST._replace(namespaces=OPTED_IN))})
            for variant, namespace in (("cluster", ""), ("namespace", JOBS))
        }
        | {"setup": setup_rules(), "view": VIEW_RULES, "people": PEOPLE_RULES},
        Dumper=PlainYaml,
        sort_keys=False,
    )


_FEWEST = Powers(commands=False, keys=False)


def _by_service(namespace: str, powers: Powers = _FEWEST) -> dict[str, list[Document]]:
    """The rules that are always needed, or those that more powers add to them."""
    wanted: dict[str, list[Need]] = {}
    for service in SERVICE_ACCOUNTS:
        least, all_ = needs(service, namespace, powers=_FEWEST), needs(service, namespace, powers=powers)
        wanted[service] = least if powers == _FEWEST else [need for need in all_ if need not in least]
    everything = [need for found in wanted.values() for need in found]
    return {service: rules_of(found) for service, found in {**wanted, "all": everything}.items()}


def policies_of_chart() -> str:
    """The parts of the chart's policies; its values have the rest."""
    components = {**policies.accounts(), "all": SERVICE_ACCOUNTS}
    return HEADER + yaml.dump(
        {
            "kinds": admission.labels_of_pods(BUILT_IN),
            "jobs": admission.plurals(BUILT_IN),
            "matchConstraints": admission.MATCH,
            "variables": [*admission.VARIABLES],
            "requesters": policies.spec_of_requesters(BUILT_IN),
            "closed": admission.CLOSED,
            "refusals": {component: admission.refusal(serves) for component, serves in components.items()},
            "stranger": admission.STRANGER,
            "validations": admission.VALIDATIONS,
            "audit": policies.spec_of_audit(BUILT_IN),
        },
        Dumper=PlainYaml,
        sort_keys=False,
    )


def main() -> None:
    files = {
        f"deploy/rbac/{variant}/{name}": text
        for variant, namespace in (("cluster", ""), ("namespace", JOBS))
        for name, text in render(namespace).items()
    }
    files |= {CHART: of_chart(), POLICIES: policies_of_chart(), NAMESPACE: render_namespace()}
    files |= {CONF: render_users(), COPIES_CONF: render_copies()}
    for path, text in files.items():
        Path(path).write_text(text)


_PLACE = "NAMESPACE"
"""Stands for the namespace, and in the variable of the password for its name there."""

_HEAD = """\
# Written by `make rbac`; a change here would be overwritten.
# Goes into the configuration of {server} as it is: each user is in an account of its own, which imports
# what that user may reach.
# NATS reads the passwords as configuration text, so each variable has quotes in it: WATCHER_PASSWORD="'secret'";
# without them a password of digits would be a number.
accounts: {{
"""


def render_users() -> str:
    """One line for each account; the passwords are environment variables."""
    return _rendered("the log's server", accounts(_passwords(USERS)), USERS)


def render_copies() -> str:
    """The accounts of the copies' server, with a place for what each namespace adds."""
    text = _rendered("the copies' server", accounts_of_copies(_passwords([SUBSCRIBER])), [SUBSCRIBER])
    return text.replace('"imports": [', '"imports": [\n    # imports of namespaces\n    ', 1)


def render_namespace() -> str:
    """What each namespace with a subscriber adds there: to the account of the relay, and further accounts."""
    before = accounts_of_copies(_passwords([SUBSCRIBER]))
    table = accounts_of_copies(_passwords([SUBSCRIBER, Copy(_PLACE).user]))
    added = {
        "imports": [each for each in table[ACCOUNT]["imports"] if each not in before[ACCOUNT]["imports"]],
        "accounts": {name: found for name, found in table.items() if name not in before},
    }
    return json.dumps(added) + "\n"


def variable(user: str) -> str:
    """The environment variable with the user's password, in single quotes."""
    return f"{user.upper().replace('-', '_')}_PASSWORD"


def _passwords(users: Iterable[str]) -> dict[str, str]:
    return {user: f"${variable(user)}" for user in users}


def _rendered(server: str, table: Mapping[str, Any], users: Iterable[str]) -> str:
    lines = "".join(f"  {name}: {json.dumps(found)}\n" for name, found in table.items())
    for user in users:
        lines = lines.replace(f'"${variable(user)}"', f"${variable(user)}")
    return f"{_HEAD.format(server=server)}{lines}}}\n"


if __name__ == "__main__":
    main()
