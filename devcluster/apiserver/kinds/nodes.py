"""Nodes: what the node agent registers."""

from devcluster.apiserver.errors import Cause, Json, invalid_value
from devcluster.apiserver.kinds.rules import Rules
from devcluster.apiserver.quantity import parse_quantity
from devcluster.apiserver.shapes import Node


def fill(node: Json, old: Json | None) -> None:
    node["spec"] = node.get("spec") or {}
    node["status"] = node.get("status") or {}


def wrong(node: Json, old: Json | None) -> list[Cause]:
    causes = []
    for field in ("allocatable", "capacity"):
        for name, text in (node["status"].get(field) or {}).items():
            try:
                parse_quantity(text)
            except ValueError as error:
                causes.append(invalid_value(f"status.{field}.{name}", text, str(error)))
    return causes


RULES = Rules(shape=Node, fill=fill, wrong=wrong)
