"""What each kind adds to the rules that all objects obey: its shape, its names, its defaults, its validation.

`RULES` maps the kinds that have any of that; a built-in kind without an entry is stored as it comes.
Custom resources are in `custom.py`.  Nothing here knows HTTP or the store.
"""

from devcluster.apiserver.entry import Key
from devcluster.apiserver.kinds import configs, definitions, events, leases, namespaces, nodes, pods, services
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.names import path_segment
from devcluster.apiserver.resources import (
    CONFIG_MAPS,
    DEFINITIONS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RBAC,
    SECRETS,
    SERVICES,
)

RULES: dict[Key, Rules] = {
    PODS.key: pods.RULES,
    SERVICES.key: services.RULES,
    CONFIG_MAPS.key: configs.CONFIG_MAP_RULES,
    SECRETS.key: configs.SECRET_RULES,
    EVENTS.key: events.RULES,
    NAMESPACES.key: namespaces.RULES,
    NODES.key: nodes.RULES,
    LEASES.key: leases.RULES,
    DEFINITIONS.key: definitions.RULES,
    **{
        Key(RBAC, plural): Rules(name=path_segment, created_by_update=True)
        for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
    },
}

NO_RULES = Rules()
