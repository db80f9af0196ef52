"""The schemas of events: JSON Schema of each type and of all, and the AsyncAPI document.  Pure; from the models."""

from typing import Any, get_args

import msgspec

from shared.eventlog.account import STREAM
from shared.eventlog.wire import TYPES
from shared.job.events.catalog import AUTHORS, FACTS, AnyEvent
from shared.job.events.event import Event

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
CONTRACT = "1.0.0"
"""The version of the contract of subscribers, in the AsyncAPI document."""
KINDS: dict[str, type[Event]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyEvent)}
"""The types by their tags."""


def of_all() -> Schema:
    """The schema of any event; `$defs` has the types and their parts."""
    some, parts = msgspec.json.schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    return {"$schema": DIALECT, "title": "Any event", "oneOf": list(some), "$defs": parts}


def of_type(tag: str) -> Schema:
    """The schema of one type, complete by itself.  Raises `KeyError` for an unknown type."""
    (one,), parts = msgspec.json.schema_components([KINDS[tag]], ref_template="#/$defs/{name}")
    return {"$schema": DIALECT, **one, "$defs": parts}


def subject_of(tag: str) -> str:
    """The subject of a type, with its variable parts in braces."""
    family = "facts" if KINDS[tag] in FACTS else "jobs"
    return f"{family}.{{namespace}}.{{name}}.{{uid}}.{{author}}.{tag}"


def asyncapi() -> Schema:
    """The AsyncAPI 3 document: a channel and a message for each type; an application receives them."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Muster events",
            "version": CONTRACT,
            "description": "What happens to training jobs, as CloudEvents 1.0 in NATS JetStream; see docs/events.md.",
        },
        "defaultContentType": "application/json",
        "channels": {
            tag: {
                "address": subject_of(tag),
                "description": f"In the stream {STREAM}.",
                "parameters": {
                    "namespace": {"description": "Of the job; a dot is an underscore."},
                    "name": {"description": "Of the job; a dot is an underscore."},
                    "uid": {"description": "Of the job's resource."},
                    "author": {"enum": sorted(AUTHORS[kind])},
                },
                "messages": {tag: {"$ref": f"#/components/messages/{tag}"}},
            }
            for tag, kind in KINDS.items()
        },
        "operations": {
            f"receive{tag}": {"action": "receive", "channel": {"$ref": f"#/channels/{tag}"}} for tag in KINDS
        },
        "components": {
            "messages": {
                tag: {
                    "name": f"{TYPES}{tag}",
                    "summary": summary(tag),
                    "headers": {"$ref": "#/components/schemas/CloudEvent"},
                    "payload": {"$ref": f"#/components/schemas/{tag}"},
                }
                for tag in KINDS
            },
            "schemas": {
                "CloudEvent": _HEADERS,
                **msgspec.json.schema_components(KINDS.values(), ref_template="#/components/schemas/{name}")[1],
            },
        },
    }


_HEADERS: Schema = {
    "type": "object",
    "required": ["ce-id", "ce-time"],
    "properties": {
        "ce-id": {"type": "string", "description": "Unique in the log; what to deduplicate by."},
        "ce-time": {"type": "string", "format": "date-time"},
        "ce-specversion": {"const": "1.0"},
        "ce-type": {"type": "string", "description": f"{TYPES} and the type."},
        "ce-source": {"type": "string", "description": "urn:uuid:LOG#AUTHOR."},
        "Muster-Basis": {"type": "string", "description": "SEQUENCE:HASH of the last event known to a decision."},
    },
}


def summary(tag: str) -> str:
    """The meaning of a type in a sentence or two: the first lines of its model."""
    first = (KINDS[tag].__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.split())
