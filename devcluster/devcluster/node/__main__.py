"""`python -m devcluster.node`: run a node until SIGTERM."""

import argparse
import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

from devcluster.node.agent import Agent, Options
from devcluster.node.runtime import RuntimeProblem

DESCRIPTORS = 65536


def image(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not name or not equals or not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FOLDER with a folder that exists")
    return name, Path(folder).absolute()


def arguments() -> Options:
    parser = argparse.ArgumentParser(prog="python -m devcluster.node", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder for the pods' files")
    parser.add_argument("--name", required=True, help="name of the Node")
    parser.add_argument(
        "--image",
        type=image,
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="containers of image NAME, with any tag, start in FOLDER; others in /",
    )
    parser.add_argument("--client-ca", type=Path, help="accept clients with a certificate of this authority")
    parser.add_argument("--tunnel", type=Path, help="socket on which the API server reaches pods, with HTTP CONNECT")
    parser.add_argument("--outlet", type=int, help="port of this machine that pods reach at their gateway")
    parser.add_argument(
        "--sync-period", type=float, default=5.0, help="seconds until pods see a changed ConfigMap (%(default)s)"
    )
    parser.add_argument(
        "--restart-delay", type=float, default=10.0, help="seconds of the first CrashLoopBackOff (%(default)s)"
    )
    given = parser.parse_args()
    return Options(
        kubeconfig=given.kubeconfig,
        data=given.data.absolute(),
        name=given.name,
        images=dict(given.image),
        node_token=os.environ.get("DEVCLUSTER_NODE_TOKEN", ""),
        client_authority=given.client_ca,
        tunnel=given.tunnel,
        outlet=given.outlet,
        sync_period=given.sync_period,
        restart_delay=given.restart_delay,
    )


async def serve(options: Options) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    await Agent(options).run(stopping)


def main() -> None:
    options = arguments()
    if sys.platform != "linux":
        sys.exit("the node agent separates pods with namespaces, which only Linux has")
    # Each container takes three descriptors, and the usual soft limit is too low for many.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, DESCRIPTORS), hard))
    try:
        asyncio.run(serve(options))
    except RuntimeProblem as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
