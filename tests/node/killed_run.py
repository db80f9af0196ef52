"""A run that ends without tidying up: a node with a pod on it, until SIGKILL."""

import asyncio
import sys
from pathlib import Path

from devcluster.realnode import RealCluster

POD = {
    "metadata": {"name": "left-behind"},
    "spec": {"containers": [{"name": "main", "image": "shell:1", "command": ["sleep", "1000"]}]},
}


async def main() -> None:
    async with RealCluster(Path(sys.argv[1])) as cluster, cluster.session() as session:
        path = "/api/v1/namespaces/default/pods"
        async with session.post(path, json=POD) as made:
            assert made.status == 201, await made.text()
        phase = ""
        while phase != "Running":
            await asyncio.sleep(0.05)
            async with session.get(f"{path}/left-behind") as found:
                phase = (await found.json())["status"]["phase"]
        print("up", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
