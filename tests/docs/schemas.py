"""The files of the schemas: `docs/schemas/`, one for each type with an example, one for all, the AsyncAPI document.

`released/` has the parts of the schema of each release, written when it is released: `--release VERSION`.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from muster.schemas import KINDS, Schema, asyncapi, of_all, of_type
from tests.job.examples import EXAMPLES

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
RELEASED = FOLDER / "released"


def files() -> dict[str, bytes]:
    """The content of each file by its name."""
    written = {str(type(each).__struct_config__.tag): msgspec.to_builtins(each) for each in EXAMPLES}
    found: dict[str, Schema] = {tag: of_type(tag) | {"examples": [written[tag]]} for tag in KINDS}
    found |= {"events": of_all(), "asyncapi": asyncapi()}
    return {f"{name}.json": rendered(schema) for name, schema in found.items()}


def rendered(schema: Schema) -> bytes:
    return msgspec.json.format(msgspec.json.encode(schema, order="deterministic"), indent=1) + b"\n"


def breaks(released: Mapping[str, Schema], now: Mapping[str, Schema]) -> list[str]:
    """What of the `$defs` of a release a program would miss now, one sentence each.

    A type, a field and a word of an enumeration may be added, and nothing else changes: events of the release are
    stored for ever, and programs written for it read those of today.
    """
    return [sentence for name, old in released.items() for sentence in _broken(name, old, now.get(name))]


def _broken(name: str, old: Schema, new: Schema | None) -> Iterator[str]:
    if new is None:
        yield f"{name} is gone"
        return
    fields: Schema = new.get("properties", {})
    for field, schema in old.get("properties", {}).items():
        if field not in fields:
            yield f"{name}.{field} is gone"
        elif not _reads(schema, fields[field]):
            yield f"{name}.{field} was {_bare(schema)}, and is {_bare(fields[field])}"
    for field in sorted({*new.get("required", ())} ^ {*old.get("required", ())}):
        yield f"{name}.{field} is required in one of the two only"


def _reads(old: Any, new: Any) -> bool:
    """Whether what the old schema has is in the new one."""
    old, new = _bare(old), _bare(new)
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(
            {*old[key]} <= {*new[key]} if key == "enum" else _reads(old[key], new[key]) for key in old
        )
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_reads, old, new))
    return bool(old == new)


def _bare(schema: Any) -> Any:
    """Without what breaks no reader: words for people, the default, which events have, and bounds of a number."""
    if not isinstance(schema, dict):
        return schema
    return {key: value for key, value in schema.items() if key not in _HARMLESS}


_HARMLESS = ("default", "description", "title", "minimum", "maximum")


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--release":
        (RELEASED / f"{sys.argv[2]}.json").write_bytes(rendered(of_all()["$defs"]))
        return
    for name, content in files().items():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
