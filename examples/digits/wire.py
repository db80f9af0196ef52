"""Messages between the launcher and the workers: a line of JSON, then a vector of numbers, over TCP.

A message is two lengths, a JSON object with its `kind`, and the bytes of a float64 vector (often empty).
"""

import asyncio
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from model import Vector

LENGTHS = struct.Struct("!II")
LARGEST_FIELDS = 1 << 20
LARGEST_VECTOR = 1 << 26
NOTHING: Vector = np.zeros(0)


class WireError(Exception):
    """What arrived is not one of our messages: a stranger called the port."""


@dataclass(frozen=True)
class Message:
    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    vector: Vector = field(default_factory=lambda: NOTHING)

    def __getitem__(self, name: str) -> Any:
        """A field; a message that lacks it is no message of ours."""
        try:
            return self.fields[name]
        except KeyError:
            raise WireError(f"a {self.kind!r} message without {name!r}") from None


async def send(writer: asyncio.StreamWriter, message: Message) -> None:
    fields = json.dumps({"kind": message.kind, **message.fields}).encode()
    numbers = message.vector.astype("<f8").tobytes()
    writer.write(LENGTHS.pack(len(fields), len(numbers)) + fields + numbers)
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> Message:
    """The next message; `EOFError` when the other side has closed, `WireError` when it is not one of us."""
    fields_length, vector_length = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    if fields_length > LARGEST_FIELDS or vector_length > LARGEST_VECTOR or vector_length % 8:
        raise WireError("lengths that no message of ours has")
    raw = await reader.readexactly(fields_length)
    numbers = await reader.readexactly(vector_length)
    try:
        fields = json.loads(raw)
        kind = str(fields.pop("kind"))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise WireError("not a JSON object with a kind") from error
    return Message(kind, fields, np.frombuffer(numbers, "<f8").astype(np.float64))
