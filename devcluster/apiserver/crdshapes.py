"""The types of the fields of CustomResourceDefinitions that this server reads itself, as in `shapes.py`."""

import msgspec

from devcluster.apiserver.errors import Json
from devcluster.apiserver.shapes import Condition, Shape


class CrdNames(Shape):
    plural: str | None = None
    singular: str | None = None
    kind: str | None = None
    list_kind: str | None = None
    short_names: list[str] | None = None
    categories: list[str] | None = None


class PrinterColumn(Shape):
    name: str
    type: str
    json_path: str
    format: str | None = None
    description: str | None = None
    priority: int | None = None


class ScaleSubresource(Shape):
    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str | None = None


class Subresources(Shape):
    status: Json | None = None
    scale: ScaleSubresource | None = None


class CrdSchema(Shape):
    open_api_v3_schema: Json | None = msgspec.field(default=None, name="openAPIV3Schema")


class SelectableField(Shape):
    json_path: str


class CrdVersion(Shape):
    name: str
    served: bool = False
    storage: bool = False
    schema: CrdSchema | None = None
    subresources: Subresources | None = None
    additional_printer_columns: list[PrinterColumn] | None = None
    selectable_fields: list[SelectableField] | None = None


class CrdSpec(Shape):
    group: str | None = None
    scope: str | None = None
    names: CrdNames | None = None
    versions: list[CrdVersion] | None = None


class CrdStatus(Shape):
    accepted_names: CrdNames | None = None
    conditions: list[Condition] | None = None
    stored_versions: list[str] | None = None


class CustomResourceDefinition(Shape):
    spec: CrdSpec | None = None
    status: CrdStatus | None = None
