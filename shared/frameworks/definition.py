"""The parts of a kind's CustomResourceDefinition.  Pure."""

from typing import Any, NamedTuple

Document = dict[str, Any]


class Scale(NamedTuple):
    """The paths in the resource where `kubectl scale` and autoscalers find a job's size."""

    spec: str
    status: str = ".status.replicas"
    selector: str = ".status.selector"


class Version(NamedTuple):
    """Another version of a kind; None means as in the watched version.

    No webhook converts: the API server reads a stored object through every version's schema, and drops fields that
    the schema does not declare.  So the schema of the watched version declares the fields of all others, too.
    """

    name: str
    spec: Document | None = None
    columns: tuple[Document, ...] | None = None
    rules: tuple[Document, ...] | None = None
    status: Document | None = None
    scale: Scale | None = None


class Definition(NamedTuple):
    """The parts of a kind's CustomResourceDefinition besides its names; `schemas.py` has the pieces."""

    description: str
    spec: Document
    """The OpenAPI schema of `spec`; pod templates in it keep unknown fields."""
    short_names: tuple[str, ...] = ()
    singular: str = ""
    columns: tuple[Document, ...] = ()
    """The `additionalPrinterColumns`."""
    rules: tuple[Document, ...] = ()
    """The `x-kubernetes-validations` of the whole resource."""
    status: Document | None = None
    """The OpenAPI schema of `status` without `lastReconcileTime` and `history`; None keeps every field."""
    scale: Scale | None = None
    suspend: str = ""
    """The path of the field that suspends a job, such as `.spec.runPolicy.suspend`; empty without one."""
    suspend_annotation: str = ""
    """The annotation whose value `true` also suspends a job; empty without one."""
    expires: bool = True
    """True if its jobs have a time to live after their end, after which the scheduler deletes them."""
    versions: tuple[Version, ...] = ()
    """The other served versions."""
