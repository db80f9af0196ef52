"""Libraries of which Muster uses more than they promise: an upper bound for each, and what breaks when a name changes.

When a test here fails after an upgrade, its message names the file to mend and what of Muster depends on it.
"""

import ast
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.connector import Connection
from nats.aio.client import Client
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

ROOT = Path(__file__).parents[2]
PRODUCT = ("services", "shared", "muster", "devcluster")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

NOT_SENT = "shared/cluster/calls.py: a replica that lost its lease could still write to the cluster"
DROPPED = "shared/cluster/connections.py: a connection that is given up would wait half a minute for the other side"
RAW = "shared/eventlog/client.py: events would go through queues of nats-py, which drop them without a word when full"
UNSENT = "shared/eventlog/client.py: an append could be sent after its caller was told that it was not"
TLS = "shared/eventlog/client.py: a password could be sent to a server that did not prove who it is"
TOLD = "shared/eventlog/client.py: addresses of servers that are gone would be tried for ever"
LEFT = "shared/eventlog/client.py: sockets of failed attempts would stay open"
EXPIRY = "shared/eventlog/client.py: no warning would come before the certificate of the log's server expires"


@pytest.mark.parametrize(
    ("owner", "name", "parameters", "breaks"),
    [
        (aiohttp.ClientRequest, "send", ["self", "conn"], NOT_SENT),
        (Connection, "transport", None, NOT_SENT),
        (aiohttp.ClientResponse, "connection", None, DROPPED),
        (aiohttp.ClientResponse, "close", ["self"], DROPPED),
        (aiohttp.ClientResponse, "release", ["self"], DROPPED),
        (Client, "_process_msg", ["self", "sid", "subject", "reply", "data", "headers"], RAW),
        (Client, "_process_info", ["self", "info", "initial_connection"], TOLD),
        (Client, "_connect_to_server", ["self", "s"], LEFT),
        (Client, "_connect_command", ["self"], TLS),
        (Client, "ssl_context", None, TLS),
    ],
)
def test_what_muster_overrides_is_still_called_so(owner: type, name: str, parameters: list[str] | None, breaks: str):
    assert hasattr(owner, name), breaks
    if parameters is not None:
        assert [*inspect.signature(getattr(owner, name)).parameters] == parameters, breaks


@pytest.mark.parametrize(
    ("name", "kind", "breaks"),
    [
        ("_pending", list, UNSENT),
        ("_pending_data_size", int, UNSENT),
        ("_server_pool", list, TOLD),
        ("_transport", type(None), LEFT),
        ("_server_info", dict, TLS),
        ("options", dict, LEFT),
    ],
)
def test_what_muster_reads_of_a_new_nats_client_is_still_there(name: str, kind: type, breaks: str):
    assert isinstance(getattr(Client(), name, breaks), kind), breaks


async def test_what_muster_reads_of_a_subscription_and_of_a_socket_is_still_there():
    client: Any = Client()
    assert Subscription(client, id=7)._id == 7, RAW
    assert TcpTransport()._io_writer is None, EXPIRY


@pytest.mark.parametrize("library", ["aiohttp", "kubernetes", "nats-py"])
def test_a_library_whose_insides_are_used_has_an_upper_bound(library: str):
    (required,) = [one for one in PROJECT["dependencies"] if re.match(rf"{library}\b", one)]
    below = re.search(r"<(\d+(?:\.\d+)*)", required)
    assert below, f"{required}: a new release could change names that Muster uses"
    assert _numbers(version(library)) < _numbers(below[1])


def test_of_the_kubernetes_client_only_public_names_are_imported():
    product = [file for top in PRODUCT for file in (ROOT / top).rglob("*.py")]
    imports = [
        f"{node.module}.{alias.name}"
        for file in product
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kubernetes"
        for alias in node.names
    ]
    # Private attributes of the imported modules are the linter's affair (SLF001).
    assert imports
    assert [name for name in imports if "._" in name] == []


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(".")]
