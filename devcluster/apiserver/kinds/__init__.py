"""What each kind adds to the rules that all objects obey: its shape, its names, its defaults, its validation.

`RULES` maps the kinds that have any of that; a built-in kind without an entry is stored as it comes.
Custom resources are in `custom.py`.  Nothing here knows HTTP or the store.
"""

from devcluster.apiserver import resources
from devcluster.apiserver.entry import Key
from devcluster.apiserver.kinds import definitions, events, pods, simple
from devcluster.apiserver.kinds.rules import Rules

RULES: dict[Key, Rules] = {
    resources.PODS.key: pods.RULES,
    resources.SERVICES.key: simple.SERVICES,
    resources.CONFIG_MAPS.key: simple.CONFIG_MAPS,
    resources.SECRETS.key: simple.SECRETS,
    resources.EVENTS.key: events.RULES,
    resources.NAMESPACES.key: simple.NAMESPACES,
    resources.NODES.key: simple.NODES,
    resources.LEASES.key: simple.LEASES,
    resources.DEFINITIONS.key: definitions.RULES,
    **{
        Key(resources.RBAC, plural): simple.RBAC
        for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
    },
}

NO_RULES = Rules()
