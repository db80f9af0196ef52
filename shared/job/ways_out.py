"""Commands that a person may run to free the name of an object that does not go.  Pure."""


def forced_deletion(namespace: str, pods: str) -> str:
    """Deletes pods whose node is off for good; `pods` are their names, with spaces between them."""
    return f"kubectl delete pod -n {namespace} {pods} --force --grace-period=0"


def without_finalizers(namespace: str, kind: str, name: str) -> str:
    """Takes the finalizers off an object that is being deleted."""
    return f'kubectl patch {kind} -n {namespace} {name} --type=merge -p \'{{"metadata":{{"finalizers":null}}}}\''
