"""`python -m devcluster`: a cluster in the foreground, until Ctrl-C."""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from devcluster.binaries import MissingProgram
from devcluster.child import ChildError
from devcluster.cluster import ADMIN, Devcluster
from devcluster.controlplane import ControlPlane
from devcluster.node.__main__ import image


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m devcluster", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(".devcluster"), help="folder for all data (%(default)s)")
    parser.add_argument("--real", action="store_true", help="the real control plane instead of our own API server")
    parser.add_argument("--user", action="append", default=[], help="another user, who gets a kubeconfig")
    parser.add_argument("--image", type=image, action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--nodes", type=int, default=1)
    return parser.parse_args()


async def run(options: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    make = ControlPlane if options.real else Devcluster
    cluster = make(options.data, options.user, dict(options.image), options.nodes)
    entering = asyncio.ensure_future(cluster.__aenter__())
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([entering, stop], return_when=asyncio.FIRST_COMPLETED)
    if not entering.done():
        entering.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await entering
        try:
            print(f"export KUBECONFIG={cluster.kubeconfig(ADMIN)}", flush=True)
            for user in options.user:
                print(f"# as {user}: export KUBECONFIG={cluster.kubeconfig(user)}", flush=True)
            await stop
        finally:
            await cluster.__aexit__(None, None, None)


def main() -> None:
    try:
        asyncio.run(run(arguments()))
    except (MissingProgram, ChildError) as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
