"""The files of the schemas: `docs/schemas/`, one for each type with an example, one for all, the AsyncAPI document.

`released/` has the parts of the schema of each release, written when it is released: `--release VERSION`.
"""

import sys
from pathlib import Path

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


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--release":
        (RELEASED / f"{sys.argv[2]}.json").write_bytes(rendered(of_all()["$defs"]))
        return
    for name, content in files().items():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
