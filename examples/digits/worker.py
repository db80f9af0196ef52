"""A worker of the digits example: waits for a launcher and trains with the other workers.

Runs in each worker pod (`python worker.py`). What it does for the launcher is in `member.py`.
"""

import argparse
import asyncio
import os
import signal
import socket

import settings

# Gradients of 8x8 images are small: more threads would only fight over the pod's share of the cores.
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


async def serve(host: str, port: int) -> None:
    from member import Member

    ended = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, ended.set)
    member = Member(name=host or socket.gethostname())
    # No host means all interfaces, IPv4 and IPv6.
    server = await asyncio.start_server(member.connected, host or None, port)
    print(f"{host or socket.gethostname()}: listening on port {port}", flush=True)
    await ended.wait()
    server.close()
    await member.leave()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    settings.add(parser, "--host", "DIGITS_HOST", "", kind=str, text="address to listen on, none for all interfaces")
    settings.add(
        parser, "--port", "DIGITS_PORT", "9009", kind=settings.positive, text="port for the launcher and the peers"
    )
    arguments = parser.parse_args()
    # Before NumPy is loaded, which reads it once.
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    asyncio.run(serve(arguments.host, arguments.port))


if __name__ == "__main__":
    main()
