"""Kubeconfig files as kubectl reads them: several are merged, and the current context names a cluster and a user.

`access.py` makes a session of the credentials.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from shared.errors import Refused

FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
"""Fields that hold a path, relative to the folder of their file."""


class Context(NamedTuple):
    """The entries that the current context names; their paths are absolute."""

    cluster: dict[str, Any]
    user: dict[str, Any]
    namespace: str
    """Empty if the context names none."""


def current_context(paths: Sequence[str], named: str = "") -> Context:
    """The current context of these files, or the one that is named.  Raises `Refused` with reason `BadKubeconfig`."""
    with _shaped(paths):
        configs = [_read(path) for path in paths]
        name = named or _current(configs)
        context = _entry(configs, "context", name)
        cluster = _entry(configs, "cluster", context["cluster"])
        user = _entry(configs, "user", context["user"]) if context.get("user") else {}
        return Context(cluster, user, str(context.get("namespace") or ""))


def namespace_of(paths: Sequence[str], named: str = "") -> str:
    """The namespace of that context, or empty.  Raises `Refused` as `current_context` does."""
    with _shaped(paths):
        configs = [_read(path) for path in paths]
        if named:
            # A person who names a context means it, also where no call is made.
            return str(_entry(configs, "context", named).get("namespace") or "")
        contexts = _entries(configs, "context")
        return str(contexts.get(_current(configs), {}).get("namespace") or "")


@contextmanager
def _shaped(paths: Sequence[str]) -> Iterator[None]:
    """Raise `Refused` for a missing file, for invalid YAML and for YAML that is no kubeconfig."""
    try:
        yield
    except (OSError, yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise unusable(paths, error) from error


def unusable(paths: Sequence[str], why: object) -> Refused:
    told = " ".join(str(why).split())
    if isinstance(why, TypeError | LookupError | AttributeError | RecursionError):
        # Python's message names types and not the file.
        told = "it does not have the clusters, users and contexts of one"
    return Refused(f"the kubeconfig {os.pathsep.join(paths)} cannot be used: {told}", reason="BadKubeconfig")


def _read(path: str) -> dict[str, Any]:
    """One file; the paths in its entries are absolute."""
    config: dict[str, Any] = yaml.safe_load(Path(path).read_text()) or {}
    folder = Path(path).absolute().parent
    for kind in ("cluster", "user"):
        for entry in _entries([config], kind).values():
            entry.update({field: str(folder / entry[field]) for field in FILES if entry.get(field)})
            plugin = entry.get("exec") or {}
            if os.sep in plugin.get("command", ""):
                plugin["command"] = str(folder / plugin["command"])
    return config


def _current(configs: Sequence[dict[str, Any]]) -> str:
    """The first file that names a current context decides."""
    return str(next(filter(None, (config.get("current-context") for config in configs)), ""))


def _entry(configs: Sequence[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    entries = _entries(configs, kind)
    if name not in entries:
        raise ValueError(f"there is no {kind} {name!r}" if name else f"no current {kind} is named")
    return entries[name]


def _entries(configs: Sequence[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """The entries by name; of several with one name the first one counts."""
    known = [one for config in configs for one in config.get(f"{kind}s") or ()]
    return {one["name"]: one.get(kind) or {} for one in reversed(known)}
