"""Pod templates, declared as little as possible.

Fields that Kubernetes adds later must not be pruned, and a whole PodTemplateSpec is half a megabyte: more than
`kubectl apply` can remember in an annotation.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from muster.crds.fields import Model
from shared.frameworks.templates import DNS_LABEL, LONGEST_CONTAINER_NAME

OPEN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


class Container(Model):
    """As in a Pod: every field is kept."""

    model_config = ConfigDict(json_schema_extra={**OPEN})

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_CONTAINER_NAME, pattern=f"^{DNS_LABEL}$")]
    image: Annotated[str, Field(min_length=1)]


class PodSpec(Model):
    """As in a Pod: every field is kept, except that restartPolicy, hostname and subdomain are Muster's."""

    model_config = ConfigDict(json_schema_extra={**OPEN})

    containers: Annotated[list[Container], Field(min_length=1)]
    """The first container trains: its exit is the pod's."""


class TemplateMetadata(Model):
    """Labels and annotations for the pods; Muster's own win."""

    model_config = ConfigDict(json_schema_extra={**OPEN})

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(Model):
    """As in a Deployment."""

    model_config = ConfigDict(json_schema_extra={**OPEN})

    metadata: TemplateMetadata | None = None
    spec: PodSpec
