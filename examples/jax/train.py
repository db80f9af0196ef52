"""One computation over the devices of all processes: jax.distributed, with a coordinator that everybody can name.

Every replica runs this program (`python train.py`) with COORDINATOR_ADDRESS (of process 0: `host:port`, or the host
alone beside COORDINATOR_PORT, as in a JAXJob), NUM_PROCESSES and PROCESS_ID.
"""

import os
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from points import points

STEPS, RATE = 400, 1.0
WANTED_LOSS = 0.25
"""A coin's is 0.69."""

Network = dict[str, jax.Array]


def initial() -> Network:
    """The same for all processes, by the seed."""
    first, second = jax.random.split(jax.random.key(0))
    return {
        "first": jax.random.normal(first, (2, 24)),
        "shift": jnp.zeros(24),
        "second": jax.random.normal(second, (24, 1)) / 5.0,
        "offset": jnp.zeros(1),
    }


def error(network: Network, places: jax.Array, inside: jax.Array) -> jax.Array:
    score = jnp.tanh(places @ network["first"] + network["shift"]) @ network["second"] + network["offset"]
    return jnp.mean(jnp.logaddexp(0.0, score) - inside * score)


@jax.jit
def step(network: Network, places: jax.Array, inside: jax.Array) -> tuple[Network, jax.Array]:
    # The mean is one over the points of all processes: the compiler puts the all-reduce in.
    lost, gradient = jax.value_and_grad(error)(network, places, inside)
    return jax.tree.map(lambda value, slope: value - RATE * slope, network, gradient), lost


def main() -> int:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    port = os.environ.get("COORDINATOR_PORT")
    coordinator = os.environ["COORDINATOR_ADDRESS"] + (f":{port}" if port else "")
    jax.distributed.initialize(coordinator, int(os.environ["NUM_PROCESSES"]), int(os.environ["PROCESS_ID"]))
    processes = jax.process_count()
    split = NamedSharding(Mesh(np.array(jax.devices()), ("points",)), PartitionSpec("points"))
    places, inside = (
        jax.make_array_from_process_local_data(split, part[jax.process_index() :: processes]) for part in points()
    )
    network, loss = initial(), float("inf")
    for number in range(1, STEPS + 1):
        network, lost = step(network, places, inside)
        if number % 50 == 0:
            loss = float(lost)
            print(f"step={number} loss={loss:.4f} processes={processes}", flush=True)
    jax.distributed.shutdown()
    return 0 if loss < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
