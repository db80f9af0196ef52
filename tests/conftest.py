"""Servers that all tests of a session share.

Here and nowhere else: of a fixture that several conftests import, each would start one of its own.
"""

from tests.kit.apiserver import certificates
from tests.kit.controlplane import control_plane
from tests.kit.nats import nats_cluster, nats_server

__all__ = ["certificates", "control_plane", "nats_cluster", "nats_server"]
