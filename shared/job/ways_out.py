"""Commands that a person may run to free the name of an object that does not go.  Pure."""

from collections.abc import Sequence


def forced_deletion(namespace: str, pods: str) -> str:
    """Deletes pods whose node is off for good; `pods` are their names, with spaces between them."""
    return f"kubectl delete pod -n {namespace} {pods} --force --grace-period=0"


def without_finalizers(namespace: str, kind: str, name: str, finalizers: Sequence[str]) -> str:
    """Which finalizers keep an object that is being deleted, and what takes them off: no forced deletion does."""
    patch = f'kubectl patch {kind} -n {namespace} {name} --type=merge -p \'{{"metadata":{{"finalizers":null}}}}\''
    return f"its finalizers keep it ({', '.join(finalizers)}), and `{patch}` takes them off"
