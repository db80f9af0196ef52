"""A DNS server for the pods: A and PTR records from `resolve` and `reverse`, and NXDOMAIN at once for other names.

It serves UDP only: an answer that is too large has the addresses that fit, instead of sending the client to TCP.
"""

import asyncio
import ipaddress
import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

TTL = 5
"""Seconds that clients may cache an answer, as with other cluster DNS servers."""

A, PTR, OPT, IN = 1, 12, 41, 1
NOERROR, FORMERR, NXDOMAIN, NOTIMP = 0, 1, 3, 4
PLAIN_SIZE = 512
"""The most bytes that a client without EDNS accepts."""

Resolve = Callable[[str], Sequence[str] | None]
"""The addresses of a name in lower case without its last dot; None when there is no such name."""

Reverse = Callable[[str], str | None]


class Malformed(Exception):  # noqa: N818 - it names the message's state
    """The query cannot be parsed."""


def answer(query: bytes, resolve: Resolve, reverse: Reverse) -> bytes | None:
    """The reply to a query; None for a message that is not a query."""
    if len(query) < 12:
        return None
    number, flags, questions, _, _, additional = struct.unpack_from("!6H", query)
    if flags & 0x8000:
        return None
    if flags & 0x7800 or questions != 1:
        return _reply(number, flags, NOTIMP)
    try:
        name, end = _read_name(query, 12)
        kind, record_class = struct.unpack_from("!HH", query, end)
        size = _accepted_size(query, end + 4, additional)
    except (Malformed, struct.error, IndexError):
        return _reply(number, flags, FORMERR)
    question = query[12 : end + 4]
    records = _records(name, resolve, reverse) if record_class == IN else None
    if records is None:
        return _reply(number, flags, NXDOMAIN, question)
    room = (size - 12 - len(question)) // max((len(record) + 12 for _, record in records), default=1)
    matching = [_record(record_kind, data) for record_kind, data in records if record_kind == kind]
    return _reply(number, flags, NOERROR, question, matching[:room])


def _records(name: str, resolve: Resolve, reverse: Reverse) -> list[tuple[int, bytes]] | None:
    if name.endswith(".in-addr.arpa"):
        host = reverse(".".join(reversed(name.removesuffix(".in-addr.arpa").split("."))))
        return [(PTR, _packed_name(host))] if host else None
    addresses = resolve(name)
    if addresses is None:
        return None
    return [(A, ipaddress.IPv4Address(address).packed) for address in addresses]


def _record(kind: int, data: bytes) -> bytes:
    # The record's name is a pointer to the question's.
    return struct.pack("!HHHIH", 0xC00C, kind, IN, TTL, len(data)) + data


def _reply(number: int, flags: int, code: int, question: bytes = b"", answers: Sequence[bytes] = ()) -> bytes:
    # The flags: a reply, authoritative, and recursion available, because some resolvers ignore a server without it.
    header = struct.pack("!6H", number, 0x8480 | (flags & 0x0100) | code, 1 if question else 0, len(answers), 0, 0)
    return header + question + b"".join(answers)


def _read_name(message: bytes, at: int) -> tuple[str, int]:
    """The name in lower case, and the position after it; questions have no compression."""
    labels = []
    while length := message[at]:
        if length > 63:
            raise Malformed
        labels.append(message[at + 1 : at + 1 + length].decode("ascii", errors="replace").lower())
        at += 1 + length
    return ".".join(labels), at + 1


def _packed_name(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _accepted_size(query: bytes, at: int, additional: int) -> int:
    # An OPT record has the root as its name, and the size in the field of the class.
    if additional and query[at : at + 1] == b"\0":
        kind, size = struct.unpack_from("!HH", query, at + 1)
        if kind == OPT:
            return max(int(size), PLAIN_SIZE)
    return PLAIN_SIZE


class DnsServer(asyncio.DatagramProtocol):
    def __init__(self, resolve: Resolve, reverse: Reverse) -> None:
        self._resolve = resolve
        self._reverse = reverse

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # In some versions of Python the transport is no instance of DatagramTransport.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, sender: tuple[str | Any, int]) -> None:
        reply = answer(data, self._resolve, self._reverse)
        if reply:
            self._transport.sendto(reply, sender)
