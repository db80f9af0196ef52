"""The rules of each kind, besides those of all objects: field types, names, defaults, validation.

`RULES` has an entry for each built-in kind with such rules; objects of the others are stored as they were sent.
Custom resources are in `custom.py`.  These modules use neither HTTP nor the store.
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
