"""Muster's speed on a real control plane with fake nodes, beside a bare client that makes the same objects.

    python -m tests.bench.real [figure ...] [--quick] [--peer ADAPTER]

`client.py` is the bare client and what both are timed by, `manifests.py` what both make, `world.py` the cluster and
the four services, `peers.py` other operators in their place, `meter.py` what counts calls and processor time; each
other file is a figure, and `__main__.py` prints them as one table.
"""
