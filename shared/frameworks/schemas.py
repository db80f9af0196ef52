"""OpenAPI schemas that the definitions of several kinds share.  Pure."""

from shared.frameworks.framework import Document
from shared.frameworks.training import MOST_WORKERS, RESTART_POLICIES

ANYTHING: Document = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""An object that keeps whatever it holds."""

TEMPLATE: Document = ANYTHING
"""A pod template."""

REPLICAS: Document = {"type": "integer", "format": "int32", "minimum": 0, "maximum": MOST_WORKERS}
RESTART_POLICY: Document = {"type": "string", "enum": [*RESTART_POLICIES]}
