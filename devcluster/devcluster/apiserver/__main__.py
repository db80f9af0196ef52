"""`python -m devcluster.apiserver`: serve until SIGTERM."""

import argparse
import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from devcluster.apiserver.aggregation import Aggregation
from devcluster.apiserver.call import read_tokens
from devcluster.apiserver.objects import Objects
from devcluster.apiserver.server import ApiServer, Audit
from devcluster.apiserver.store import Journal, Store
from devcluster.certificates import Credentials, server_context


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m devcluster.apiserver", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the store and the certificates")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 for any free one")
    parser.add_argument("--tokens", type=Path, required=True, help='lines token,user,uid,"group1,group2"')
    parser.add_argument("--audit", type=Path, help="one JSON line per request goes to this file")
    return parser.parse_args()


async def serve(options: argparse.Namespace) -> None:
    options.data.mkdir(parents=True, exist_ok=True)
    journal = Journal(options.data / "store.sqlite")
    store = Store(journal)
    audit = Audit(options.audit) if options.audit else None
    objects = Objects(store)
    node_token = os.environ.get("DEVCLUSTER_NODE_TOKEN", "")
    aggregation = Aggregation(objects, Credentials(options.data))
    server = ApiServer(objects, read_tokens(options.tokens), node_token, audit, aggregation)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with server.serving(options.port, server_context(options.data)) as port:
        print(f"ready https://127.0.0.1:{port}", flush=True)
        stop: asyncio.Future[object] = asyncio.ensure_future(stopping.wait())
        ends: list[asyncio.Future[Any]] = [stop, *server.controllers]
        ended, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ended:
            # A controller that ends has failed: the server ends too, with its error.
            end.result()
    journal.close()
    if audit:
        audit.close()


def main() -> None:
    run = asyncio.run
    with contextlib.suppress(ImportError):
        from uvloop import run
    run(serve(arguments()))


if __name__ == "__main__":
    main()
